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

use super::ack_path::AckWays;
use super::config::{App, Ecn, TcpConfig};
use super::conn::Conn;
use super::record::ReceiverCounters;
use super::reorder::Arrivals;
use super::timers::Purpose;
use super::tx::{TAG_HANDSHAKE, TAG_PROBE};
use super::window::Window;
use crate::engine::Timer;
use crate::hosts::Wire;
use crate::packet::{Packet, RouteId, Sack, SackRange};
use crate::time::{Span, Time};
use prefetch_index::prefetch_index;
use std::slice;

/// The receiving half of a subflow.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct RxSubflow {
    arrivals: Arrivals,
    pub(crate) conn: u32,
    /// Index of the sending half in the sender's shard.
    pub(crate) to: u32,
    pub(crate) route: RouteId,
    unacked: u8,
    quick: u8,
    ecn: Ecn,
    /// The last data packet carried CE.
    ce: bool,
    /// ECE is repeated until CWR (classic).
    echo_ce: bool,
    /// What is to be acknowledged had arrived before.
    repeated: bool,
    /// `sent` of the oldest segment not acknowledged.
    echo: Time,
    timer: Timer,
    pub(crate) counters: ReceiverCounters,
    out_of_order: Option<Box<OutOfOrder>>,
}

/// What is kept of a segment until it is in order on its subflow.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    data_seq: u32,
    len_bytes: u16,
    last: bool,
}

/// Kept once a subflow has seen reordering.
#[derive(Clone, Debug, Default)]
struct OutOfOrder {
    /// The segments held, by sequence number modulo the length.
    held: Box<[Held]>,
    /// Ranges reported, the most recent first.
    recent: Sack,
    /// What has come twice and not been reported so.
    duplicate: Option<u32>,
}

impl RxSubflow {
    pub(crate) fn new(conn: u32, to: u32, route: RouteId, config: &TcpConfig, accurate: bool) -> RxSubflow {
        RxSubflow {
            arrivals: Arrivals::default(),
            conn,
            to,
            route,
            unacked: 0,
            quick: config.quick_acks,
            ecn: if accurate { Ecn::Accurate } else { config.ecn },
            ce: false,
            echo_ce: false,
            repeated: false,
            echo: Time::ZERO,
            timer: Timer::new(),
            counters: ReceiverCounters::default(),
            out_of_order: None,
        }
    }
}

/// What a complete message makes a connection of the same shard do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    /// The server answers on this connection.
    Respond(u32),
    /// The client notes the answer to this connection's request.
    Answered(u32),
}

/// The receiving half of a connection.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct RxConn {
    data: Arrivals,
    /// Read by the application.
    read: u32,
    window: Window,
    pub(crate) mss_bytes: u16,
    header_bytes: u16,
    pub(crate) ack_bytes: u16,
    pub(crate) class: u8,
    pub(crate) config: u16,
    /// One past the last segment of the stream, once known.
    end: u32,
    /// The reader's time per segment; zero reads at once.
    read_gap: Span,
    read_timer: Timer,
    /// Multipath TCP, even with one subflow: what a subflow holds out of order takes nothing of the window.
    multipath: bool,
    /// SACK ranges per ACK.
    sack_ranges: u8,
    /// The ways of acknowledgments, if they share one.
    pub(crate) ack_ways: Option<Box<AckWays>>,
    /// Segments per message of a request-response application; 0: nobody is told.
    pub(crate) message: u32,
    pub(crate) messages: u32,
    pub(crate) completed: Time,
    /// Payload that the application can have: in order in the connection's stream.
    pub(crate) delivered_bytes: u64,
    /// When that grew the last time, and the longest time between two such moments until the application stops.
    pub(crate) delivered_at: Time,
    pub(crate) stalled: Span,
    stop: Time,
    /// Segments that wait in the queues of subflows, and the most that waited there and in the connection's.
    in_subflows: u32,
    pub(crate) most_held: u32,
    /// Segments that are not full and wait for earlier data: sequence number and bytes missing.
    short: Vec<(u32, u16)>,
    pub(crate) host: u32,
    /// Its first subflow in the shard's table, and how many follow.
    pub(crate) first: u32,
    pub(crate) count: u8,
    /// Who is told when a message is complete.
    pub(crate) tells: Option<Tell>,
}

