//! Limits of a socket's sending, from the accounts of its kernel (`tcp_chrono`) and from samples.
//!
//! The kernel tells time with data in the socket (`tcpi_busy_time`), and of that the parts under receive window and send buffer.
//! It counts the send buffer only if a segment leaves while the writer waits already, which is rare. What is left may be the
//! congestion window or a writer that has too little for it. Samples tell these apart: a socket with room in its window and less
//! than a segment unsent (Nagle's algorithm holds that back) waits for its writer, and the writer for the send buffer if that is full.

use serde::{Deserialize, Serialize};
use vmcc_metrics::observed::LimitedTimes;
use vmcc_system::diag::Subflow;

/// Accounts of one socket since its track began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Limits {
    base: Clocks,
    last: Clocks,
    began_us: u64,
    ended_us: u64,
    /// Samples with data in the socket; those of them that waited for the writer, and for room in the send buffer.
    busy: u32,
    starved: u32,
    blocked: u32,
    /// Payload that the socket sent and received.
    sent_bytes: u64,
    received_bytes: u64,
}

/// Times since the socket was made, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Clocks {
    busy_us: u64,
    receive_window_us: u64,
    send_buffer_us: u64,
}

impl Clocks {
    fn of(subflow: &Subflow) -> Self {
        Self {
            busy_us: subflow.busy_us,
            receive_window_us: subflow.receive_window_limited_us,
            send_buffer_us: subflow.send_buffer_limited_us,
        }
    }
}

impl Limits {
    /// Accounts from the first sample of a track on; one that `continues` another socket's track leaves out what that one counted.
    pub(super) fn begin(t_us: u64, subflow: &Subflow, continues: bool) -> Self {
        let base = if continues { Clocks::of(subflow) } else { Clocks::default() };
        Self { base, last: base, began_us: t_us, ended_us: t_us, ..Self::default() }
    }

    /// Takes in a sample.
    pub(super) fn take(&mut self, t_us: u64, subflow: &Subflow) {
        self.last = Clocks::of(subflow);
        self.ended_us = t_us;
        (self.sent_bytes, self.received_bytes) = (subflow.bytes_sent, subflow.bytes_received);
        let busy = subflow.in_flight_pkt > 0 || subflow.not_sent_bytes > 0;
        let all_sent = subflow.not_sent_bytes < subflow.mss_bytes.max(1);
        let waits = busy && all_sent && subflow.in_flight_pkt < subflow.cwnd_pkt;
        self.busy += u32::from(busy);
        let full = subflow.send_buffer_full == Some(true);
        self.starved += u32::from(waits && !full);
        self.blocked += u32::from(waits && full);
    }

    /// Time begins again at zero: what was counted before does not count.
    pub(super) fn restart(&mut self) {
        *self = Self { base: self.last, last: self.last, ..Self::default() };
    }

    /// Payload sent and received since the socket was made, in bytes.
    pub(crate) fn payload_bytes(&self) -> (u64, u64) {
        (self.sent_bytes, self.received_bytes)
    }

    /// Times under each limit.
    pub(crate) fn times(&self) -> LimitedTimes {
        let since = |of: fn(&Clocks) -> u64| of(&self.last).saturating_sub(of(&self.base)) as f64;
        let busy_us = since(|clocks| clocks.busy_us);
        let receive_window_us = since(|clocks| clocks.receive_window_us).min(busy_us);
        let share_us = |samples: u32| busy_us * f64::from(samples) / f64::from(self.busy.max(1));
        let (starved_us, blocked_us) = (share_us(self.starved), share_us(self.blocked));
        let counted_us = since(|clocks| clocks.send_buffer_us);
        let send_buffer_us = counted_us.max(blocked_us).min(busy_us - receive_window_us);
        let life_us = busy_us.max(self.ended_us.saturating_sub(self.began_us) as f64);
        let rest_us = busy_us - receive_window_us - send_buffer_us;
        let application_us = (starved_us - (counted_us - blocked_us).max(0.0)).clamp(0.0, rest_us);
        LimitedTimes {
            congestion_us: rest_us - application_us,
            receive_window_us,
            send_buffer_us,
            application_us: application_us + life_us - busy_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of a socket with these clocks at a second of its life, by congestion window, receive window, send buffer, application.
    fn times(clocks: (u64, u64, u64), starved: u32, blocked: u32) -> [f64; 4] {
        let (busy_us, receive_window_us, send_buffer_us) = clocks;
        let last = Clocks { busy_us, receive_window_us, send_buffer_us };
        let limits = Limits { last, ended_us: 1_000_000, busy: 100, starved, blocked, ..Limits::default() };
        let times = limits.times();
        let all = [times.congestion_us, times.receive_window_us, times.send_buffer_us, times.application_us];
        assert!((times.total_us() - limits.ended_us.max(busy_us) as f64).abs() < 1e-6, "{all:?}");
        all
    }

    #[test]
    fn limit_times_add_up_to_the_socket_lifetime() {
        assert_eq!(times((1_000_000, 0, 0), 0, 0), [1e6, 0.0, 0.0, 0.0]);
        assert_eq!(times((1_000_000, 900_000, 0), 0, 0), [1e5, 9e5, 0.0, 0.0]);
        assert_eq!(times((400_000, 0, 0), 0, 0), [4e5, 0.0, 0.0, 6e5], "idle");
        assert_eq!(times((1_000_000, 0, 0), 80, 0), [2e5, 0.0, 0.0, 8e5], "busy with too little");
        assert_eq!(times((1_000_000, 0, 0), 0, 70), [3e5, 0.0, 7e5, 0.0], "the kernel counts none");
        assert_eq!(times((1_000_000, 0, 700_000), 70, 0), [3e5, 0.0, 7e5, 0.0], "samples see none");
        assert_eq!(
            times((2_000_000, 9, 2_000_000), 100, 0),
            [0.0, 9.0, 1_999_991.0, 0.0],
            "older than its track"
        );
    }
}
