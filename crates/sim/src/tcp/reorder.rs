//! Out-of-order arrivals as a ring of bits, one per segment.
//!
//! The ring exists only once something has arrived out of order; a stream without loss never allocates.

/// Segments above `next` that have arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    next: u32,
    /// One past the highest segment that has arrived.
    end: u32,
    held: u32,
    words: Box<[u64]>,
}

impl Arrivals {
    /// Arrivals of a stream that begins with `seq`.
    pub(crate) fn starting_at(seq: u32) -> Arrivals {
        Arrivals { next: seq, end: seq, ..Arrivals::default() }
    }

    /// First segment that has not arrived.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// One past the highest segment that has arrived, while some are held.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Segments held above the first gap.
    #[inline]
    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    #[inline]
    fn slot(&self, seq: u32) -> (usize, u64) {
        ((seq >> 6) as usize & (self.words.len() - 1), 1 << (seq & 63))
    }

    /// True if `seq` has arrived.
    pub(crate) fn has(&self, seq: u32) -> bool {
        if seq < self.next {
            return true;
        }
        if seq >= self.end || self.words.is_empty() {
            return false;
        }
        let (word, bit) = self.slot(seq);
        self.words[word] & bit != 0
    }

    /// Notes the arrival of `seq` and returns whether it is new; `next` moves over what is complete.
    #[inline]
    pub(crate) fn insert(&mut self, seq: u32) -> bool {
        if seq == self.next && self.held == 0 {
            self.next += 1;
            return true;
        }
        self.insert_slow(seq)
    }

    fn insert_slow(&mut self, seq: u32) -> bool {
        if self.has(seq) {
            return false;
        }
        self.reserve(seq);
        let (word, bit) = self.slot(seq);
        self.words[word] |= bit;
        self.held += 1;
        self.end = self.end.max(seq + 1);
        if seq == self.next {
            self.advance();
        }
        true
    }

    fn advance(&mut self) {
        loop {
            let (word, _) = self.slot(self.next);
            let shift = self.next & 63;
            let run = (!(self.words[word] >> shift)).trailing_zeros().min(64 - shift);
            if run == 0 {
                return;
            }
            let bits = if run == 64 { u64::MAX } else { ((1 << run) - 1) << shift };
            self.words[word] &= !bits;
            self.next += run;
            self.held -= run;
            if run + shift < 64 {
                return;
            }
        }
    }

    fn reserve(&mut self, seq: u32) {
        // Both ends of the range must not share a word: one word spare.
        let need = ((seq - (self.next & !63)) as usize >> 6) + 2;
        if need <= self.words.len() {
            return;
        }
        let mut bigger = vec![0; need.next_power_of_two().max(4)].into_boxed_slice();
        if !self.words.is_empty() && self.held > 0 {
            for word in (self.next >> 6)..=(self.end >> 6) {
                let old = self.words[word as usize & (self.words.len() - 1)];
                bigger[word as usize & (bigger.len() - 1)] = old;
            }
        }
        self.words = bigger;
    }

    /// The run of arrived segments around `seq`, which has arrived and lies above `next`.
    pub(crate) fn run_around(&self, seq: u32) -> (u32, u32) {
        let mut start = seq;
        while start > self.next && self.has(start - 1) {
            start -= 1;
        }
        let mut end = seq + 1;
        while end < self.end && self.has(end) {
            end += 1;
        }
        (start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn in_order_data_never_allocates() {
        let mut a = Arrivals::default();
        (0..1000).for_each(|seq| assert!(a.insert(seq)));
        assert_eq!((a.next(), a.held(), a.words.len()), (1000, 0, 0));
        assert!(!a.insert(3), "a duplicate");
    }

    #[test]
    fn data_behind_a_gap_is_held_until_it_is_filled() {
        let mut a = Arrivals::default();
        for seq in [1, 2, 3, 130, 5] {
            assert!(a.insert(seq));
        }
        assert_eq!((a.next(), a.held()), (0, 5));
        assert_eq!(a.run_around(2), (1, 4));
        assert!(a.insert(0));
        assert_eq!((a.next(), a.held()), (4, 2));
        assert!(!a.insert(130));
    }

    proptest! {
        #[test]
        fn reorder_buffer_matches_a_set(seqs in prop::collection::vec(0u32..700, 1..900)) {
            let mut ring = Arrivals::default();
            let mut set = BTreeSet::new();
            for seq in seqs {
                prop_assert_eq!(ring.insert(seq), set.insert(seq));
                let next = (0..).find(|s| !set.contains(s)).unwrap_or(0);
                prop_assert_eq!(ring.next(), next);
                prop_assert_eq!(ring.held() as usize, set.range(next..).count());
            }
        }
    }
}
