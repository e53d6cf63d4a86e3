//! BLEST and ECF: whether a segment had better wait for the fast path than leave on the slow one.
//!
//! Sources: S. Ferlin et al., BLEST (IFIP Networking 2016); Y. Lim et al., ECF (CoNEXT 2017).
//! Deviation: products are taken in 64 bits; the ECF module multiplies in 32.

use crate::PathView;

/// BLEST's correction factor in thousandths: 1.0 to 1.3, starting at 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlestState {
    pub(super) lambda_milli: u32,
    /// A segment had to be repeated because the window was blocked, since the last update.
    pub(super) blocked: bool,
    /// Time of the factor's last change, in microseconds.
    pub(super) updated_us: u64,
}

impl Default for BlestState {
    fn default() -> Self {
        BlestState { lambda_milli: 1200, blocked: false, updated_us: 0 }
    }
}

impl BlestState {
    /// Once per round trip of the slow path: up after blocking, slowly down otherwise.
    pub(super) fn update(&mut self, now_us: u64, slow_rtt_us: u64) {
        if now_us.saturating_sub(self.updated_us) < slow_rtt_us {
            return;
        }
        self.lambda_milli = if self.blocked {
            (self.lambda_milli + 40).min(1300)
        } else {
            self.lambda_milli.saturating_sub(10).max(1000)
        };
        self.blocked = false;
        self.updated_us = now_us;
    }
}

/// BLEST: bytes that the fast path can send while one segment travels on the slow one.
pub(super) fn blest_fast_bytes<P: PathView>(fast: &P, slow: &P, mss_bytes: u64, lambda_milli: u32) -> u64 {
    let rounds = u64::from(slow.srtt_8us() / fast.srtt_8us().max(1)) + 1;
    let window = u64::from(fast.cwnd_pkt());
    let packets_x2 = if fast.in_slow_start() {
        2 * window * ((1 << rounds.min(16)) - 1)
    } else {
        (2 * window + (rounds - 1)) * rounds
    };
    packets_x2.saturating_mul(mss_bytes).saturating_mul(u64::from(lambda_milli)) / 2000
}

/// BLEST: whether to leave the slow path idle because its segment would block the window.
pub(super) fn blest_waits<P: PathView>(
    fast: &P,
    slow: &P,
    send_window_bytes: u64,
    mss_bytes: u64,
    lambda_milli: u32,
) -> bool {
    let slow_bytes = u64::from(slow.in_flight_pkt() + 1) * mss_bytes;
    blest_fast_bytes(fast, slow, mss_bytes, lambda_milli) > send_window_bytes.saturating_sub(slow_bytes)
}

/// ECF: whether to wait for the fast path, and the new `waiting` flag.
pub(super) fn ecf_waits<P: PathView>(
    fast: &P,
    slow: &P,
    backlog_bytes: u64,
    mss_bytes: u64,
    waiting: bool,
) -> (bool, bool) {
    let (fast_window, slow_window) =
        (u64::from(fast.cwnd_pkt()) * mss_bytes, u64::from(slow.cwnd_pkt()) * mss_bytes);
    let (fast_rtt, slow_rtt) = (u64::from(fast.srtt_8us()), u64::from(slow.srtt_8us()));
    let delta = u64::from(fast.deviation_8us().max(slow.deviation_8us()));
    let left = fast_rtt * (backlog_bytes.max(fast_window) + fast_window);
    let right = fast_window * (slow_rtt + delta);
    let right_x4 = right.saturating_mul(4 + u64::from(waiting));
    if left.saturating_mul(4) >= right_x4 {
        return (false, false);
    }
    let slow_side = slow_rtt * backlog_bytes.max(slow_window);
    if slow_side >= slow_window * (2 * fast_rtt + delta) { (true, true) } else { (false, waiting) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Plain;
    use super::*;

    fn path(rtt_us: u32, cwnd_pkt: u32) -> Plain {
        Plain { srtt_8us: rtt_us * 8, cwnd_pkt, in_flight_pkt: cwnd_pkt, ..Plain::default() }
    }

    #[test]
    fn blest_counts_the_growing_window() {
        // k = 40/10 + 1 = 5 rounds from 10 packets: (10 + 4/2) * 5 = 60 segments of 1000 bytes, times 1.2.
        assert_eq!(blest_fast_bytes(&path(10, 10), &path(40, 10), 1000, 1200), 72_000);
        let doubling = Plain { slow_start: true, ..path(10, 10) };
        // 10 * (2^5 - 1) = 310 segments.
        assert_eq!(blest_fast_bytes(&doubling, &path(40, 10), 1000, 1000), 310_000);
    }

    #[test]
    fn blest_waits_only_when_the_window_would_block() {
        let (fast, slow) = (path(10, 10), Plain { in_flight_pkt: 5, ..path(40, 10) });
        assert!(blest_waits(&fast, &slow, 72_000 + 5_999, 1000, 1200));
        assert!(!blest_waits(&fast, &slow, 72_000 + 6_000, 1000, 1200));
    }

    #[test]
    fn blest_lambda_moves_within_its_range() {
        let mut state = BlestState { blocked: true, ..BlestState::default() };
        state.update(1_000, 1_000);
        assert_eq!(state.lambda_milli, 1240);
        state.update(1_500, 1_000);
        assert_eq!(state.lambda_milli, 1240, "once per round trip");
        for i in 2..100 {
            state.update(i * 1_000, 1_000);
        }
        assert_eq!(state.lambda_milli, 1000);
        for i in 100..200 {
            state.blocked = true;
            state.update(i * 1_000, 1_000);
        }
        assert_eq!(state.lambda_milli, 1300);
    }

    #[test]
    fn ecf_waits_when_the_fast_path_finishes_first() {
        let (fast, slow) = (path(10, 10), path(100, 10));
        // Backlog 1 segment: 10 * (10 + 10) = 200 < 10 * 100 = 1000, and 100 * 10 >= 10 * 20.
        assert_eq!(ecf_waits(&fast, &slow, 1_000, 1000, false), (true, true));
        // Backlog 100 segments: 10 * 110 = 1100 >= 1000: the slow path helps.
        assert_eq!(ecf_waits(&fast, &slow, 100_000, 1000, true), (true, true), "hysteresis: 1100 < 1250");
        assert_eq!(ecf_waits(&fast, &slow, 100_000, 1000, false), (false, false));
        assert_eq!(ecf_waits(&fast, &slow, 120_000, 1000, true), (false, false), "1300 >= 1250");
    }

    #[test]
    fn ecf_uses_the_slow_path_when_two_fast_rounds_take_longer() {
        // First test: 10 * 20 = 200 >= 10 * 15: no waiting.
        assert_eq!(ecf_waits(&path(10, 10), &path(15, 10), 1_000, 1000, true), (false, false));
        // First test holds (10 * 2 < 1 * 21 is not; deviation 8): 20 < 29, second: 21 * 1 < 1 * (20 + 8).
        let slow = Plain { deviation_8us: 64, ..path(21, 1) };
        assert_eq!(ecf_waits(&path(10, 1), &slow, 1_000, 1000, true), (false, true));
    }

    #[test]
    fn products_do_not_overflow() {
        let wide = Plain { srtt_8us: 80_000_000, ..path(1, 1 << 20) };
        let _ = ecf_waits(&wide, &wide, 4 << 20, 9000, true);
        let _ = blest_waits(&path(1, 1 << 20), &wide, u64::MAX, 9000, 1300);
    }
}
