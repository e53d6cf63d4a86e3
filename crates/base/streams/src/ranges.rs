//! Sets of numbers as ranges: packets received, bytes acknowledged, bytes to repeat.

use std::collections::VecDeque;
use std::ops::Range;

/// Numbers as disjoint ranges in ascending order, none touching the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    list: VecDeque<Range<u64>>,
}

impl Ranges {
    /// Returns true if the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Number of ranges.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The lowest range.
    #[inline]
    pub fn first(&self) -> Option<Range<u64>> {
        self.list.front().cloned()
    }

    /// The ranges, ascending.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Range<u64>> {
        self.list.iter()
    }

    /// Returns true if a number is in the set.
    pub fn contains(&self, n: u64) -> bool {
        let i = self.list.partition_point(|range| range.end <= n);
        self.list.get(i).is_some_and(|range| range.start <= n)
    }

    /// Puts a range in; whether anything of it was new.
    #[inline]
    pub fn insert(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        match self.list.back_mut() {
            // What comes in order extends the last range.
            Some(last) if range.start >= last.start && range.start <= last.end => {
                let new = range.end > last.end;
                last.end = last.end.max(range.end);
                new
            }
            Some(last) if range.start <= last.end => self.insert_inside(range),
            _ => {
                self.list.push_back(range);
                true
            }
        }
    }

    fn insert_inside(&mut self, range: Range<u64>) -> bool {
        let from = self.list.partition_point(|own| own.end < range.start);
        let to = self.list.partition_point(|own| own.start <= range.end);
        if from == to {
            self.list.insert(from, range);
            return true;
        }
        let new =
            !(to == from + 1 && self.list[from].start <= range.start && range.end <= self.list[from].end);
        let merged = self.list[from].start.min(range.start)..self.list[to - 1].end.max(range.end);
        self.list[from] = merged;
        self.list.drain(from + 1..to);
        new
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: &Range<u64>) {
        let mut i = self.list.partition_point(|own| own.end <= range.start);
        while let Some(own) =
            self.list.get(i).cloned().filter(|own| own.start < range.end && !range.is_empty())
        {
            let (left, right) = (own.start..range.start.max(own.start), range.end.min(own.end)..own.end);
            match (left.is_empty(), right.is_empty()) {
                (true, true) => drop(self.list.remove(i)),
                (false, true) => (self.list[i], i) = (left, i + 1),
                (true, false) => (self.list[i], i) = (right, i + 1),
                (false, false) => {
                    self.list[i] = left;
                    self.list.insert(i + 1, right);
                    i += 2;
                }
            }
        }
    }

    /// Takes everything below `n` out.
    #[inline]
    pub fn remove_below(&mut self, n: u64) {
        while let Some(first) = self.list.front_mut().filter(|first| first.start < n) {
            if first.end > n {
                first.start = n;
                return;
            }
            self.list.pop_front();
        }
    }

    /// Takes the lowest range out.
    pub fn pop_first(&mut self) -> Option<Range<u64>> {
        self.list.pop_front()
    }

    /// Parts of `range` that are not in the set.
    pub fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        let from = self.list.partition_point(|own| own.end <= range.start);
        for own in self.list.range(from..).take_while(|own| own.start < range.end) {
            if at < own.start {
                gaps.push(at..own.start);
            }
            at = at.max(own.end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn ranges_match_a_btree_set(steps in prop::collection::vec((0..3u8, 0..60u64, 0..20u64), 0..30)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (kind, start, len) in steps {
                let range = start..start + len;
                match kind {
                    0 => {
                        let before = set.len();
                        set.extend(range.clone());
                        prop_assert_eq!(ranges.insert(range.clone()), set.len() > before);
                    }
                    1 => {
                        ranges.remove(&range);
                        set.retain(|n| !range.contains(n));
                    }
                    _ => {
                        ranges.remove_below(len);
                        set.retain(|&n| n >= len);
                    }
                }
                let flat: Vec<_> = ranges.iter().cloned().flatten().collect();
                prop_assert_eq!(&flat, &set.iter().copied().collect::<Vec<_>>());
                let pairs = ranges.iter().zip(ranges.iter().skip(1));
                prop_assert!(pairs.into_iter().all(|(a, b)| a.end < b.start));
                let gaps: Vec<_> = ranges.gaps(5..50).into_iter().flatten().collect();
                prop_assert_eq!(gaps, (5..50).filter(|n| !set.contains(n)).collect::<Vec<_>>());
                prop_assert!((0..80).all(|n| ranges.contains(n) == set.contains(&n)));
            }
        }
    }
}
