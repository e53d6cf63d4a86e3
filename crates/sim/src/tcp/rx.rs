//! The receiving transport.
//!
//! Modelled: delayed ACKs (RFC 5681 section 4.2, Linux's quick ACKs at the start and immediate ACKs out of
//! order), SACK with the most recent range first (RFC 2018 section 4), as many as options leave room for, and before it what
//! has come twice (RFC 2883),
//! classic ECN echo (RFC 3168 section 6.1.3) with Linux's quick ACKs at small windows, accurate echo with an immediate ACK on each change of CE (RFC 8257 section 3.2), timestamp echo
//! (RFC 7323 section 4), data sequence reassembly across subflows and data ACKs (RFC 8684 section 3.3), the
//! shared receive window (`window`), a slow reader, window updates on every subflow (`mptcp_cleanup_rbuf`).
//! Not modelled: the adaptive ACK timeout (`ato`) between 40 and 200 ms.
//!
//! As in Linux, data wait in their subflow's queue until in order there, then in the connection's.

mod conn;
mod out_of_order;
mod subflow;

pub(crate) use conn::{MessageAction, RxConn};
pub(crate) use subflow::RxSubflow;

use super::config::{EcnMode, TcpConfig};
use super::reorder::Arrivals;
use super::timers::Purpose;
use super::tx::{TAG_HANDSHAKE, TAG_PROBE};
use crate::endpoint::Wire;
use crate::packet::{Packet, RouteId, SackRange};
use crate::time::{Span, Time};
use out_of_order::BufferedSegment;

/// Segments acknowledged one by one after the first CE mark, and after a segment that is not ECN-capable,
/// which is a retransmission (Linux `tcp_enter_quickack_mode`): the sender's window may be very small.
const ECN_QUICK_ACKS: u8 = 2;

/// A receiver, lent for the duration of an event.
pub(crate) struct Rx<'a, W: Wire> {
    pub(crate) wire: &'a mut W,
    pub(crate) now: Time,
    pub(crate) config: &'a TcpConfig,
    pub(crate) conn: &'a mut RxConn,
    pub(crate) conn_index: u32,
    pub(crate) sub: &'a mut RxSubflow,
    pub(crate) sub_index: u32,
}

