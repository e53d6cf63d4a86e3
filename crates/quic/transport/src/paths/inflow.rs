//! Payload that comes on a path, and its silence.
//!
//! An end that only receives has nothing under way that a timeout could miss. Where a NAT has lost the binding of its address, the peer's packets
//! go nowhere until this end sends something.

use vmcc_units::time::{Span, Time};

/// Silence of this many usual gaps is worth a probe: a peer that sends little now and then is not probed each time.
const SILENCE_GAPS: u64 = 2;
/// Weight of the average of gaps against a new one, as that of the smoothed RTT (RFC 6298).
const GAP_WEIGHT: u64 = 8;
/// Probes of one silence, each after twice the time of the one before: a binding may be lost at any moment of it.
const MAX_PROBES: u8 = 5;

/// Times of packets with payload, and probes of the silence after them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inflow {
    /// Average time between two packets.
    gap: Span,
    last_at: Time,
    /// Probes that are left of this silence.
    probes: u8,
}

impl Inflow {
    pub(crate) fn on_payload(&mut self, now: Time) {
        if self.last_at != Time::ZERO {
            let gap = now.since(self.last_at);
            self.gap = self.gap - self.gap.div(GAP_WEIGHT) + gap.div(GAP_WEIGHT);
        }
        (self.last_at, self.probes) = (now, MAX_PROBES);
    }

    /// Time of the next probe because the payload stopped; `heard` is the time of the last packet of any kind.
    pub(crate) fn probe_at(&self, pto: Span, heard: Time) -> Option<Time> {
        let silence = pto.max(self.gap.times(SILENCE_GAPS));
        (self.probes > 0).then(|| heard + silence.times(1 << (MAX_PROBES - self.probes)))
    }

    /// The path is probed.
    pub(crate) fn on_probe(&mut self) {
        self.probes = self.probes.saturating_sub(1);
    }
}
