//! Multipath QUIC: the engine of `vmcc_transport`, whole, on simulated paths.
//!
//! Modelled: everything that the engine does, packet by packet, with its own headers; IPv4 and UDP take 28 bytes more. Of the handshake
//! and the ciphers only flights and sizes, without certificates. A connection's paths are the network's routes between its two hosts; the
//! client opens one after the other as soon as the handshake is confirmed, and what it sends is one stream.
//! Not modelled: what a datagram costs a CPU; segmentation offload, beyond the engine's own bursts.

mod end;
mod transport;

use end::End;
pub(crate) use transport::make;

use crate::endpoint::{Purpose, Table, Wire};
use crate::engine::{Timer, TimerId};
use crate::packet::{Packet, Sack};
use crate::rtts::RttGroups;

/// Bytes of IPv4 and UDP before each datagram.
const HEADERS_BYTES: u16 = 28;

/// The ends of connections in one shard.
#[derive(Debug, Default)]
pub(crate) struct QuicEnds {
    all: Vec<End>,
    /// RTTs of the sending ends after the warm-up.
    rtts: RttGroups,
}

impl Table for QuicEnds {
    fn start<W: Wire>(&mut self, wire: &mut W) {
        for (i, end) in self.all.iter_mut().enumerate() {
            end.begin(wire, i as u32);
        }
    }

    /// Nothing of ours comes without a payload.
    fn on_packet<W: Wire>(&mut self, _wire: &mut W, _packet: &Packet, _sack: &Sack) {}

    fn on_payload<W: Wire>(&mut self, wire: &mut W, packet: &Packet, payload: &[u8]) {
        self.all[packet.to as usize].receive(wire, packet, payload, &mut self.rtts);
    }

    fn host_of(&self, packet: &Packet) -> Option<u32> {
        Some(self.all[packet.to as usize].host())
    }

    fn timer(&mut self, id: TimerId) -> Option<(Option<u32>, &mut Timer)> {
        let end = self.all.get_mut(Purpose::of(id).1 as usize)?;
        let host = end.host();
        Some((Some(host), &mut end.timer))
    }

    fn on_timer<W: Wire>(&mut self, wire: &mut W, id: TimerId) {
        self.all[Purpose::of(id).1 as usize].wake(wire, &mut self.rtts);
    }
}
