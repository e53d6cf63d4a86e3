//! Unresponsive datagrams (UDP background traffic): their senders, and sinks that count.

mod sender;
mod transport;

use sender::Sender;
pub(crate) use transport::make;

use crate::endpoint::{Purpose, Table, Wire};
use crate::engine::{Timer, TimerId};
use crate::packet::{Packet, Sack};

/// Those of one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Datagrams {
    senders: Vec<Sender>,
    /// Payload bytes that have arrived, by sink.
    sinks: Vec<u64>,
}

/// IPv4 and UDP headers of a datagram.
const HEADER_BYTES: u16 = 28;

impl Table for Datagrams {
    fn start<W: Wire>(&mut self, wire: &mut W) {
        for (i, sender) in self.senders.iter_mut().enumerate() {
            sender.start(wire, i as u32);
        }
    }

    fn on_packet<W: Wire>(&mut self, _wire: &mut W, packet: &Packet, _sack: &Sack) {
        self.sinks[packet.to as usize] += u64::from(packet.size_bytes.saturating_sub(HEADER_BYTES));
    }

    /// Counting what arrives at the vNIC needs no CPU.
    fn host_of(&self, _packet: &Packet) -> Option<u32> {
        None
    }

    fn timer(&mut self, id: TimerId) -> Option<(Option<u32>, &mut Timer)> {
        let sender = self.senders.get_mut(Purpose::of(id).1 as usize)?;
        Some((Some(sender.host()), &mut sender.timer))
    }

    fn on_timer<W: Wire>(&mut self, wire: &mut W, id: TimerId) {
        let index = Purpose::of(id).1;
        self.senders[index as usize].on_timer(wire, index);
    }
}
