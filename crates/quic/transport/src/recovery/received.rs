//! Packets that were received: what was there before, what is to be acknowledged and when (RFC 9000 section 13.2).

use crate::wire::ack::EcnCounts;
use crate::wire::ranges::Ranges;
use vmcc_units::time::{Span, Time};

/// Ranges that are kept; older gaps are forgotten, and what is in them counts as received.
const MAX_RANGES: usize = 64;
/// Packets that ask for an acknowledgment before one is sent at once.
const ELICITING_PER_ACK: u32 = 2;

/// The ECN field of a packet that came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable, or not known.
    #[default]
    NotEct,
    /// ECT(0).
    Ect0,
    /// ECT(1).
    Ect1,
    /// Congestion experienced.
    Ce,
}

/// Packets of one number space that have come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    pub(crate) ranges: Ranges,
    /// Everything below counts as received.
    floor: u64,
    /// One past the highest.
    next: u64,
    /// Arrival time of the highest.
    largest_at: Time,
    pub(crate) ecn: EcnCounts,
    eliciting: u32,
    /// An acknowledgment is due then.
    pub(crate) ack_at: Option<Time>,
}

impl Received {
    /// The number that is expected next.
    pub(crate) fn expected(&self) -> u64 {
        self.next
    }

    pub(crate) fn is_duplicate(&self, pn: u64) -> bool {
        pn < self.floor || (pn < self.next && self.ranges.contains(pn))
    }

    /// Notes a packet; one that elicits an acknowledgment gets it within `max_delay`.
    pub(crate) fn record(&mut self, now: Time, pn: u64, eliciting: bool, ecn: Ecn, max_delay: Span) {
        let in_order = pn == self.next;
        self.ranges.insert(pn..pn + 1);
        if self.ranges.len() > MAX_RANGES {
            self.ranges.pop_first();
            self.floor = self.ranges.first().map_or(self.floor, |first| first.start);
        }
        if pn >= self.next {
            (self.next, self.largest_at) = (pn + 1, now);
        }
        match ecn {
            Ecn::NotEct => {}
            Ecn::Ect0 => self.ecn.ect0 += 1,
            Ecn::Ect1 => self.ecn.ect1 += 1,
            Ecn::Ce => self.ecn.ce += 1,
        }
        if eliciting {
            self.eliciting += 1;
            let at_once = !in_order || ecn == Ecn::Ce || self.eliciting >= ELICITING_PER_ACK;
            let at = if at_once { now } else { now + max_delay };
            self.ack_at = Some(self.ack_at.map_or(at, |before| before.min(at)));
        }
    }

    /// Returns true if an acknowledgment may be sent along with other frames.
    pub(crate) fn has_pending_ack(&self) -> bool {
        self.ack_at.is_some()
    }

    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.ack_at.is_some_and(|at| at <= now)
    }

    /// Time since the highest came.
    pub(crate) fn delay(&self, now: Time) -> Span {
        now.since(self.largest_at)
    }

    /// The highest; an acknowledgment up to it leaves now.
    pub(crate) fn on_ack_sent(&mut self) -> u64 {
        (self.eliciting, self.ack_at) = (0, None);
        self.next.saturating_sub(1)
    }

    /// The peer knows of everything up to `largest`: it need not be told again.
    pub(crate) fn on_ack_acked(&mut self, largest: u64) {
        // The highest range stays, or there would be nothing to acknowledge.
        let below = (largest + 1).min(self.ranges.iter().next_back().map_or(0, |last| last.start));
        self.floor = self.floor.max(below);
        self.ranges.remove_below(below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_and_every_unusual_packet_is_acked_at_once() {
        let (now, delay) = (Time::ZERO + Span::from_ms(5), Span::from_ms(25));
        let mut received = Received::default();
        received.record(now, 0, false, Ecn::NotEct, delay);
        assert!(!received.has_pending_ack());
        received.record(now, 1, true, Ecn::NotEct, delay);
        assert!(received.has_pending_ack() && !received.is_due(now) && received.is_due(now + delay));
        received.record(now, 2, true, Ecn::NotEct, delay);
        assert!(received.is_due(now));
        assert_eq!(received.on_ack_sent(), 2);
        received.record(now, 4, true, Ecn::NotEct, delay);
        assert!(received.is_due(now), "a gap");
        received.on_ack_sent();
        received.record(now, 5, true, Ecn::Ce, delay);
        assert!(received.is_due(now), "a mark");
        assert_eq!(received.ecn, EcnCounts { ect0: 0, ect1: 0, ce: 1 });
    }

    #[test]
    fn dropped_ranges_count_as_received() {
        let mut received = Received::default();
        for pn in (0..400).step_by(2) {
            received.record(Time::ZERO, pn, true, Ecn::NotEct, Span::ZERO);
        }
        assert_eq!(received.ranges.len(), MAX_RANGES);
        assert!(received.is_duplicate(0) && received.is_duplicate(1) && received.is_duplicate(398));
        assert!(!received.is_duplicate(397) && !received.is_duplicate(399));
        received.on_ack_acked(390);
        assert!(received.is_duplicate(389) && received.ranges.len() == 4, "{received:?}");
        received.on_ack_acked(398);
        assert_eq!(received.ranges.len(), 1);
    }
}
