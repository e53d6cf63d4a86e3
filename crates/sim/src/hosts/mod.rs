//! All hosts of one shard of the engine: the endpoints of every kind, and where each event goes.
//!
//! | module | holds |
//! |---|---|
//! | `wire` | what endpoints need of an engine |
//! | `timers` | whose a timer is |
//! | `pause` | descheduled virtual machines |

mod error;
mod pause;
mod timers;
mod wire;

pub use error::HostError;
pub(crate) use error::{check, shard_of};
pub(crate) use pause::{Absences, Lengths, OffTimes, Waking};
use pause::{Pauses, Received};
pub(crate) use timers::{MAX_INDEX, Purpose};
pub(crate) use wire::Wire;

use crate::datagram::{self, Datagrams};
use crate::engine::{Ctx, Endpoints, Timer, TimerId};
use crate::packet::{Packet, Sack};
use crate::probe::{self, Probes};
use crate::quic;
use crate::tcp::{self, Connections};
use crate::time::Time;
use crate::transport::{Make, Table};

/// The kinds of endpoints, in the order in which a run asks them.
pub(crate) const KINDS: [Make; 4] = [tcp::make, datagram::make, probe::make, quic::make];

/// [`Packet::kind`] of each kind; TCP's is 0.
pub(crate) mod kind {
    pub(crate) const DATAGRAM: u8 = 1;
    pub(crate) const PROBE: u8 = 2;
    pub(crate) const QUIC: u8 = 3;
}

/// The endpoints of one shard.
#[derive(Debug, Default)]
pub struct Hosts {
    pub(crate) tcp: Connections,
    pub(crate) datagrams: Datagrams,
    pub(crate) probes: Probes,
    pub(crate) quic: quic::Ends,
    /// By node.
    pauses: Vec<Pauses>,
}

/// Calls the table of a packet's kind, or of a timer's purpose.
macro_rules! with_table {
    ($hosts:expr, packet $packet:expr, $table:ident => $call:expr) => {
        match $packet.kind {
            kind::DATAGRAM => {
                let $table = &mut $hosts.datagrams;
                $call
            }
            kind::PROBE => {
                let $table = &mut $hosts.probes;
                $call
            }
            kind::QUIC => {
                let $table = &mut $hosts.quic;
                $call
            }
            _ => {
                let $table = &mut $hosts.tcp;
                $call
            }
        }
    };
    ($hosts:expr, timer $id:expr, $table:ident => $call:expr) => {
        match Purpose::of($id).0 {
            Purpose::DATAGRAM => {
                let $table = &mut $hosts.datagrams;
                $call
            }
            Purpose::PROBE => {
                let $table = &mut $hosts.probes;
                $call
            }
            Purpose::QUIC => {
                let $table = &mut $hosts.quic;
                $call
            }
            _ => {
                let $table = &mut $hosts.tcp;
                $call
            }
        }
    };
}

impl From<Connections> for Hosts {
    fn from(tcp: Connections) -> Hosts {
        Hosts { tcp, ..Hosts::default() }
    }
}

impl Hosts {
    /// The host at `node` neither sends nor processes while one of these keeps it off.
    /// Nodes come in ascending order, each once.
    pub(crate) fn deschedule(&mut self, node: u32, times: Vec<OffTimes>) {
        debug_assert!(self.pauses.last().is_none_or(|last| last.host < node));
        self.pauses.push(Pauses::new(node, times));
    }

    /// Off times of the hosts that are descheduled during the run, until `now`.
    pub(crate) fn absences(&self, now: Time) -> impl Iterator<Item = Absences> {
        self.pauses.iter().map(move |pauses| pauses.absences(now))
    }

    /// Arms what starts by itself.
    pub(crate) fn begin<W: Wire>(&mut self, wire: &mut W) {
        for (i, pauses) in self.pauses.iter_mut().enumerate() {
            pauses.arm(wire, i as u32);
        }
        self.tcp.start(wire);
        self.datagrams.start(wire);
        self.probes.start(wire);
        self.quic.start(wire);
    }

    /// A packet for one of this shard's endpoints. Never a function of its own: only what a table does with a packet is worth a call.
    #[inline(always)]
    pub(crate) fn packet<W: Wire>(&mut self, wire: &mut W, packet: &Packet, sack: &Sack) {
        if !self.pauses.is_empty() && self.defer(packet, || Received::Plain(*packet, *sack)) {
            return;
        }
        self.handle(wire, packet, sack);
    }

    #[inline(always)]
    fn handle<W: Wire>(&mut self, wire: &mut W, packet: &Packet, sack: &Sack) {
        with_table!(self, packet packet, table => table.on_packet(wire, packet, sack));
    }

