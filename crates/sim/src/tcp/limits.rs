//! Limits of a connection's sending over time, as Linux accounts them for a socket (`tcp_chrono`, read as `TCP_INFO`).

use crate::time::{Span, Time};

/// Limit of a connection at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Not established yet, or finished: no time is counted.
    #[default]
    Idle,
    /// Nothing is left to send, and windows have room.
    Application,
    /// No subflow has room in its congestion window, or pacing holds it.
    Congestion,
    /// The receiver has no room for more (`rwnd_limited`).
    ReceiveWindow,
    /// The writer waits for room in the send buffer (`sndbuf_limited`).
    SendBuffer,
}

/// Time under each limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitTimes {
    /// Nothing to send.
    pub application: Span,
    /// Congestion window or pacing.
    pub congestion: Span,
    /// Receive window.
    pub receive_window: Span,
    /// Send buffer.
    pub send_buffer: Span,
}

impl LimitTimes {
    /// Adds a time under `limit`.
    pub(crate) fn add(&mut self, limit: Limit, time: Span) {
        let sum = match limit {
            Limit::Idle => return,
            Limit::Application => &mut self.application,
            Limit::Congestion => &mut self.congestion,
            Limit::ReceiveWindow => &mut self.receive_window,
            Limit::SendBuffer => &mut self.send_buffer,
        };
        *sum += time;
    }
}

/// Accounts of a connection: all but the current limit, which lies where every ACK reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitClock {
    since: Time,
    times: LimitTimes,
}

impl Default for LimitClock {
    fn default() -> Self {
        Self { since: Time::ZERO, times: LimitTimes::default() }
    }
}

impl LimitClock {
    /// Ends the time under `limit`; another one begins.
    #[cold]
    pub(crate) fn change(&mut self, limit: Limit, now: Time) {
        self.times.add(limit, now.since(self.since));
        self.since = now;
    }

    /// Times until `now`, `limit` being the current one.
    pub(crate) fn until(&self, limit: Limit, now: Time) -> LimitTimes {
        let mut times = self.times;
        times.add(limit, now.since(self.since));
        times
    }
}