/// Segments acknowledged one by one after the first CE mark, and after a segment that is not ECN-capable,
/// which is a retransmission (Linux `tcp_enter_quickack_mode`): the sender's window may be very small.
const ECN_QUICK_ACKS: u8 = 2;

/// SACK ranges that fit beside timestamps (12 bytes) and an 8-byte data ACK (12) in 40 bytes of options.
const MULTIPATH_SACK_RANGES: u8 = 1;

impl RxConn {
    /// The far end of `tx`.
    pub(crate) fn new(config: &TcpConfig, tx: &Conn, read_rate_bps: Option<u64>, host: u32) -> RxConn {
        let mss_bytes = tx.mss_bytes;
        let gap_ps = u64::from(mss_bytes) * 8 * 1_000_000_000_000;
        RxConn {
            data: Arrivals::default(),
            read: 0,
            window: Window::new(config, mss_bytes),
            mss_bytes,
            header_bytes: tx.header_bytes,
            ack_bytes: config.ack_bytes,
            class: tx.class,
            config: tx.config,
            end: u32::MAX,
            read_gap: Span::from_ps(read_rate_bps.map_or(0, |rate| (gap_ps / rate.max(1)).max(1))),
            read_timer: Timer::new(),
            multipath: tx.multipath,
            sack_ranges: if tx.multipath {
                config.sack_ranges.min(MULTIPATH_SACK_RANGES)
            } else {
                config.sack_ranges
            },
            ack_ways: None,
            message: 0,
            messages: 0,
            completed: Time::NEVER,
            delivered_bytes: 0,
            delivered_at: Time::NEVER,
            stalled: Span::ZERO,
            stop: if matches!(tx.app, App::Bulk) { tx.stop } else { Time::NEVER },
            in_subflows: 0,
            most_held: 0,
            short: Vec::new(),
            host,
            first: 0,
            count: tx.count,
            tells: None,
        }
    }

