//! The window that a receiver advertises: the receive buffer of Linux 6.18, counted in segments.
//!
//! Modelled: how much payload a buffer holds (`tcp_win_from_space`: `scaling_ratio`, before 6.6 `tcp_adv_win_scale`),
//! `tcp_rmem[1]` and `[2]`, what is unread or out of order (`tcp_space`), `rcv_ssthresh` (`tcp_grow_window`), dynamic
//! right-sizing (`tcp_rcv_space_adjust` and `tcp_rcvbuf_grow`; `mptcp_rcvbuf_grow` is the same with the longest RTT of all
//! subflows), a window that closes below a sixteenth of the buffer (`__tcp_select_window`), updates once a read has
//! doubled it (`__tcp_cleanup_rbuf`), the window scale's limit and rounding of the buffer.
//! Not modelled: `rcv_ssthresh` of each subflow by itself (it is the connection's: Linux's may open later), a ratio that is measured for each packet, memory pressure, collapsing and pruning of queues,
//! rounding of a window that is smaller than the buffer, windows below a segment.

use super::config::{ReceiveBuffer, TcpConfig};
use crate::time::{Span, Time};

/// Upper bound on a receiver's initial estimate of one round trip's reading (Linux `TCP_INIT_CWND`).
const INITIAL_READ_PKT: u32 = 10;
/// The largest window of a SYN-ACK, which is not scaled (`tcp_select_initial_window`).
const UNSCALED_BYTES: u64 = 65_535;
/// The largest window scale (RFC 7323 section 2.3).
const MAX_SCALE: u32 = 14;

/// Receive window of a connection. Sequence numbers are the data stream's.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// One past what was last advertised: never moves back (RFC 9293 section 3.8.6).
    advertised: u32,
    /// Segments that the empty buffer has room for (`window_clamp`).
    clamp: u32,
    /// Less than this is no room at all.
    least: u32,
    /// `rcv_ssthresh` above twice what has arrived in order: it grows by two segments for each.
    threshold: i64,
    /// Right-sizing: the most that was read in a round trip (`rcvq_space.space`).
    space: u32,
    /// Segments read when the round trip began, and the time at which it began.
    measured: u32,
    measured_at: Time,
    /// The longest RTT seen since.
    rtt: Span,
    /// The largest `clamp` (`tcp_rmem[2]`).
    most: u32,
    auto: bool,
}

/// `ilog2(space) - 15` (`tcp_select_initial_window`).
fn scale(most_bytes: u64) -> u32 {
    most_bytes.max(1).ilog2().saturating_sub(15).min(MAX_SCALE)
}

impl Window {
    pub(crate) fn new(config: &TcpConfig, mss_bytes: u16) -> Window {
        let payload = |memory: u64| memory.saturating_mul(config.scaling_ratio.into()) >> 8;
        let (first, clamp, most, scale) = match config.receive_buffer {
            ReceiveBuffer::Fixed { bytes } => (bytes, bytes, bytes, 0),
            ReceiveBuffer::Auto { initial_bytes, max_bytes } => {
                let scale = scale(max_bytes);
                let most = payload(max_bytes).min(UNSCALED_BYTES << scale);
                let clamp = payload(initial_bytes).min(most);
                (clamp.min(UNSCALED_BYTES), clamp, most, scale)
            }
        };
        // Rounded up, or a small window could be scaled away.
        let segments = |bytes: u64| {
            let shown = bytes.next_multiple_of(1 << scale) / u64::from(mss_bytes);
            u32::try_from(shown).unwrap_or(u32::MAX >> 1).clamp(1, u32::MAX >> 1)
        };
        let (first, clamp, most) = (segments(first), segments(clamp), segments(most));
        Window {
            advertised: first,
            clamp,
            least: (clamp >> 4).max(1),
            threshold: first.into(),
            space: first.min(INITIAL_READ_PKT),
            measured: 0,
            measured_at: Time::ZERO,
            rtt: Span::ZERO,
            most,
            auto: matches!(config.receive_buffer, ReceiveBuffer::Auto { .. }),
        }
    }

    /// The window of a SYN-ACK, in segments.
    pub(crate) fn first(&self) -> u32 {
        self.advertised
    }

    /// Window, in segments, that `__tcp_select_window` selects with `held` segments unread or out of order.
    #[inline]
    fn select(&self, next: u32, held: u32) -> u32 {
        let free = self.clamp.saturating_sub(held);
        let threshold = self.threshold + 2 * i64::from(next);
        if free < self.least { 0 } else { i64::from(free).min(threshold) as u32 }
    }

    /// The window to advertise beyond `next`, in segments.
    #[inline]
    pub(crate) fn offer(&mut self, next: u32, held: u32) -> u32 {
        self.advertised = self.advertised.max(next.saturating_add(self.select(next, held)));
        self.advertised - next
    }

    /// True if a read should trigger a window update to the sender (`__tcp_cleanup_rbuf`).
    pub(crate) fn has_doubled(&self, next: u32, held: u32) -> bool {
        let shown = self.advertised - next;
        let window = self.select(next, held);
        shown <= self.clamp / 2 && window > 0 && window >= 2 * shown
    }

