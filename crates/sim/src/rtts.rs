//! Distributions of RTTs, one for each group of connections.

use crate::time::Span;
use hdrhistogram::Histogram;

/// Up to this number of connections each has its own RTT distribution; beyond, each traffic entry has one.
const OWN_GROUPS: usize = 256;

/// RTT distribution of a connection: its own (`number`) among few, that of its traffic entry among many.
pub(crate) fn rtt_group(connections: usize, number: usize, entry: usize) -> u32 {
    // Hosts hold at most `MAX_INDEX` ends, and an entry without any has no distribution.
    (if connections <= OWN_GROUPS { number } else { entry }) as u32
}

/// Longest RTT that distributions tell apart, in nanoseconds (100 s).
const MAX_RTT_NS: u64 = 100_000_000_000;

/// A distribution of RTTs in nanoseconds, to 1 %. It grows with the longest: there is one for each of thousands of entries.
fn rtt_histogram() -> Box<Histogram<u64>> {
    Box::new(Histogram::new(2).expect("a precision that it takes"))
}

/// RTT samples by group of connections: every sample that entered an estimator, in nanoseconds, to 1 %.
#[derive(Clone, Debug, Default)]
pub struct RttGroups {
    /// Made with the first sample: most of many entries may have none.
    groups: Vec<Option<Box<Histogram<u64>>>>,
}

impl RttGroups {
    /// Makes room for `group`.
    pub(crate) fn add_group(&mut self, group: u32) {
        let count = group as usize + 1;
        if self.groups.len() < count {
            self.groups.resize_with(count, || None);
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, group: u32, rtt: Span) {
        if let Some(group) = self.groups.get_mut(group as usize) {
            // It grows as far as it needs to.
            let _ = group.get_or_insert_with(rtt_histogram).record(rtt.ns().clamp(1, MAX_RTT_NS));
        }
    }

    /// Adds another shard's samples.
    pub fn merge(&mut self, other: &RttGroups) {
        self.groups.resize_with(self.groups.len().max(other.groups.len()), || None);
        for (all, histogram) in self.groups.iter_mut().zip(&other.groups) {
            if let Some(histogram) = histogram {
                // Same precision: every value fits, or it grows.
                let _ = all.get_or_insert_with(rtt_histogram).add(&**histogram);
            }
        }
    }

    /// Distributions of all groups, in nanoseconds.
    pub(crate) fn into_groups(self) -> Vec<Histogram<u64>> {
        self.groups.into_iter().map(|group| *group.unwrap_or_else(rtt_histogram)).collect()
    }

    /// Distribution of one group, in nanoseconds; none without a sample.
    pub fn group(&self, group: u32) -> Option<&Histogram<u64>> {
        self.groups.get(group as usize)?.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rtt_histograms_grow_with_the_longest_rtt() {
        let mut groups = RttGroups::default();
        groups.add_group(0);
        let buckets = |groups: &RttGroups| groups.group(0).map_or(0, Histogram::distinct_values);
        assert_eq!(buckets(&groups), 0, "nothing is kept without a sample");
        groups.record(0, Span::from_us(1_000));
        assert!(buckets(&groups) <= 2_048, "{} buckets for a millisecond", buckets(&groups));
        groups.record(0, Span::from_us(200_000_000));
        let mut sum = RttGroups::default();
        sum.add_group(0);
        sum.record(0, Span::from_us(1));
        sum.merge(&groups);
        let all = sum.group(0).expect("a group");
        let near = |ns: u64, expected: u64| ns.abs_diff(expected) * 100 <= expected;
        assert_eq!(all.len(), 3);
        assert!(near(all.value_at_quantile(0.5), 1_000_000) && near(all.max(), MAX_RTT_NS));
    }

    #[test]
    fn rtt_groups_beyond_16_bits_are_distinct() {
        let mut shard = RttGroups::default();
        shard.add_group(65_536);
        shard.record(0, Span::from_us(1));
        shard.record(65_536, Span::from_us(1_000));
        let mut all = RttGroups::default();
        all.merge(&shard);
        let samples = |group: u32| all.group(group).map_or(0, |one| one.len());
        assert_eq!((samples(0), samples(1), samples(65_536)), (1, 0, 1));
        assert_eq!(all.into_groups().len(), 65_537);
    }
}