impl<W: Wire> Rx<'_, W> {
    /// A data packet, SYN or probe arrived.
    #[inline]
    pub(crate) fn on_data(&mut self, packet: &Packet) {
        if packet.has(Packet::SYN) || packet.tag != 0 {
            self.on_control(packet);
            return;
        }
        let segment = BufferedSegment {
            data_seq: packet.data_seq,
            len_bytes: packet.size_bytes - self.conn.header_bytes,
            last: packet.has(Packet::DATA_FIN),
        };
        self.sub.counters.packets += 1;
        let first = self.conn.first;
        if let Some(ack_routes) = self.conn.ack_routes() {
            ack_routes.on_data((self.sub_index - first) as usize, packet.echo, self.now);
        }
        let mut now = self.echo_congestion(packet);
        let sub = &mut *self.sub;
        if sub.unacked == 0 {
            sub.echo = packet.sent;
        }
        if packet.seq == sub.arrivals.next() && sub.arrivals.held() == 0 {
            sub.arrivals.insert(packet.seq);
            sub.counters.bytes += u64::from(segment.len_bytes);
            // The connection has waited for more only if something waits in its own queue.
            if self.deliver(segment, packet.echo) {
                self.conn.note_held();
            }
        } else {
            now = true;
            self.out_of_order(packet.seq, segment, packet.echo);
            self.conn.note_held();
        }
        self.acknowledge_later(now);
    }

    #[cold]
    fn on_control(&mut self, packet: &Packet) {
        match packet.tag {
            TAG_HANDSHAKE => {}
            TAG_PROBE => self.send_on(Packet::ACK, self.sub.route),
            _ => {
                self.restart(packet.seq);
                self.sub.echo = packet.sent;
                let flags = Packet::SYN | Packet::ACK | packet.flags & Packet::JOIN;
                self.send_on(flags, self.sub.route);
            }
        }
    }

    /// A subflow that is opened again goes on behind what was sent on it before; of that, the connection's other subflows
    /// carry what is missing. A SYN that was sent again is behind nothing.
    fn restart(&mut self, seq: u32) {
        let sub = &mut *self.sub;
        if seq <= sub.arrivals.next() {
            return;
        }
        sub.arrivals = Arrivals::starting_at(seq);
        sub.out_of_order = None;
        sub.unacked = 0;
        sub.timer.cancel();
        sub.quick = self.config.quick_acks;
    }

    /// ECN as Linux answers it; returns whether an ACK must leave at once.
    #[inline]
    fn echo_congestion(&mut self, packet: &Packet) -> bool {
        let ce = packet.has(Packet::CE);
        let sub = &mut *self.sub;
        sub.counters.ce_marked += u64::from(ce);
        // The sender's window has fallen, perhaps to one packet: it must not wait for a delayed ACK.
        let reduced = packet.has(Packet::CWR);
        match sub.ecn {
            EcnMode::Off => false,
            EcnMode::Classic => {
                sub.echo_ce &= !reduced;
                if ce && !sub.echo_ce || !packet.has(Packet::ECT) {
                    sub.quick = sub.quick.max(ECN_QUICK_ACKS);
                }
                sub.echo_ce |= ce;
                reduced
            }
            EcnMode::Accurate => {
                if sub.ce == ce {
                    return reduced;
                }
                // What came before the change is acknowledged with the old state (RFC 8257 figure 1).
                if sub.unacked > 0 {
                    self.send_ack_now();
                }
                self.sub.ce = ce;
                self.sub.echo_ce = ce;
                true
            }
        }
    }

    /// A segment in order on its subflow enters the connection's stream; whether some wait there for earlier ones afterwards.
    #[inline(always)]
    fn deliver(&mut self, segment: BufferedSegment, echo: Time) -> bool {
        let conn = &mut *self.conn;
        let before = conn.data.next();
        if conn.data.insert(segment.data_seq) {
            if conn.data.next() == before + 1 {
                conn.delivered_bytes += u64::from(segment.len_bytes);
            } else {
                conn.count_in_order(segment, before);
            }
            if conn.data.next() > before {
                conn.progress(self.now);
            }
        }
        if segment.last {
            conn.end = segment.data_seq + 1;
        }
        conn.window.sample(self.now, echo);
        match conn.rare.as_deref() {
            Some(reader) if reader.read_gap != Span::ZERO => {
                if !reader.read_timer.is_armed() {
                    self.read_slowly();
                }
            }
            _ => conn.read = conn.data.next(),
        }
        let conn = &mut *self.conn;
        let next = conn.data.next();
        conn.window.right_size(self.now, conn.read, next);
        let held = conn.data.held();
        if held > 0 {
            conn.window.cover(conn.data.end() - next, next);
        }
        if conn.data.next() >= conn.end && conn.completed == Time::NEVER {
            conn.completed = self.now;
        }
        held > 0
    }

    /// As [`Rx::deliver`], where that is rare.
    fn deliver_late(&mut self, segment: BufferedSegment, echo: Time) {
        self.deliver(segment, echo);
    }

    #[cold]
    fn out_of_order(&mut self, seq: u32, segment: BufferedSegment, echo: Time) {
        let sub = &mut *self.sub;
        let before = sub.arrivals.next();
        if !sub.arrivals.insert(seq) {
            sub.counters.duplicates += 1;
            sub.repeated(seq);
            // The acknowledgment may have been lost on the way that it shares: this one goes its own.
            sub.repeated = true;
            return;
        }
        sub.counters.bytes += u64::from(segment.len_bytes);
        let store = sub.out_of_order.get_or_insert_default();
        let next = sub.arrivals.next();
        if next == before {
            self.conn.in_subflows += 1;
            store.hold(seq, segment, before);
            store.report(store.run(seq, &sub.arrivals), next);
            if !self.conn.multipath {
                self.conn.window.cover(sub.arrivals.end() - next, next);
            }
            return;
        }
        store.drop_below(next);
        self.conn.in_subflows -= next - before - 1;
        self.deliver_late(segment, echo);
        for seq in before + 1..next {
            let held = self.sub.out_of_order.as_ref().map_or(segment, |s| s.get(seq));
            self.deliver_late(held, echo);
        }
    }

    /// Acknowledges now, or after the second segment or the delay.
    #[inline]
    fn acknowledge_later(&mut self, now: bool) {
        let sub = &mut *self.sub;
        sub.unacked += 1;
        if now
            || sub.unacked >= self.config.ack_every
            || sub.quick > 0
            || self.config.delayed_ack == Span::ZERO
        {
            sub.quick = sub.quick.saturating_sub(1);
            self.send_ack();
        } else if !sub.timer.is_armed() {
            let at = self.now + self.config.delayed_ack;
            self.wire.arm(&mut sub.timer, Purpose::DelayedAck.id(self.sub_index), at);
        }
    }

    /// The delayed ACK's time has come.
    pub(crate) fn on_delayed_ack(&mut self) {
        if self.sub.unacked > 0 {
            self.send_ack_now();
        }
    }

    #[inline(always)]
    fn send_ack(&mut self) {
        let first = self.conn.first;
        let route = match self.conn.ack_routes() {
            Some(ack_routes) if !std::mem::take(&mut self.sub.repeated) => {
                ack_routes.choose((self.sub_index - first) as usize, self.now)
            }
            _ => self.sub.route,
        };
        self.send_on(Packet::ACK, route);
    }

    /// As [`Rx::send_ack`], where that is not the end of every other packet.
    #[inline(never)]
    fn send_ack_now(&mut self) {
        self.send_ack();
    }

    #[inline(always)]
    fn send_on(&mut self, flags: u16, route: RouteId) {
        let held = self.conn.held(self.sub);
        let window = self.conn.window.offer(self.conn.data.next(), held);
        let sub = &mut *self.sub;
        sub.unacked = 0;
        sub.timer.cancel();
        sub.counters.acks += 1;
        let mut flags = flags;
        if sub.echo_ce {
            flags |= Packet::ECE;
        }
        if sub.ecn == EcnMode::Accurate {
            flags |= Packet::ECT;
        }
        let ack = Packet {
            sent: self.now,
            echo: sub.echo,
            ack: sub.arrivals.next(),
            data_ack: self.conn.data.next(),
            window,
            to: sub.to,
            route,
            size_bytes: self.conn.ack_bytes,
            flags,
            class: self.conn.class,
            ..Packet::default()
        };
        match &mut sub.out_of_order {
            Some(store) if sub.arrivals.held() > 0 || store.duplicate.is_some() => {
                let mut sack = store.ranges();
                for range in sack.ranges.iter_mut().skip(usize::from(self.conn.sack_ranges)) {
                    *range = SackRange::default();
                }
                self.wire.send_with_sack(ack, &sack);
            }
            _ => self.wire.send(ack),
        }
    }

    /// The slow reader takes a segment, if there is one, and comes again when it has had time for it.
    fn read_slowly(&mut self) {
        let conn = &mut *self.conn;
        let Some(reader) = conn.rare.as_deref_mut() else { return };
        if conn.read < conn.data.next() {
            conn.read += 1;
            let at = self.now + reader.read_gap;
            self.wire.arm(&mut reader.read_timer, Purpose::Read.id(self.conn_index), at);
        }
    }

    /// The slow reader comes again; returns whether the sender should know of the room there is then.
    pub(crate) fn on_read(&mut self) -> bool {
        let before = self.conn.read;
        self.read_slowly();
        let held = self.conn.held(self.sub);
        let conn = &mut *self.conn;
        let next = conn.data.next();
        conn.window.right_size(self.now, conn.read, next);
        conn.read > before && conn.window.has_doubled(next, held)
    }

    /// Announces the window, if the sender knows of this subflow.
    pub(crate) fn tell_window(&mut self) {
        if self.sub.counters.acks + self.sub.counters.packets > 0 {
            self.send_ack_now();
        }
    }
}
