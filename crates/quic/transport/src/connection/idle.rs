//! Idle timeout (RFC 9000 section 10.1).

use crate::recovery::GRANULARITY;
use vmcc_units::time::{Span, Time};

/// A connection lives through at least this many probe timeouts without a packet (RFC 9000 section 10.1).
const IDLE_PTOS: u64 = 3;

/// Timer that ends a silent connection. Received packets restart it, and the first ack-eliciting packet sent after each.
#[derive(Debug)]
pub(super) struct IdleTimer {
    at: Time,
    /// The shorter of both ends' timeouts; none: the connection is never idle.
    timeout: Option<Span>,
    /// An ack-eliciting packet was sent since a packet came.
    sent_since: bool,
}

impl IdleTimer {
    /// A timer that is not running; of this end's timeout in milliseconds, 0: none.
    pub(super) fn new(timeout_ms: u64) -> IdleTimer {
        let mut timer = IdleTimer { at: Time::NEVER, timeout: None, sent_since: false };
        timer.limit(timeout_ms);
        timer
    }

    /// Applies the peer's timeout in milliseconds, 0: none.
    pub(super) fn limit(&mut self, timeout_ms: u64) {
        let other = (timeout_ms > 0).then(|| Span::from_ms(timeout_ms));
        self.timeout = self.timeout.into_iter().chain(other).min();
    }

    /// Starts the timer again; `pto` is the longest probe timeout of a path.
    pub(super) fn restart(&mut self, now: Time, pto: Span) {
        self.at = self
            .timeout
            .map_or(Time::NEVER, |timeout| now + timeout.max(pto.times(IDLE_PTOS)).max(GRANULARITY));
    }

    pub(super) fn on_received(&mut self, now: Time, pto: Span) {
        self.sent_since = false;
        self.restart(now, pto);
    }

    /// An ack-eliciting packet leaves.
    pub(super) fn on_sent(&mut self, now: Time, pto: impl FnOnce() -> Span) {
        if !self.sent_since {
            self.sent_since = true;
            self.restart(now, pto());
        }
    }

    /// End of the connection, if nothing comes.
    pub(super) fn at(&self) -> Time {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    #[test]
    fn shorter_timeout_holds_and_zero_is_none() {
        let pto = Span::from_ms(1);
        for (own, peer, expected) in [(0, 0, Time::NEVER), (50, 0, at(51)), (0, 70, at(71)), (50, 40, at(41))]
        {
            let mut timer = IdleTimer::new(own);
            timer.limit(peer);
            timer.restart(at(1), pto);
            assert_eq!(timer.at(), expected, "{own} {peer}");
        }
        let mut timer = IdleTimer::new(50);
        timer.restart(at(0), Span::from_ms(100));
        assert_eq!(timer.at(), at(300), "three probe timeouts at least");
    }

    #[test]
    fn only_the_first_packet_sent_after_one_received_restarts() {
        let mut timer = IdleTimer::new(50);
        timer.on_received(at(0), Span::ZERO);
        timer.on_sent(at(10), || Span::ZERO);
        timer.on_sent(at(20), || unreachable!("it was restarted"));
        assert_eq!(timer.at(), at(60));
        timer.on_received(at(30), Span::ZERO);
        timer.on_sent(at(40), || Span::ZERO);
        assert_eq!(timer.at(), at(90));
    }
}
