//! All connections of one shard of the engine: flat tables, and where each event goes.

use super::config::{ConnId, TcpConfig};
use super::conn::Conn;
use super::pool::SharedRoutes;
use super::record::{Response, Sample};
use super::rx::{MessageAction, Rx, RxConn, RxSubflow};
use super::subflow::Subflow;
use super::timers::Purpose;
use super::tx::{Selected, Tx};
use crate::endpoint::{Table, Wire};
use crate::engine::{Timer, TimerId};
use crate::packet::{Packet, Sack};
use crate::rtts::RttGroups;
use crate::time::{Span, Time};
use crate::transport::SubflowChange;
use std::sync::Arc;

/// Tables of one shard.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    pub(crate) configs: Arc<[TcpConfig]>,
    pub(crate) algorithms: Arc<[Selected]>,
    pub(crate) conns: Vec<Conn>,
    pub(crate) subs: Vec<Subflow>,
    pub(crate) rx_conns: Vec<RxConn>,
    pub(crate) rx_subs: Vec<RxSubflow>,
    pub(crate) rtts: RttGroups,
    pub(crate) samples: Vec<Sample>,
    pub(crate) responses: Vec<Response>,
    pub(crate) sample_every: Span,
    pub(crate) sample_timer: Timer,
    /// Connections that detect shared bottlenecks together.
    pub(crate) pools: Vec<SharedRoutes>,
}

impl AsRef<Connections> for Connections {
    fn as_ref(&self) -> &Connections {
        self
    }
}

impl AsMut<Connections> for Connections {
    fn as_mut(&mut self) -> &mut Connections {
        self
    }
}

impl Connections {
    /// Samples of traced connections, in order of time.
    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Answered requests, in order of time.
    pub(crate) fn responses(&self) -> &[Response] {
        &self.responses
    }

    /// RTT distributions of this shard's senders.
    pub(crate) fn rtts(&self) -> &RttGroups {
        &self.rtts
    }

