//! Packet sizes of a path: DPLPMTUD (RFC 8899, RFC 9000 section 14.3).

use vmcc_units::time::{Span, Time};

/// Size that every path carries (RFC 9000 section 14).
pub(crate) const BASE: u16 = 1200;
/// Lengths in packets are written in two bytes.
const MAX_SIZE: u16 = 16_383;
/// Probes of one size before it counts as too large.
const MAX_PROBES: u8 = 3;
/// Times in a row that large packets were lost, and none arrived, before they count as too large by now.
const MAX_LOSSES: u8 = 3;
/// The search ends when it is known to this many bytes.
const STEP: u16 = 16;
/// Interval after which the search restarts (RFC 8899 section 5.1.1: `PMTU_RAISE_TIMER`).
const RAISE_INTERVAL: Span = Span::from_secs(600);

/// The search for a path's packet size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mtu {
    size: u16,
    /// Sizes from here on are known or assumed not to pass.
    too_large: u16,
    most: u16,
    probes: u8,
    in_flight: Option<u16>,
    raise_at: Time,
    /// Times that packets larger than any path carries were lost since one last arrived.
    losses: u8,
}

impl Mtu {
    /// The search goes from `base` to `most`; both at least 1200.
    pub(crate) fn new(base: u16, most: u16) -> Mtu {
        let (size, most) = (base.clamp(BASE, MAX_SIZE), most.max(base).clamp(BASE, MAX_SIZE));
        Mtu {
            size,
            too_large: most.saturating_add(1),
            most,
            probes: 0,
            in_flight: None,
            raise_at: Time::NEVER,
            losses: 0,
        }
    }

    /// Bytes of the largest packet that passes, as far as is known.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// The peer takes no more than this.
    pub(crate) fn limit(&mut self, most: u64) {
        let most = u16::try_from(most).unwrap_or(u16::MAX).max(BASE);
        if most < self.most {
            (self.most, self.size) = (most, self.size.min(most));
            self.too_large = self.too_large.min(most.saturating_add(1));
        }
    }

    /// The size to try now, if any.
    pub(crate) fn probe(&mut self, now: Time) -> Option<u16> {
        if now >= self.raise_at {
            (self.too_large, self.raise_at) = (self.most.saturating_add(1), Time::NEVER);
        }
        let left = self.too_large - self.size;
        if self.in_flight.is_some() || left <= 1 || (left <= STEP && self.too_large <= self.most) {
            return None;
        }
        // The largest first: mostly it passes.
        let fresh = self.too_large > self.most;
        Some(if fresh { self.most } else { self.size + left / 2 })
    }

    pub(crate) fn on_probe_sent(&mut self, size: u16) {
        self.in_flight = Some(size);
    }

    /// A probe of that size arrived; whether packets may be larger now.
    pub(crate) fn on_probe_acked(&mut self, now: Time, size: u16) -> bool {
        if !self.ends(size) {
            return false;
        }
        self.probes = 0;
        self.settle(now);
        let grown = size > self.size;
        self.size = self.size.max(size);
        grown
    }

    pub(crate) fn on_probe_lost(&mut self, now: Time, size: u16) {
        if !self.ends(size) {
            return;
        }
        self.probes += 1;
        if self.probes >= MAX_PROBES {
            (self.probes, self.too_large) = (0, size);
            self.settle(now);
        }
    }

    /// Takes the pending probe if it has this size; false for a probe of a search that was given up.
    fn ends(&mut self, size: u16) -> bool {
        self.in_flight.take_if(|own| *own == size).is_some()
    }

    fn settle(&mut self, now: Time) {
        self.raise_at = now + RAISE_INTERVAL;
    }

    /// A packet of that size has arrived.
    pub(crate) fn on_arrived(&mut self, size: u16) {
        if size > BASE {
            self.losses = 0;
        }
    }

    /// Packets of that size and smaller ones were lost, all at once. Whether the path seems to carry no large ones any more, although small ones may get
    /// through (RFC 8899 section 4.3): then the search has restarted.
    pub(crate) fn on_lost(&mut self, largest: u16) -> bool {
        self.losses += u8::from(largest > BASE);
        let hole = self.losses >= MAX_LOSSES && self.size > BASE;
        if hole {
            self.restart();
        }
        hole
    }

    /// Restarts the search: nothing is answered any more, perhaps because packets are too large, or the path leads through another network.
    pub(crate) fn restart(&mut self) {
        *self = Mtu::new(BASE, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(passes: u16, most: u16) -> (u16, u32) {
        let (mut mtu, mut probes) = (Mtu::new(1200, most), 0);
        while let Some(size) = mtu.probe(Time::ZERO) {
            mtu.on_probe_sent(size);
            assert!(size > mtu.size() && size <= most);
            match size <= passes {
                true => assert!(mtu.on_probe_acked(Time::ZERO, size)),
                false => mtu.on_probe_lost(Time::ZERO, size),
            }
            probes += 1;
            assert!(probes < 100);
        }
        (mtu.size(), probes)
    }

    #[test]
    fn search_finds_the_path_mtu() {
        assert_eq!(search(9000, 1452), (1452, 1));
        for passes in [1200, 1280, 1400, 1451] {
            let (size, probes) = search(passes, 1452);
            assert!(size <= passes && size + STEP >= passes && probes < 25, "{passes} {size} {probes}");
        }
    }

    #[test]
    fn search_restarts_after_silence_and_periodically() {
        let mut mtu = Mtu::new(1200, 1452);
        mtu.on_probe_sent(1452);
        assert!(mtu.on_probe_acked(Time::ZERO, 1452));
        mtu.restart();
        assert_eq!((mtu.size(), mtu.probe(Time::ZERO)), (BASE, Some(1452)));
        for _ in 0..MAX_PROBES {
            mtu.on_probe_sent(1452);
            mtu.on_probe_lost(Time::ZERO, 1452);
        }
        let size = mtu.probe(Time::ZERO).filter(|size| *size < 1452).unwrap();
        mtu.on_probe_sent(size);
        assert!(!mtu.on_probe_acked(Time::ZERO, 1452), "of the search before");
        mtu.on_probe_lost(Time::ZERO, size);
        assert_eq!(mtu.probe(Time::ZERO + RAISE_INTERVAL), Some(1452));
    }

    #[test]
    fn only_losses_of_all_large_packets_reduce_the_mtu() {
        let mut mtu = Mtu::new(1452, 1452);
        for _ in 0..9 {
            assert!(!mtu.on_lost(1200) && !mtu.on_lost(1452) && !mtu.on_lost(1300));
            mtu.on_arrived(1452);
        }
        mtu.on_lost(1452);
        mtu.on_arrived(1200);
        assert!(!mtu.on_lost(1452) && mtu.on_lost(1452));
        assert_eq!((mtu.size(), mtu.on_lost(1452)), (BASE, false));
    }
}
