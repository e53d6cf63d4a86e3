//! Pacing: packets of a window leave spread over a round trip (RFC 9002 section 7.7).

use vmcc_units::time::{Span, Time};

/// A burst is at most what leaves in this time, for the sake of those who send many packets in one call,
const BURST: Span = Span::from_ms(2);
/// and at least this many packets.
const MIN_BURST_PKT: u64 = 10;
/// Least burst where an algorithm spaces packets, as Linux's least.
const MIN_SPACED_PKT: u64 = 2;

/// A bucket of bytes that may leave at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pacer {
    bytes: u64,
    capacity: u64,
    filled_at: Time,
    /// Picoseconds per byte; 0: as fast as the window allows.
    ps_per_byte: u64,
}

impl Pacer {
    /// The window or the round trip has changed.
    pub(crate) fn set_rate(&mut self, cwnd_bytes: u64, srtt: Span, slow_start: bool, mtu: u16) {
        // Twice the window per round trip lets slow start double; a quarter more lets any window be used.
        let gain_4 = if slow_start { 8 } else { 5 };
        let bytes_4 = (cwnd_bytes * gain_4).max(1);
        self.set(srtt.ps().saturating_mul(4) / bytes_4, MIN_BURST_PKT * u64::from(mtu));
    }

    /// The algorithm wants packets so far apart.
    pub(crate) fn set_gap(&mut self, gap: Span, mtu: u16) {
        self.set(gap.ps() / u64::from(mtu.max(1)), MIN_SPACED_PKT * u64::from(mtu));
        self.bytes = self.bytes.min(self.capacity);
    }

    fn set(&mut self, ps_per_byte: u64, least_burst: u64) {
        self.ps_per_byte = ps_per_byte;
        let burst = BURST.ps().checked_div(ps_per_byte).unwrap_or(u64::MAX >> 1);
        self.capacity = burst.max(least_burst);
    }

    fn refill(&mut self, now: Time) {
        match now.since(self.filled_at).ps().checked_div(self.ps_per_byte) {
            None => self.bytes = self.capacity,
            // What is less than a byte goes on.
            Some(0) => {}
            Some(new) => {
                self.bytes = self.bytes.saturating_add(new).min(self.capacity);
                self.filled_at = now;
            }
        }
    }

    /// Earliest time of the next packet: now, or later.
    pub(crate) fn ready_at(&mut self, now: Time, mtu: u16) -> Time {
        self.refill(now);
        let missing = u64::from(mtu).saturating_sub(self.bytes);
        now + Span::from_ps(missing.saturating_mul(self.ps_per_byte))
    }

    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pacer_sends_a_window_in_four_fifths_of_a_round_trip() {
        let (mut pacer, rtt, start) = (Pacer::default(), Span::from_ms(100), Time::ZERO + Span::from_secs(1));
        pacer.set_rate(1_000_000, rtt, false, 1000);
        let (mut now, mut sent) = (start, 0);
        while sent < 1_000_000 {
            now = pacer.ready_at(now, 1000);
            assert_eq!(pacer.ready_at(now, 1000), now);
            pacer.on_sent(1000);
            sent += 1000;
        }
        let took = now.since(start);
        assert!(took > Span::from_ms(76) && took <= Span::from_ms(80), "{took:?}");
    }

    #[test]
    fn pacing_gap_allows_no_initial_burst() {
        let (mut pacer, start) = (Pacer::default(), Time::ZERO + Span::from_secs(1));
        pacer.set_rate(1_000_000, Span::from_ms(100), false, 1000);
        assert_eq!(pacer.ready_at(start, 1000), start);
        pacer.set_gap(Span::from_ms(3), 1000);
        let mut now = start;
        for sent in 0..10u64 {
            now = pacer.ready_at(now, 1000);
            assert_eq!(pacer.ready_at(now, 1000), now);
            assert_eq!(now.since(start), Span::from_ms(3).times(sent.saturating_sub(1)), "packet {sent}");
            pacer.on_sent(1000);
        }
    }
}