    /// An in-order segment whose timestamp tells of a round trip (`tcp_rcv_rtt_measure_ts`).
    #[inline]
    pub(crate) fn sample(&mut self, now: Time, echo: Time) {
        if echo != Time::ZERO {
            let rtt = now.since(echo);
            self.rtt = if rtt > self.rtt { rtt } else { self.rtt };
        }
    }

    /// The application has read up to `read` of what is in order up to `next` (`tcp_rcv_space_adjust`).
    #[inline]
    pub(crate) fn right_size(&mut self, now: Time, read: u32, next: u32) {
        if now.since(self.measured_at) >= self.rtt && self.auto && self.rtt != Span::ZERO {
            self.end_round(now, read, next);
        }
    }

    fn end_round(&mut self, now: Time, read: u32, next: u32) {
        // What waits to be read has not been taken at the rate at which it came.
        let copied = (read - self.measured).saturating_sub(next - read);
        if copied > self.space {
            let grown = u64::from(copied - self.space);
            let base = 2 * u64::from(copied);
            self.grow(base + 2 * (base * grown / u64::from(self.space)), next);
            self.space = copied;
        }
        self.measured = read;
        self.measured_at = now;
        self.rtt = Span::ZERO;
    }

    /// Segments came out of order, the farthest `span` beyond the next one (`tcp_data_queue_ofo`).
    pub(crate) fn cover(&mut self, span: u32, next: u32) {
        if self.auto {
            self.grow(2 * u64::from(self.space) + u64::from(span), next);
        }
    }

    /// `tcp_rcvbuf_grow`.
    fn grow(&mut self, wanted: u64, next: u32) {
        let clamp = u32::try_from(wanted).unwrap_or(u32::MAX).min(self.most);
        if clamp > self.clamp {
            // What the threshold had not been allowed to reach, it has not.
            let arrived = 2 * i64::from(next);
            self.threshold = (self.threshold + arrived).min(self.clamp.into()) - arrived;
            self.clamp = clamp;
            self.least = (clamp >> 4).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(initial_bytes: u64, max_bytes: u64, scaling_ratio: u8) -> Window {
        let receive_buffer = ReceiveBuffer::Auto { initial_bytes, max_bytes };
        Window::new(&TcpConfig { receive_buffer, scaling_ratio, ..TcpConfig::default() }, 1448)
    }

    #[test]
    fn advertised_window_subtracts_packet_overhead() {
        // tcp_rmem = 4096 131072 6291456: half of it, and no more than 65,535 bytes in a SYN-ACK.
        let half = window(131_072, 6 << 20, 128);
        assert_eq!((half.first(), half.clamp, half.most), (45, 45, 2172));
        let most = window(131_072, 6 << 20, 224);
        assert_eq!((most.first(), most.clamp, most.most), (45, 79, 3801));
        let quarter = window(131_072, 6 << 20, 64);
        assert_eq!((quarter.first(), quarter.most), (22, 1086));
    }

    #[test]
    fn window_scale_is_bounded_by_a_gibibyte_and_one_packet() {
        assert_eq!(window(131_072, 16 << 30, 128).most, (65_535 << 14) / 1448);
        assert_eq!(window(3000, 3000, 128).first(), 1);
        assert_eq!(window(2000, 2000, 1).first(), 1);
    }

    #[test]
    fn rcv_ssthresh_grows_by_two_segments_per_arrival() {
        let mut window = window(131_072, 6 << 20, 224);
        assert_eq!([0, 1, 10, 17, 40].map(|next| window.offer(next, 0)), [45, 47, 65, 79, 79]);
    }

    #[test]
    fn unread_data_close_the_window_and_reading_doubles_it() {
        let mut window = window(131_072, 131_072, 128);
        assert_eq!(window.offer(45, 45), 0);
        // A sixteenth is two segments, and twice nothing is anything.
        assert!(!window.has_doubled(45, 44));
        assert!(window.has_doubled(45, 43));
        assert_eq!(window.offer(45, 43), 2);
        assert!(!window.has_doubled(45, 42) && window.has_doubled(45, 41));
    }

    #[test]
    fn window_edge_does_not_retreat() {
        let mut window = window(131_072, 131_072, 128);
        assert_eq!(window.offer(10, 0), 45);
        assert_eq!(window.offer(20, 20), 35);
    }

    #[test]
    fn autotuning_gives_twice_the_bytes_read_per_round_trip() {
        let mut window = window(131_072, 6 << 20, 128);
        let at = |ms| Time::ZERO + Span::from_ms(ms);
        for (ms, next) in [(20, 10), (40, 30), (60, 70), (80, 150)] {
            window.sample(at(ms), at(ms - 20));
            window.right_size(at(ms), next, next);
        }
        // 80 after 40: 160 and twice as much again.
        assert_eq!(window.clamp, 160 + 2 * 160);
        // A reader that leaves 50 of 100 has taken nothing at that rate.
        window.sample(at(100), at(80));
        window.right_size(at(100), 250, 300);
        assert_eq!(window.clamp, 480);
        window.cover(700, 300);
        assert_eq!(window.clamp, 860);
    }
}
