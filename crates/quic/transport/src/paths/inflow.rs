//! Payload that comes on a path, and its silence.
//!
//! An end that only receives has nothing under way that a timeout could miss. Where a NAT has lost the binding of its address, the peer's packets
//! go nowhere until this end sends something.

use vmcc_units::time::{Span, Time};

/// Silence is shorter than this only where no packet is missing.
const MIN_SILENCE: Span = Span::from_ms(200);
/// Probe timeouts without payload that are a silence.
const SILENCE_PTOS: u64 = 2;
/// Packets after which a silence is worth a probe: a peer that sends little now and then is not probed each time.
const MIN_PACKETS: u32 = 16;

/// Packets with payload that came since the path was last probed for their silence.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inflow {
    packets: u32,
    last_at: Time,
}

impl Inflow {
    pub(crate) fn on_payload(&mut self, now: Time) {
        self.packets = self.packets.saturating_add(1);
        self.last_at = now;
    }

    /// Time of a probe because the payload stopped.
    pub(crate) fn probe_at(&self, pto: Span) -> Option<Time> {
        let silence = pto.times(SILENCE_PTOS).max(MIN_SILENCE);
        (self.packets >= MIN_PACKETS).then(|| self.last_at + silence)
    }

    /// The path is probed.
    pub(crate) fn on_probe(&mut self) {
        self.packets = 0;
    }
}
