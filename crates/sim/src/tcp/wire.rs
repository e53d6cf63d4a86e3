//! What the transport needs of an engine: a clock, sending, timers.
//!
//! The engine's [`Ctx`] implements it; so does the scripted pipe of the unit tests, which loses exactly the
//! packets a test names.

use crate::engine::{Ctx, Timer, TimerId};
use crate::packet::{Packet, Sack};
use crate::time::Time;

/// Clock, network and timers; all calls are static.
pub(crate) trait Wire {
    fn now(&self) -> Time;
    fn send(&mut self, packet: Packet);
    fn send_with_sack(&mut self, packet: Packet, sack: &Sack);
    fn arm(&mut self, timer: &mut Timer, id: TimerId, at: Time);
    fn expired(&mut self, timer: &mut Timer, id: TimerId) -> bool;
}

impl Wire for Ctx {
    #[inline]
    fn now(&self) -> Time {
        Ctx::now(self)
    }

    #[inline]
    fn send(&mut self, packet: Packet) {
        Ctx::send(self, packet);
    }

    #[inline]
    fn send_with_sack(&mut self, packet: Packet, sack: &Sack) {
        Ctx::send_with_sack(self, packet, sack);
    }

    #[inline]
    fn arm(&mut self, timer: &mut Timer, id: TimerId, at: Time) {
        Ctx::arm(self, timer, id, at);
    }

    #[inline]
    fn expired(&mut self, timer: &mut Timer, id: TimerId) -> bool {
        Ctx::expired(self, timer, id)
    }
}

/// Timer ids: what the timer is for, above the index of its owner in the shard's table. Owners are numbered
/// in order of creation within each shard, so the order of ids does not depend on the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Pause windows of a host: first, so that a host is asleep before its other timers are looked at.
    Pause,
    /// Start of a connection and its application.
    App,
    /// A subflow's retransmission, probe or handshake.
    Subflow,
    /// A subflow's next paced segment.
    Pace,
    /// A receiver's delayed ACK.
    DelayedAck,
    /// A reading application.
    Read,
    /// A datagram sender.
    Datagram,
    /// Sampling of windows and RTTs.
    Sample,
}

const PURPOSES: [Purpose; 8] = [
    Purpose::Pause,
    Purpose::App,
    Purpose::Subflow,
    Purpose::Pace,
    Purpose::DelayedAck,
    Purpose::Read,
    Purpose::Datagram,
    Purpose::Sample,
];

const INDEX_BITS: u32 = 26;
/// Most subflows, connections or hosts of one shard.
pub(crate) const MAX_INDEX: u32 = (1 << INDEX_BITS) - 1;

impl Purpose {
    #[inline]
    pub(crate) fn id(self, index: u32) -> TimerId {
        debug_assert!(index <= MAX_INDEX);
        TimerId((self as u32) << INDEX_BITS | index)
    }

    #[inline]
    pub(crate) fn of(id: TimerId) -> (Purpose, u32) {
        (PURPOSES[(id.0 >> INDEX_BITS) as usize & 7], id.0 & MAX_INDEX)
    }
}
