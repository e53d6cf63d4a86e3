//! All hosts of one shard of the engine: the endpoints of every kind, and where each event goes.
//!
//! Kinds of endpoints do not know each other, nor the hosts: each reaches its own table through [`AsRef`] and [`AsMut`].

mod deschedule;

pub(crate) use deschedule::{OffTimes, Periods, ResumeConfig, StealStats};
use deschedule::{PendingPacket, Vcpu};

use crate::datagram::{self, Datagrams};
use crate::endpoint::{Purpose, Table, Wire, kind};
use crate::engine::{Ctx, Endpoints, Timer, TimerId};
use crate::packet::{Packet, Sack};
use crate::plmt::{self, Sessions};
use crate::probe::{self, Probes};
use crate::quic::{self, QuicEnds};
use crate::tcp::{self, Connections};
use crate::time::Time;
use crate::transport::BuildEndpoints;

/// The kinds of endpoints, in the order in which a run asks them.
pub(crate) const KINDS: [BuildEndpoints<Hosts>; 5] =
    [tcp::make, datagram::make, probe::make, quic::make, plmt::make];

/// The endpoints of one shard.
#[derive(Debug, Default)]
pub struct Hosts {
    pub(crate) tcp: Connections,
    datagrams: Datagrams,
    probes: Probes,
    quic: QuicEnds,
    plmt: Sessions,
    /// Those that are descheduled during the run, by node.
    vcpus: Vec<Vcpu>,
}

/// Makes a field the table that its kind of endpoints finds.
macro_rules! tables {
    ($($field:ident: $table:ty),*) => {$(
        impl AsRef<$table> for Hosts {
            fn as_ref(&self) -> &$table {
                &self.$field
            }
        }

        impl AsMut<$table> for Hosts {
            fn as_mut(&mut self) -> &mut $table {
                &mut self.$field
            }
        }
    )*};
}

tables!(tcp: Connections, datagrams: Datagrams, probes: Probes, quic: QuicEnds, plmt: Sessions);

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
            kind::PLMT => {
                let $table = &mut $hosts.plmt;
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
            purpose if purpose >= Purpose::PLMT => {
                let $table = &mut $hosts.plmt;
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
        debug_assert!(self.vcpus.last().is_none_or(|last| last.host < node));
        self.vcpus.push(Vcpu::new(node, times));
    }

    /// Off times of the hosts that are descheduled during the run, until `now`.
    pub(crate) fn steal_stats(&self, now: Time) -> impl Iterator<Item = StealStats> {
        self.vcpus.iter().map(move |vcpu| vcpu.steal_stats(now))
    }

    /// Arms what starts by itself.
    pub(crate) fn begin<W: Wire>(&mut self, wire: &mut W) {
        for (i, vcpu) in self.vcpus.iter_mut().enumerate() {
            vcpu.arm(wire, i as u32);
        }
        self.tcp.start(wire);
        self.datagrams.start(wire);
        self.probes.start(wire);
        self.quic.start(wire);
        self.plmt.start(wire);
    }

    /// A packet for one of this shard's endpoints. Never a function of its own: only what a table does with a packet is worth a call.
    #[inline(always)]
    pub(crate) fn packet<W: Wire>(&mut self, wire: &mut W, packet: &Packet, sack: &Sack) {
        if !self.vcpus.is_empty() && self.defer(packet, || PendingPacket::Plain(*packet, *sack)) {
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
        if !self.vcpus.is_empty() && self.defer(packet, || PendingPacket::Payload(*packet, payload.into())) {
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
        if purpose == Purpose::DESCHEDULE {
            return self.vcpus.get_mut(index as usize).map(|vcpu| (None, &mut vcpu.timer));
        }
        with_table!(self, timer id, table => table.timer(id))
    }

    /// A timer's event.
    pub(crate) fn timer<W: Wire>(&mut self, wire: &mut W, id: TimerId) {
        let Some((host, timer)) = self.owner(id) else { return };
        if !wire.expired(timer, id) {
            return;
        }
        if !self.vcpus.is_empty() && self.defer_timer(wire.now(), host, id) {
            return;
        }
        self.fire(wire, id);
    }

    fn fire<W: Wire>(&mut self, wire: &mut W, id: TimerId) {
        let (purpose, index) = Purpose::of(id);
        if purpose == Purpose::DESCHEDULE {
            return self.switch_vcpu(wire, index);
        }
        with_table!(self, timer id, table => table.on_timer(wire, id));
    }

    fn descheduled_vcpu(&mut self, host: Option<u32>) -> Option<&mut Vcpu> {
        let i = self.vcpus.binary_search_by_key(&host?, |p| p.host).ok()?;
        self.vcpus[i].descheduled.then(|| &mut self.vcpus[i])
    }

    #[cold]
    fn defer(&mut self, packet: &Packet, item: impl FnOnce() -> PendingPacket) -> bool {
        let host = with_table!(self, packet packet, table => table.host_of(packet));
        let Some(vcpu) = self.descheduled_vcpu(host) else { return false };
        vcpu.receive(item);
        true
    }

    /// Keeps the deadline, so that what is handled before it at resumption may still move or cancel it.
    fn defer_timer(&mut self, now: Time, host: Option<u32>, id: TimerId) -> bool {
        let Some(vcpu) = self.descheduled_vcpu(host) else { return false };
        vcpu.expire(id, runs_in_softirq(id));
        if let Some((_, timer)) = self.owner(id) {
            timer.deadline = now;
        }
        true
    }

    fn switch_vcpu<W: Wire>(&mut self, wire: &mut W, index: u32) {
        let vcpu = &mut self.vcpus[index as usize];
        let (pending, packets_first) = vcpu.switch();
        vcpu.arm(wire, index);
        if packets_first {
            self.resume_packets(wire, pending.packets);
            self.resume_timers(wire, pending.timers);
        } else {
            self.resume_timers(wire, pending.timers);
            self.resume_packets(wire, pending.packets);
        }
        self.resume_timers(wire, pending.programs);
    }

    fn resume_packets<W: Wire>(&mut self, wire: &mut W, packets: Vec<PendingPacket>) {
        for received in packets {
            match received {
                PendingPacket::Plain(packet, sack) => self.handle(wire, &packet, &sack),
                PendingPacket::Payload(packet, payload) => self.handle_payload(wire, &packet, &payload),
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

/// True if Linux runs this timer in its TIMER softirq, before waiting packets.
fn runs_in_softirq(id: TimerId) -> bool {
    tcp::runs_in_softirq(id) || plmt::runs_in_softirq(id)
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
