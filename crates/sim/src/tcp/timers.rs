//! Purposes of the timers of connections.

use crate::endpoint;
use crate::engine::TimerId;

const FIRST: u32 = endpoint::Purpose::TCP.0;

/// In the order in which timers of one instant are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Purpose {
    /// Start of a connection and its application.
    App = FIRST,
    /// A subflow's retransmission, probe or handshake.
    Subflow = FIRST + 1,
    /// A subflow's next paced segment.
    Pace = FIRST + 2,
    /// A receiver's delayed ACK.
    DelayedAck = FIRST + 3,
    /// A reading application.
    Read = FIRST + 4,
    /// Sampling of windows and RTTs.
    Sample = FIRST + 5,
}

const PURPOSES: [Purpose; 6] =
    [Purpose::App, Purpose::Subflow, Purpose::Pace, Purpose::DelayedAck, Purpose::Read, Purpose::Sample];

impl Purpose {
    #[inline]
    pub(crate) fn id(self, index: u32) -> TimerId {
        endpoint::Purpose(self as u32).id(index)
    }

    #[inline]
    pub(crate) fn of(id: TimerId) -> (Purpose, u32) {
        let (purpose, index) = endpoint::Purpose::of(id);
        (PURPOSES[(purpose.0 - FIRST) as usize], index)
    }
}

/// True if Linux runs this timer in its TIMER softirq, before waiting packets. Of the others, the timers of the hosts' programs
/// belong to processes, and that of a paced segment runs in the HRTIMER softirq, after packets.
pub(crate) fn runs_in_softirq(id: TimerId) -> bool {
    [Purpose::Subflow, Purpose::DelayedAck]
        .map(|purpose| purpose as u32)
        .contains(&endpoint::Purpose::of(id).0.0)
}
