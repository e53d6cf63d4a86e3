//! Sessions over TCP carriers (PLMT): the engine of `vmcc_tcp`, whole, over the simulator's own TCP.
//!
//! A carrier is a pair of connections of [`crate::tcp`], one per direction, each with its own congestion control; coupled algorithms read the windows
//! of a session's other carriers, as those of subflows. Packets carry sizes
//! alone; the bytes of a direction wait in a queue between both ends until TCP has delivered their number in order. A session's carriers
//! take the network's routes between its two hosts; the client dials all of them at once, and again after they end.
//! Not modelled: TLS, its handshake and its records; acknowledgments that ride on data of the other direction; a reset on the wire
//! (the peer learns of an aborted carrier by ABANDON); the limit of 10 s for a connection attempt.
//!
//! | module | holds |
//! |---|---|
//! | `wire` | packets and timers of the carriers' TCP, told apart from those of other connections |
//! | `carrier` | one connection of a session |
//! | `end` | the engine, its application and its carriers |
//! | `transport` | the sessions of a scenario |

mod carrier;
mod end;
mod transport;
mod wire;

use end::End;
pub(crate) use transport::make;
pub(crate) use wire::runs_in_softirq;

use crate::endpoint::{Purpose, Table, Wire};
use crate::engine::{Timer, TimerId};
use crate::packet::{Packet, Sack};
use crate::tcp::{Connections, Half};
use wire::{CarrierWire, Net, tcp_timer};

/// Carrier of an end: indices of both.
#[derive(Clone, Copy, Debug, Default)]
struct Owner {
    end: u32,
    carrier: u32,
}

/// The ends of sessions in one shard, and their connections.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    tcp: Connections,
    ends: Vec<End>,
    /// By sending half, and by receiving half.
    owners: (Vec<Owner>, Vec<Owner>),
}

impl Sessions {
    fn owner_of(&self, half: Half) -> Owner {
        match half {
            Half::Sending(conn) => self.owners.0[conn as usize],
            Half::Receiving(conn) => self.owners.1[conn as usize],
        }
    }

    /// Handles an event of a carrier's connection, then lets its session see what has become of it; `heard`: an acknowledgment arrived.
    fn handle<W: Wire>(
        &mut self,
        wire: &mut W,
        half: Half,
        heard: bool,
        act: impl FnOnce(&mut Connections, &mut CarrierWire<'_, W>),
    ) {
        let Owner { end, carrier } = self.owner_of(half);
        let end = &mut self.ends[end as usize];
        let mut net = Net { tcp: &mut self.tcp, wire, group: end.group.take() };
        match half {
            Half::Sending(conn) => net.with(conn, act),
            Half::Receiving(_) => act(net.tcp, &mut CarrierWire(net.wire)),
        }
        end.on_tcp(&mut net, carrier as usize, heard);
        end.group = net.group;
    }
}

impl Table for Sessions {
    fn start<W: Wire>(&mut self, wire: &mut W) {
        self.tcp.start(&mut CarrierWire(wire));
    }

    fn on_packet<W: Wire>(&mut self, wire: &mut W, packet: &Packet, sack: &Sack) {
        let half = self.tcp.half_of(packet);
        let heard = matches!(half, Half::Sending(_));
        self.handle(wire, half, heard, |tcp, wire| tcp.on_packet(wire, packet, sack));
    }

    fn host_of(&self, packet: &Packet) -> Option<u32> {
        self.tcp.host_of(packet)
    }

    fn timer(&mut self, id: TimerId) -> Option<(Option<u32>, &mut Timer)> {
        if let Some(id) = tcp_timer(id) {
            return self.tcp.timer(id);
        }
        let end = self.ends.get_mut(Purpose::of(id).1 as usize)?;
        Some((Some(end.host()), &mut end.timer))
    }

    fn on_timer<W: Wire>(&mut self, wire: &mut W, id: TimerId) {
        let Some(own) = tcp_timer(id) else {
            let end = &mut self.ends[Purpose::of(id).1 as usize];
            let mut net = Net { tcp: &mut self.tcp, wire, group: end.group.take() };
            end.wake(&mut net);
            end.group = net.group;
            return;
        };
        match self.tcp.sender_of_timer(own) {
            // Its TCP may have given up or, paced, have room.
            Some(conn) => {
                self.handle(wire, Half::Sending(conn), false, |tcp, wire| tcp.on_timer(wire, own));
            }
            None => self.tcp.on_timer(&mut CarrierWire(wire), own),
        }
    }
}
