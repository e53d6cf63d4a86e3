//! Lazily rescheduled timers.
//!
//! A retransmission timer moves with every ACK and almost never fires. A [`Timer`] therefore keeps its
//! deadline in the host's own state and has at most one useful event in the queue: moving the deadline
//! later costs one store; when the event comes too early it is put back.

use crate::time::Time;

/// Which timer an event belongs to: chosen by the host, at most 2^29 - 1. Timers that expire at the same
/// instant on one host are handled in the order of their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(pub u32);

/// Deadline and outstanding event of one timer; lives in the host's state next to what it guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    pub(crate) deadline: Time,
    /// Time of the outstanding event; [`Time::NEVER`] if there is none.
    pub(crate) queued: Time,
}

impl Default for Timer {
    fn default() -> Timer {
        Timer::new()
    }
}

impl Timer {
    /// A timer that is not armed.
    pub const fn new() -> Timer {
        Timer { deadline: Time::NEVER, queued: Time::NEVER }
    }

    /// Expiry time; [`Time::NEVER`] if the timer is not armed.
    #[inline]
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// True if the timer is armed.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.deadline != Time::NEVER
    }

    /// Disarms it; its event is ignored when it comes.
    #[inline]
    pub fn cancel(&mut self) {
        self.deadline = Time::NEVER;
    }
}
