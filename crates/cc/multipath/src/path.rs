//! A path as schedulers see it, and sets of paths.

/// Paths that one connection can have: as many as algorithms couple.
pub use vmcc_cc::MAX_PATHS;

/// A path as schedulers see it. Calls are static, and cheap: they are made per packet.
pub trait PathView {
    /// Smoothed RTT in 1/8 us; 0 before the first sample.
    fn srtt_8us(&self) -> u32;
    /// Mean deviation of the RTT in 1/8 us.
    fn deviation_8us(&self) -> u32;
    /// Congestion window, in packets.
    fn cwnd_pkt(&self) -> u32;
    /// Packets in flight.
    fn in_flight_pkt(&self) -> u32;
    /// True if the window grows exponentially.
    fn in_slow_start(&self) -> bool;
    /// True if it may carry data at all.
    fn is_established(&self) -> bool;
    /// True if it may carry data only where no regular path can.
    fn is_backup(&self) -> bool;
    /// True if nothing has answered since its last retransmission timeout, or other paths are to carry its data for another reason.
    fn has_failed(&self) -> bool;
    /// True if it repairs losses from before a retransmission timeout.
    fn is_in_loss(&self) -> bool;
    /// True if pacing holds its next packet back.
    fn is_paced_out(&self) -> bool;

    /// Virtual time of its next turn, 0 at first, in the unit of and kept for [`Selector::on_sent`](crate::Selector::on_sent).
    fn next_turn(&self) -> u64;

    /// Packets that the window still allows.
    #[inline]
    fn room_pkt(&self) -> u32 {
        self.cwnd_pkt().saturating_sub(self.in_flight_pkt())
    }
}

/// Paths of one connection by number, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paths(pub u32);

const _: () = assert!(MAX_PATHS <= u32::BITS as usize);

impl Paths {
    /// No path.
    pub const NONE: Paths = Paths(0);

    /// Path `i` alone.
    #[inline]
    pub const fn only(i: usize) -> Paths {
        Paths(1 << i)
    }

    /// True if path `i` is in the set.
    #[inline]
    pub const fn has(self, i: usize) -> bool {
        self.0 & 1 << i != 0
    }

    /// True if the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of paths.
    #[inline]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Puts path `i` in or takes it out.
    #[inline]
    pub fn set(&mut self, i: usize, member: bool) {
        self.0 = if member { self.0 | 1 << i } else { self.0 & !(1 << i) };
    }

    /// Those that pass `keep`.
    #[inline]
    pub fn filter(self, keep: impl Fn(usize) -> bool) -> Paths {
        Paths(self.into_iter().filter(|&i| keep(i)).map(|i| 1 << i).sum())
    }
}

impl IntoIterator for Paths {
    type Item = usize;
    type IntoIter = Numbers;

    #[inline]
    fn into_iter(self) -> Numbers {
        Numbers(self.0)
    }
}

/// The numbers of a set's paths, ascending.
#[derive(Clone, Debug)]
pub struct Numbers(u32);

impl Iterator for Numbers {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let first = self.0.trailing_zeros() as usize;
        (self.0 != 0).then(|| {
            self.0 &= self.0 - 1;
            first
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_set_holds_inserted_paths() {
        let mut paths = Paths::only(7);
        paths.set(0, true);
        paths.set(3, true);
        paths.set(7, false);
        assert_eq!(paths.into_iter().collect::<Vec<_>>(), [0, 3]);
        assert_eq!((paths.len(), paths.has(3), paths.has(7)), (2, true, false));
        assert_eq!(paths.filter(|i| i > 0), Paths::only(3));
        assert!(paths.filter(|_| false).is_empty());
    }
}
