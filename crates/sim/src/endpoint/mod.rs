//! A kind of endpoint in one shard: its table, and what the table needs of an engine.
//!
//! | module | holds |
//! |---|---|
//! | `wire` | clock, sending, timers |
//! | `timers` | the owner of a timer |

mod timers;
mod wire;

pub(crate) use timers::{MAX_INDEX, Purpose};
pub(crate) use wire::Wire;

use crate::engine::{Timer, TimerId};
use crate::packet::{Packet, Sack};

/// [`Packet::kind`] of each kind; TCP's is 0.
pub(crate) mod kind {
    pub(crate) const DATAGRAM: u8 = 1;
    pub(crate) const PROBE: u8 = 2;
    pub(crate) const QUIC: u8 = 3;
    pub(crate) const PLMT: u8 = 4;
}

/// All endpoints of one kind in one shard.
pub(crate) trait Table {
    /// Arms what starts by itself.
    fn start<W: Wire>(&mut self, wire: &mut W);

    /// A packet of this kind has arrived.
    fn on_packet<W: Wire>(&mut self, wire: &mut W, packet: &Packet, sack: &Sack);

    /// One with a payload has.
    fn on_payload<W: Wire>(&mut self, wire: &mut W, packet: &Packet, payload: &[u8]) {
        let _ = payload;
        self.on_packet(wire, packet, &Sack::EMPTY);
    }

    /// The node whose CPU handles the packet; `None` if it needs none. A host that is off handles it when it is back.
    fn host_of(&self, packet: &Packet) -> Option<u32>;

    /// The timer of this id, and the node whose CPU handles it, if one does.
    fn timer(&mut self, id: TimerId) -> Option<(Option<u32>, &mut Timer)>;

    /// The timer of this id has expired.
    fn on_timer<W: Wire>(&mut self, wire: &mut W, id: TimerId);
}
