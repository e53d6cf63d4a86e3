//! What a loaded algorithm counts: `struct mp_counters` of `kernel/shared.h`.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;

pub(crate) const COUNTERS_MAP: &str = "mp_counters";
const COUNTERS: usize = 8;

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
        let bytes = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
        Self::decode(&bytes)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 8 * COUNTERS] = bytes.try_into().ok()?;
        let count = |i: usize| u64::from_ne_bytes(bytes[8 * i..8 * i + 8].try_into().expect("eight bytes"));
        Some(Self {
            after_mark: count(1),
            after_loss: count(2),
            after_timeout: count(3),
            without_ecn: count(4),
            mended: count(5),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_in_the_order_of_the_header() {
        let mut bytes = [0; 64];
        for i in 0..COUNTERS {
            bytes[8 * i] = u8::try_from(10 + i).unwrap();
        }
        let expected =
            Counters { after_mark: 11, after_loss: 12, after_timeout: 13, without_ecn: 14, mended: 15 };
        assert_eq!(Counters::decode(&bytes), Some(expected));
        assert_eq!(Counters::decode(&bytes[8..]), None);
    }
}