    /// Segments delivered in order.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        self.data.next()
    }

    /// The application could have more at `now`.
    #[inline]
    fn progress(&mut self, now: Time) {
        if now.since(self.delivered_at) > self.stalled {
            self.stall(now);
        }
        self.delivered_at = now;
    }

    /// Never before the first: the beginning is never earlier. What was written last may arrive after the end.
    #[cold]
    fn stall(&mut self, now: Time) {
        self.stalled = self.stalled.max(now.min(self.stop).since(self.delivered_at));
    }

    /// Notes the most segments that have waited for earlier ones.
    #[inline]
    fn note_held(&mut self) {
        self.most_held = self.most_held.max(self.in_subflows + self.data.held());
    }

    /// Counts what `segment`, new and not simply the next one, has brought in order since `before`.
    fn count_in_order(&mut self, segment: Held, before: u32) {
        if segment.len_bytes < self.mss_bytes {
            self.short.push((segment.data_seq, self.mss_bytes - segment.len_bytes));
        }
        let next = self.data.next();
        let mut missing_bytes = 0;
        self.short.retain(|&(seq, missing)| {
            missing_bytes += if seq < next { u64::from(missing) } else { 0 };
            seq >= next
        });
        self.delivered_bytes += u64::from(next - before) * u64::from(self.mss_bytes) - missing_bytes;
    }

    /// The window as a mirror connection's sender starts with it, in segments.
    pub(crate) fn initial_window(&self) -> u32 {
        self.window.first()
    }

    /// Segments that take room in the receive buffer: not read, or out of order here or on the only subflow.
    #[inline]
    fn held(&self, sub: &RxSubflow) -> u32 {
        let own = self.data.next() - self.read + self.data.held();
        if self.multipath { own } else { own + sub.arrivals.held() }
    }
}

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
        let segment = Held {
            data_seq: packet.data_seq,
            len_bytes: packet.size_bytes - self.conn.header_bytes,
            last: packet.has(Packet::DATA_FIN),
        };
        self.sub.counters.packets += 1;
        if let Some(ways) = &mut self.conn.ack_ways {
            ways.on_data((self.sub_index - self.conn.first) as usize, packet.echo, self.now);
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
            Ecn::Off => false,
            Ecn::Classic => {
                sub.echo_ce &= !reduced;
                if ce && !sub.echo_ce || !packet.has(Packet::ECT) {
                    sub.quick = sub.quick.max(ECN_QUICK_ACKS);
                }
                sub.echo_ce |= ce;
                reduced
            }
            Ecn::Accurate => {
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
    fn deliver(&mut self, segment: Held, echo: Time) -> bool {
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
        if conn.read_gap == Span::ZERO {
            conn.read = conn.data.next();
        } else if !conn.read_timer.is_armed() {
            self.read_slowly();
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
    fn deliver_late(&mut self, segment: Held, echo: Time) {
        self.deliver(segment, echo);
    }

    #[cold]
    fn out_of_order(&mut self, seq: u32, segment: Held, echo: Time) {
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
        let route = match &mut self.conn.ack_ways {
            Some(ways) if !std::mem::take(&mut self.sub.repeated) => {
                ways.choose((self.sub_index - self.conn.first) as usize, self.now)
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
        if sub.ecn == Ecn::Accurate {
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
        if conn.read < conn.data.next() {
            conn.read += 1;
            let at = self.now + conn.read_gap;
            self.wire.arm(&mut conn.read_timer, Purpose::Read.id(self.conn_index), at);
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

impl RxSubflow {
    /// Segment `seq` has come again (Linux `tcp_dsack_set`): the range that holds it, if it is out of order, comes second.
    fn repeated(&mut self, seq: u32) {
        let store = self.out_of_order.get_or_insert_default();
        store.duplicate = Some(seq);
        let next = self.arrivals.next();
        if seq > next {
            store.report(self.arrivals.run_around(seq), next);
        }
    }

    /// Asks for the cache lines that a data packet touches.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_index(slice::from_ref(&self.arrivals), 0);
        prefetch_index(slice::from_ref(&self.counters), 0);
    }

    /// The delayed-ACK timer, for the shard's dispatch.
    pub(crate) fn timer(&mut self) -> &mut Timer {
        &mut self.timer
    }
}

impl RxConn {
    /// Asks for the cache lines that a data packet touches.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_index(slice::from_ref(&self.data), 0);
        prefetch_index(slice::from_ref(&self.read_gap), 0);
    }

    /// The reader's timer, for the shard's dispatch.
    pub(crate) fn timer(&mut self) -> &mut Timer {
        &mut self.read_timer
    }
}

impl OutOfOrder {
    /// What the next ACK reports.
    fn ranges(&mut self) -> Sack {
        let Some(seq) = self.duplicate.take() else { return self.recent };
        let [first, second, third, _] = self.recent.ranges;
        Sack { ranges: [SackRange { start: seq, end: seq + 1 }, first, second, third] }
    }

    fn get(&self, seq: u32) -> Held {
        self.held[seq as usize & (self.held.len() - 1)]
    }

    /// Keeps segment `seq`, which lies above `next`.
    fn hold(&mut self, seq: u32, segment: Held, next: u32) {
        let need = (seq - next) as usize + 1;
        if need > self.held.len() {
            let mut bigger = vec![Held::default(); need.next_power_of_two().max(32)].into_boxed_slice();
            let mask = bigger.len() - 1;
            for seq in next..next + self.held.len() as u32 {
                bigger[seq as usize & mask] = self.get(seq);
            }
            self.held = bigger;
        }
        let mask = self.held.len() - 1;
        self.held[seq as usize & mask] = segment;
    }

    /// The run around `seq`, by the ranges reported so far if they know it.
    fn run(&self, seq: u32, arrivals: &Arrivals) -> (u32, u32) {
        match self.recent.ranges.iter().find(|r| r.end == seq && r.end > r.start) {
            Some(r) if !arrivals.has(seq + 1) => (r.start, seq + 1),
            _ => arrivals.run_around(seq),
        }
    }

    /// Puts the run `start..end` first and drops the ranges it has swallowed (RFC 2018 section 4).
    fn report(&mut self, (start, end): (u32, u32), next: u32) {
        let old = self.recent.ranges;
        let mut fresh = Sack::EMPTY;
        fresh.ranges[0] = SackRange { start, end };
        let kept =
            old.iter().filter(|r| r.end > r.start && r.start >= next && (r.end < start || r.start > end));
        for (slot, range) in fresh.ranges.iter_mut().skip(1).zip(kept) {
            *slot = *range;
        }
        self.recent = fresh;
    }

    fn drop_below(&mut self, next: u32) {
        let old = self.recent.ranges;
        self.recent = Sack::EMPTY;
        let kept = old.iter().filter(|r| r.start >= next && r.end > r.start);
        for (slot, range) in self.recent.ranges.iter_mut().zip(kept) {
            *slot = *range;
        }
    }
}
