//! Counters of a loaded algorithm.

use crate::shared::algorithm::{
    Counts, MP_COUNT_ECE, MP_COUNT_LOSS, MP_COUNT_MENDED, MP_COUNT_NO_ECN, MP_COUNT_RTO,
};
use crate::shared::{self, FIRST};
use libbpf_rs::MapHandle;
use serde::Serialize;

pub(crate) const COUNTERS_MAP: &str = "mp_counters";

/// Since the algorithm was loaded, over all connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Reductions that the algorithm answered because of an echoed mark.
    pub after_mark: u64,
    /// Because of a loss.
    pub after_loss: u64,
    /// Because of a timeout.
    pub after_timeout: u64,
    /// Connections that were left to the kernel's Reno, because the peer did not negotiate ECN.
    pub without_ecn: u64,
    /// Windows that were mended, because the kernel had skipped a program.
    pub mended: u64,
}

impl Counters {
    /// `None` if the map is none of ours, or of another build.
    pub(crate) fn read(map: &MapHandle) -> Option<Self> {
        shared::read::<Counts>(map, FIRST).ok()?.map(Self::from)
    }
}

impl From<Counts> for Counters {
    fn from(counts: Counts) -> Self {
        let count = |which: u32| counts.count[which as usize];
        Self {
            after_mark: count(MP_COUNT_ECE),
            after_loss: count(MP_COUNT_LOSS),
            after_timeout: count(MP_COUNT_RTO),
            without_ecn: count(MP_COUNT_NO_ECN),
            mended: count(MP_COUNT_MENDED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_in_the_order_of_the_header() {
        let counts = Counts { count: std::array::from_fn(|i| 10 + i as u64) };
        let expected =
            Counters { after_mark: 11, after_loss: 12, after_timeout: 13, without_ecn: 14, mended: 15 };
        assert_eq!(Counters::from(counts), expected);
    }
}