    #[inline]
    pub(super) fn with_tx<W: Wire, T>(
        &mut self,
        wire: &mut W,
        conn: u32,
        act: impl FnOnce(&mut Tx<'_, W>) -> T,
    ) -> T {
        let conn = &mut self.conns[conn as usize];
        let first = conn.first as usize;
        let subs = &mut self.subs[first..first + usize::from(conn.count)];
        let now = wire.now();
        let config = &self.configs[usize::from(conn.config)];
        let cc = &self.algorithms[usize::from(conn.algorithm)];
        let pool = conn.pool.as_deref().map(|place| &mut self.pools[place.pool as usize].state);
        act(&mut Tx { wire, now, config, cc, conn, subs, rtts: &mut self.rtts, pool })
    }

    /// After an ACK of a pooled connection: what the pool decides now, all its members do.
    #[inline]
    fn pool_turn<W: Wire>(&mut self, wire: &mut W, conn: u32) {
        let Some(place) = self.conns[conn as usize].pool.as_deref() else { return };
        let (pool, now_us) = (place.pool as usize, wire.now().us().max(1));
        if self.pools[pool].state.is_due(now_us) && self.pools[pool].turn(&self.conns, &self.subs, now_us) {
            for member in 0..self.pools[pool].members.len() {
                let conn = self.pools[pool].members[member];
                self.with_tx(wire, conn, |tx| tx.follow_pool());
            }
        }
    }

    /// Changes a subflow of a connection that sends from here.
    pub(crate) fn change_subflow<W: Wire>(
        &mut self,
        wire: &mut W,
        (conn, r): (u32, usize),
        change: SubflowChange,
    ) {
        self.with_tx(wire, conn, |tx| tx.change(r, change));
    }

    #[cfg(test)]
    pub(crate) fn with_tx_for_test<W: Wire>(
        &mut self,
        wire: &mut W,
        conn: u32,
        act: impl FnOnce(&mut Tx<'_, W>),
    ) {
        self.with_tx(wire, conn, act);
    }

    #[inline]
    fn with_rx<W: Wire>(&mut self, wire: &mut W, sub_index: u32, act: impl FnOnce(&mut Rx<'_, W>)) -> u32 {
        let sub = &mut self.rx_subs[sub_index as usize];
        let conn_index = sub.conn;
        let conn = &mut self.rx_conns[conn_index as usize];
        let now = wire.now();
        let config = &self.configs[usize::from(conn.config)];
        act(&mut Rx { wire, now, config, conn, conn_index, sub, sub_index });
        conn_index
    }

    /// Messages of a request-response connection that have become complete.
    fn tell<W: Wire>(&mut self, wire: &mut W, rx_conn: u32) {
        loop {
            let rx = &mut self.rx_conns[rx_conn as usize];
            if rx.next() < rx.message_end {
                return;
            }
            rx.messages += 1;
            match rx.rare.as_deref().and_then(|rare| rare.on_message) {
                Some(MessageAction::Respond { conn, request_bytes }) => {
                    rx.await_message(Some(request_bytes));
                    self.with_tx(wire, conn, |tx| tx.respond());
                }
                Some(MessageAction::Answered(conn)) => {
                    let asker = &self.conns[conn as usize];
                    let bytes = asker.answer_bytes(rx.messages - 1).unwrap_or(0);
                    rx.await_message(asker.answer_bytes(rx.messages));
                    let (asked, id) = (asker.asked_at, ConnId(asker.global));
                    self.responses.push(Response { conn: id, asked, answered: wire.now(), bytes });
                    self.with_tx(wire, conn, |tx| tx.on_answer(conn));
                }
                None => return,
            }
        }
    }

    /// A slow reader's time: what it takes may open the window, which every subflow then says.
    fn read<W: Wire>(&mut self, wire: &mut W, rx_conn: u32) {
        let RxConn { first, count, .. } = self.rx_conns[rx_conn as usize];
        let mut opened = false;
        self.with_rx(wire, first, |rx| opened = rx.on_read());
        if opened {
            for sub in first..first + u32::from(count) {
                self.with_rx(wire, sub, |rx| rx.tell_window());
            }
        }
    }

    fn sample<W: Wire>(&mut self, wire: &mut W) {
        let at = wire.now();
        for conn in self.conns.iter().filter(|c| c.trace && c.started) {
            let first = conn.first as usize;
            for (i, sf) in self.subs[first..first + usize::from(conn.count)].iter().enumerate() {
                let algorithm = self.algorithms[usize::from(conn.algorithm)].algorithm;
                self.samples.push(Sample {
                    at,
                    conn: ConnId(conn.global),
                    subflow: i as u8,
                    cwnd_pkt: sf.cwnd,
                    in_flight_pkt: sf.board.in_flight(),
                    srtt_8us: sf.rtt.srtt_8us,
                    alpha: algorithm.alpha(&sf.path),
                    acked_pkt: sf.board.una(),
                    retransmits: sf.counters.retransmits,
                });
            }
        }
        let next = at + self.sample_every;
        wire.arm(&mut self.sample_timer, Purpose::Sample.id(0), next);
    }

    /// Brings closer what a packet that arrives soon will touch.
    #[inline]
    pub(crate) fn prefetch(&self, to: u32, ack: bool) {
        if !ack {
            if let Some(sub) = self.rx_subs.get(to as usize) {
                sub.prefetch();
            }
        } else if let Some(sub) = self.subs.get(to as usize) {
            sub.prefetch();
        }
    }

    /// The same packet arrives very soon.
    #[inline]
    pub(crate) fn prefetch_more(&self, to: u32, ack: bool) {
        if !ack {
            if let Some(sub) = self.rx_subs.get(to as usize) {
                self.rx_conns[sub.conn as usize].prefetch();
            }
        } else if let Some(sub) = self.subs.get(to as usize) {
            self.conns[sub.conn as usize].prefetch();
            sub.board.prefetch();
        }
    }
}

/// True if a packet goes to the receiving half of a subflow.
#[inline]
pub(super) fn to_receiver(packet: &Packet) -> bool {
    packet.has(Packet::DATA) || !packet.has(Packet::ACK)
}

impl Table for Connections {
    fn start<W: Wire>(&mut self, wire: &mut W) {
        for (i, conn) in self.conns.iter_mut().enumerate() {
            if conn.start != Time::NEVER {
                wire.arm(&mut conn.app_timer, Purpose::App.id(i as u32), conn.start);
            }
        }
        if self.sample_every != Span::ZERO {
            let at = wire.now() + self.sample_every;
            wire.arm(&mut self.sample_timer, Purpose::Sample.id(0), at);
        }
    }

    #[inline(never)]
    fn on_packet<W: Wire>(&mut self, wire: &mut W, packet: &Packet, sack: &Sack) {
        if to_receiver(packet) {
            let conn = self.with_rx(wire, packet.to, |rx| rx.on_data(packet));
            if self.rx_conns[conn as usize].message_end != u32::MAX {
                self.tell(wire, conn);
            }
        } else {
            let sub = packet.to as usize;
            let conn = self.subs[sub].conn;
            let r = sub - self.conns[conn as usize].first as usize;
            self.with_tx(wire, conn, |tx| tx.on_ack(r, packet, sack));
            self.pool_turn(wire, conn);
        }
    }

    fn host_of(&self, packet: &Packet) -> Option<u32> {
        let to = packet.to as usize;
        Some(if to_receiver(packet) {
            self.rx_conns[self.rx_subs[to].conn as usize].host
        } else {
            self.conns[self.subs[to].conn as usize].host
        })
    }

    fn timer(&mut self, id: TimerId) -> Option<(Option<u32>, &mut Timer)> {
        let (purpose, index) = Purpose::of(id);
        let i = index as usize;
        let (host, timer) = match purpose {
            Purpose::App => {
                let conn = &mut self.conns[i];
                (conn.host, &mut conn.app_timer)
            }
            Purpose::Subflow | Purpose::Pace => {
                let sub = &mut self.subs[i];
                let host = self.conns[sub.conn as usize].host;
                let timer = if purpose == Purpose::Pace { &mut sub.pace_timer } else { &mut sub.timer };
                (host, timer)
            }
            Purpose::DelayedAck => {
                let sub = &mut self.rx_subs[i];
                (self.rx_conns[sub.conn as usize].host, sub.timer())
            }
            Purpose::Read => {
                let conn = &mut self.rx_conns[i];
                (conn.host, conn.timer())
            }
            Purpose::Sample => return Some((None, &mut self.sample_timer)),
        };
        Some((Some(host), timer))
    }

    fn on_timer<W: Wire>(&mut self, wire: &mut W, id: TimerId) {
        let (purpose, index) = Purpose::of(id);
        match purpose {
            Purpose::App => self.with_tx(wire, index, |tx| tx.on_app(index)),
            Purpose::Subflow | Purpose::Pace => {
                let conn = self.subs[index as usize].conn;
                let r = (index - self.conns[conn as usize].first) as usize;
                self.with_tx(wire, conn, |tx| {
                    if purpose == Purpose::Pace { tx.on_pace(r) } else { tx.on_alarm(r) }
                });
            }
            Purpose::DelayedAck => {
                self.with_rx(wire, index, |rx| rx.on_delayed_ack());
            }
            Purpose::Read => self.read(wire, index),
            Purpose::Sample => self.sample(wire),
        }
    }
}
