//! Putting segments on the wire.

use super::{Tx, in_use};
use crate::endpoint::Wire;
use crate::packet::Packet;
use crate::tcp::limits::Limit;
use crate::tcp::scoreboard::Segment;
use crate::tcp::subflow::{Status, Subflow};
use crate::tcp::timers::Purpose;
use crate::time::{Span, Time};
use vmcc_cc::State;
use vmcc_multipath::{PathView, Scheduler};

impl<W: Wire> Tx<'_, W> {
    /// Sends what windows and application allow. `acked`: the subflow whose state just changed.
    pub(crate) fn push(&mut self, acked: Option<usize>) {
        let mut touched = 0;
        if let Some(r) = acked
            && self.subs[r].status == Status::Established
        {
            touched |= 1 << r;
            let held = std::mem::take(&mut self.subs[r].hold_lost);
            if self.subs[r].board.lost_out() > 0 && !held {
                self.push_lost(r);
            }
            if self.conn.grouped {
                self.conn.selector.refresh(r, &self.subs[r]);
            }
        }
        if !self.conn.grouped {
            self.push_single(&mut touched);
        } else if self.conn.selector.scheduler == Scheduler::Redundant {
            self.push_redundant(&mut touched);
        } else {
            self.push_scheduled(&mut touched);
        }
        self.settle(touched, acked);
        if self.conn.sendable() > 0 {
            self.enter_limit(Limit::Congestion);
            return;
        }
        let limit = if self.has_room() { self.conn.limit_of_data() } else { Limit::Congestion };
        self.enter_limit(limit);
        if self.conn.end > self.conn.nxt {
            self.watch_window(acked);
        }
    }

    /// True if a subflow in use, or a backup where there is no other, could send more.
    fn has_room(&self) -> bool {
        let regular = self.subs.iter().any(in_use);
        let used = |s: &&Subflow| if regular { in_use(s) } else { s.is_established() };
        self.subs.iter().filter(used).any(|s| s.room_pkt() > 0 && !s.paced_out)
    }

    /// Accounts for the limit that ended a round of sending (`tcp_chrono_start`).
    #[inline]
    fn enter_limit(&mut self, limit: Limit) {
        if limit != self.conn.limit && self.conn.established_at != Time::NEVER {
            self.conn.enter_limit(limit, self.now);
        }
    }

    /// Retransmissions of subflow `r` within its window.
    fn push_lost(&mut self, r: usize) {
        while self.subs[r].room_pkt() > 0 && !self.subs[r].paced_out {
            let Some(seq) = self.subs[r].board.next_lost() else { break };
            self.retransmit(r, seq);
        }
    }

    fn push_single(&mut self, touched: &mut u32) {
        let sf = &self.subs[0];
        if sf.status != Status::Established {
            return;
        }
        let count = sf.room_pkt().min(self.conn.sendable());
        if count == 0 || sf.paced_out {
            return;
        }
        *touched |= 1;
        self.restart_if_idle(0);
        for _ in 0..count.min(self.subs[0].room_pkt()) {
            if self.subs[0].paced_out {
                break;
            }
            let seq = self.conn.nxt;
            self.conn.nxt += 1;
            self.transmit(0, seq);
        }
    }

    fn push_scheduled(&mut self, touched: &mut u32) {
        let now_us = self.now.us();
        loop {
            let again = self.conn.next_reinjection();
            if again.is_none() && self.conn.sendable() == 0 {
                break;
            }
            let carriers = again.map_or(0, |seq| self.conn.carriers(seq));
            let Some(r) = self.conn.select(self.subs, carriers, now_us) else { return };
            *touched |= 1 << r;
            self.restart_if_idle(r);
            match again {
                Some(seq) => {
                    self.conn.pop_reinjection();
                    // Already under way there, or nobody else can carry it.
                    if carriers & 1 << r == 0 {
                        self.count_reinjected(r, seq);
                        self.conn.carry(seq, r, false);
                        self.transmit_one(r, seq);
                        self.end_turn(r);
                    }
                }
                None => {
                    let seq = self.conn.nxt;
                    self.conn.carry(seq, r, true);
                    self.conn.nxt += 1;
                    self.transmit(r, seq);
                    self.end_turn(r);
                }
            }
        }
        if self.conn.end > self.conn.nxt {
            self.relieve_window(touched);
        }
    }

    #[inline(always)]
    fn end_turn(&mut self, r: usize) {
        let sf = &mut self.subs[r];
        let mut next = sf.place.into();
        self.conn.selector.on_sent(&mut next, 1);
        // A connection has fewer than 2^32 segments.
        sf.place = next as u32;
    }

    /// Every subflow walks the data stream on its own; what was acknowledged meanwhile is skipped.
    fn push_redundant(&mut self, touched: &mut u32) {
        let others = self.subs.iter().any(|s| s.status == Status::Established && !s.backup && !s.failed);
        for r in 0..self.subs.len() {
            let sf = &self.subs[r];
            if sf.status != Status::Established || (sf.backup && others) {
                continue;
            }
            while self.subs[r].room_pkt() > 0 && !self.subs[r].paced_out {
                let seq = self.subs[r].place.max(self.conn.una);
                if seq >= self.conn.limit() {
                    break;
                }
                *touched |= 1 << r;
                self.restart_if_idle(r);
                let first = seq == self.conn.nxt;
                self.conn.carry(seq, r, first);
                self.conn.nxt = self.conn.nxt.max(seq + 1);
                self.subs[r].place = seq + 1;
                self.transmit_one(r, seq);
            }
        }
    }

    /// After sending: congestion window validation and timers of the subflows that were touched.
    fn settle(&mut self, touched: u32, acked: Option<usize>) {
        let mut bits = touched;
        while bits != 0 {
            let r = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let sf = &mut self.subs[r];
            let limited = sf.room_pkt() == 0;
            let sent = sf.last_sent == self.now && sf.board.out() > 0;
            if sent || limited {
                sf.validate(limited);
            }
            let advanced = acked == Some(r) && std::mem::take(&mut sf.rearm);
            if advanced || sent {
                self.schedule(r, advanced);
            }
        }
    }

    #[inline(always)]
    fn restart_if_idle(&mut self, r: usize) {
        if self.subs[r].board.out() == 0 && self.config.restart_after_idle {
            self.restart(r);
        }
    }

    /// Nothing is in flight: perhaps since long.
    #[inline(never)]
    fn restart(&mut self, r: usize) {
        let sf = &mut self.subs[r];
        if sf.rtt.srtt_8us != 0 {
            let idle = self.now.since(sf.last_sent);
            let rto = sf.rto(self.config);
            if idle > rto {
                sf.restart_after(idle, rto, self.config.initial_cwnd_pkt);
                self.publish(r);
            }
        }
    }

    /// As [`Tx::transmit`], where that is not what the loop is about.
    #[inline(never)]
    pub(super) fn transmit_one(&mut self, r: usize, data_seq: u32) {
        self.transmit(r, data_seq);
    }

    /// A data segment's first transmission on subflow `r`.
    #[inline(always)]
    fn transmit(&mut self, r: usize, data_seq: u32) {
        let len_bytes = self.conn.len_of(data_seq);
        let sf = &mut self.subs[r];
        let seq = sf.board.push(Segment { sent: self.now, data_seq, len_bytes });
        let mut flags = Packet::DATA;
        if sf.ecn {
            flags |= Packet::ECT;
            // A packet that is not followed by one soon: the receiver shall not wait for it.
            if std::mem::take(&mut sf.cwr_pending) || sf.acks_each {
                flags |= Packet::CWR;
            }
        }
        self.emit(r, seq, data_seq, len_bytes, flags);
    }

    /// Sends segment `seq` of subflow `r` again.
    pub(super) fn retransmit(&mut self, r: usize, seq: u32) {
        let sf = &mut self.subs[r];
        let segment = sf.board.retransmit(seq, self.now);
        sf.counters.retransmits += 1;
        sf.undo.retransmitted(self.now);
        // RFC 3168 section 6.1.5: retransmissions are not ECN-capable; RFC 8257 keeps them so.
        let ect = if sf.ecn_accurate { Packet::ECT } else { 0 };
        let flags = Packet::DATA | Packet::RETRANSMIT | ect;
        self.emit(r, seq, segment.data_seq, segment.len_bytes, flags);
    }

    #[inline(always)]
    fn emit(&mut self, r: usize, seq: u32, data_seq: u32, len_bytes: u16, flags: u16) {
        let last = if self.conn.is_last(data_seq) { Packet::DATA_FIN } else { 0 };
        let sf = &mut self.subs[r];
        sf.last_sent = self.now;
        if sf.is_reducing() {
            sf.prr.out += 1;
        }
        self.wire.send(Packet {
            sent: self.now,
            echo: sf.echo,
            seq,
            data_seq,
            to: sf.to,
            route: sf.route,
            size_bytes: len_bytes + self.conn.header_bytes,
            flags: flags | last,
            class: self.conn.class,
            ..Packet::default()
        });
        if self.subs[r].gap != Span::ZERO {
            self.space(r);
        } else if self.config.pacing {
            self.pace(r);
        }
    }

    /// Linux's pacing rate: twice the window per round trip in slow start, 1.2 times it later.
    fn pace(&mut self, r: usize) {
        let index = self.index(r);
        let sf = &mut self.subs[r];
        if sf.rtt.srtt_8us == 0 {
            return;
        }
        let percent = if sf.cwnd < sf.ssthresh / 2 { 200 } else { 120 };
        let gap_ps = sf.rtt.srtt().ps() * 100 / (u64::from(sf.cwnd) * percent);
        sf.pace_until = sf.pace_until.max(self.now) + Span::from_ps(gap_ps);
        if sf.pace_until > self.now {
            sf.paced_out = true;
            self.wire.arm(&mut sf.pace_timer, Purpose::Pace.id(index), sf.pace_until);
        }
    }

    /// As the algorithm wants it.
    fn space(&mut self, r: usize) {
        let index = self.index(r);
        let sf = &mut self.subs[r];
        sf.pace_until = self.now + sf.gap;
        sf.paced_out = true;
        self.wire.arm(&mut sf.pace_timer, Purpose::Pace.id(index), sf.pace_until);
    }

    /// The next paced segment may go.
    pub(crate) fn on_pace(&mut self, r: usize) {
        self.subs[r].paced_out = false;
        self.push(Some(r));
    }

    /// A packet without data: SYN, handshake's last message, zero-window probe.
    pub(super) fn send_control(&mut self, r: usize, flags: u16, tag: u8) {
        let sf: &Subflow = &self.subs[r];
        let ect = if sf.ecn_accurate && sf.state == State::Open && tag != 0 { Packet::ECT } else { 0 };
        self.wire.send(Packet {
            sent: self.now,
            seq: sf.board.nxt(),
            data_seq: self.conn.nxt,
            to: sf.to,
            route: sf.route,
            size_bytes: self.config.ack_bytes,
            flags: flags | ect,
            class: self.conn.class,
            tag,
            ..Packet::default()
        });
    }
}