    /// One with a payload.
    pub(crate) fn payload<W: Wire>(&mut self, wire: &mut W, packet: &Packet, payload: &[u8]) {
        if !self.pauses.is_empty() && self.defer(packet, || Received::Payload(*packet, payload.into())) {
            return;
        }
        self.handle_payload(wire, packet, payload);
    }

    fn handle_payload<W: Wire>(&mut self, wire: &mut W, packet: &Packet, payload: &[u8]) {
        with_table!(self, packet packet, table => table.on_payload(wire, packet, payload));
    }

    /// The timer of this id, and the node whose CPU handles it.
    fn owner(&mut self, id: TimerId) -> Option<(Option<u32>, &mut Timer)> {
        let (purpose, index) = Purpose::of(id);
        if purpose == Purpose::PAUSE {
            return self.pauses.get_mut(index as usize).map(|pauses| (None, &mut pauses.timer));
        }
        with_table!(self, timer id, table => table.timer(id))
    }

    /// A timer's event.
    pub(crate) fn timer<W: Wire>(&mut self, wire: &mut W, id: TimerId) {
        let Some((host, timer)) = self.owner(id) else { return };
        if !wire.expired(timer, id) {
            return;
        }
        if !self.pauses.is_empty() && self.defer_timer(wire.now(), host, id) {
            return;
        }
        self.fire(wire, id);
    }

    fn fire<W: Wire>(&mut self, wire: &mut W, id: TimerId) {
        let (purpose, index) = Purpose::of(id);
        if purpose == Purpose::PAUSE {
            return self.change_pause(wire, index);
        }
        with_table!(self, timer id, table => table.on_timer(wire, id));
    }

    fn pause_of(&mut self, host: Option<u32>) -> Option<&mut Pauses> {
        let i = self.pauses.binary_search_by_key(&host?, |p| p.host).ok()?;
        self.pauses[i].paused.then(|| &mut self.pauses[i])
    }

    #[cold]
    fn defer(&mut self, packet: &Packet, item: impl FnOnce() -> Received) -> bool {
        let host = with_table!(self, packet packet, table => table.host_of(packet));
        let Some(pauses) = self.pause_of(host) else { return false };
        pauses.receive(item);
        true
    }

    /// Keeps the deadline, so that what is handled before it at resumption may still move or cancel it.
    fn defer_timer(&mut self, now: Time, host: Option<u32>, id: TimerId) -> bool {
        let Some(pauses) = self.pause_of(host) else { return false };
        pauses.expire(id, tcp::runs_in_softirq(id));
        if let Some((_, timer)) = self.owner(id) {
            timer.deadline = now;
        }
        true
    }

    fn change_pause<W: Wire>(&mut self, wire: &mut W, index: u32) {
        let pauses = &mut self.pauses[index as usize];
        let (waiting, packets_first) = pauses.change();
        pauses.arm(wire, index);
        if packets_first {
            self.resume_packets(wire, waiting.packets);
            self.resume_timers(wire, waiting.timers);
        } else {
            self.resume_timers(wire, waiting.timers);
            self.resume_packets(wire, waiting.packets);
        }
        self.resume_timers(wire, waiting.programs);
    }

    fn resume_packets<W: Wire>(&mut self, wire: &mut W, packets: Vec<Received>) {
        for received in packets {
            match received {
                Received::Plain(packet, sack) => self.handle(wire, &packet, &sack),
                Received::Payload(packet, payload) => self.handle_payload(wire, &packet, &payload),
            }
        }
    }

    fn resume_timers<W: Wire>(&mut self, wire: &mut W, timers: Vec<TimerId>) {
        timers.into_iter().for_each(|id| self.resume_timer(wire, id));
    }

    fn resume_timer<W: Wire>(&mut self, wire: &mut W, id: TimerId) {
        let Some((_, timer)) = self.owner(id) else { return };
        if timer.deadline() <= wire.now() {
            timer.cancel();
            self.fire(wire, id);
        }
    }
}

impl Endpoints for Hosts {
    fn start(&mut self, ctx: &mut Ctx) {
        self.begin(ctx);
    }

    #[inline]
    fn on_packet(&mut self, ctx: &mut Ctx, packet: &Packet, sack: &Sack) {
        self.packet(ctx, packet, sack);
    }

    fn on_payload(&mut self, ctx: &mut Ctx, packet: &Packet, payload: &[u8]) {
        self.payload(ctx, packet, payload);
    }

    fn on_timer(&mut self, ctx: &mut Ctx, id: TimerId) {
        self.timer(ctx, id);
    }

    /// Most packets are TCP's; for others it is a hint in vain.
    #[inline]
    fn prefetch(&self, to: u32, ack: bool) {
        self.tcp.prefetch(to, ack);
    }

    #[inline]
    fn prefetch_more(&self, to: u32, ack: bool) {
        self.tcp.prefetch_more(to, ack);
    }
}
