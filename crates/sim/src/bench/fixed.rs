//! Fixed windows instead of a transport: every data packet is acknowledged, every ACK releases the next
//! data packet. Shows what the engine alone can do; lost packets are not repaired.

use crate::engine::{Ctx, Endpoints, TimerId};
use crate::packet::{Packet, RouteId, Sack};

/// One direction of a fixed-window flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// Route of this end's packets.
    pub(crate) route: RouteId,
    /// The other end's index in its shard.
    pub(crate) peer: u32,
    /// Packets to send at the start; 0 at the receiving end.
    pub(crate) window: u32,
}

/// All flow ends of a shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct FixedWindow {
    pub(crate) ends: Vec<End>,
}

impl Endpoints for FixedWindow {
    fn start(&mut self, ctx: &mut Ctx) {
        for end in &self.ends {
            for seq in 0..end.window {
                ctx.send(data(end, seq));
            }
        }
    }

    #[inline(always)]
    fn on_packet(&mut self, ctx: &mut Ctx, packet: &Packet, _sack: &Sack) {
        let end = &self.ends[packet.to as usize];
        if packet.has(Packet::DATA) {
            ctx.send(Packet {
                route: end.route,
                to: end.peer,
                ack: packet.seq + 1,
                size_bytes: 64,
                flags: Packet::ACK,
                ..Packet::default()
            });
        } else {
            ctx.send(data(end, packet.ack));
        }
    }

    fn on_timer(&mut self, _ctx: &mut Ctx, _id: TimerId) {}
}

#[inline]
fn data(end: &End, seq: u32) -> Packet {
    Packet { route: end.route, to: end.peer, seq, size_bytes: 1500, flags: Packet::DATA, ..Packet::default() }
}
