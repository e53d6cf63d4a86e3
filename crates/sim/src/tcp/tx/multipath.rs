//! Connection life, and what subflows do for each other: joins, reinjection, relief of a full window.

use super::{TAG_HANDSHAKE, Tx};
use crate::endpoint::Wire;
use crate::packet::Packet;
use crate::tcp::config::EcnMode;
use crate::tcp::limits::Limit;
use crate::tcp::record::Closing;
use crate::tcp::subflow::Status;
use crate::time::{Span, Time};
use vmcc_cc::{Algorithm, State};
use vmcc_multipath::{PathView, Scheduler};

impl<W: Wire> Tx<'_, W> {
    /// The connection's start: the first SYN leaves.
    pub(crate) fn open(&mut self) {
        self.conn.started = true;
        self.open_subflow(0, Span::ZERO);
    }

    /// A mirror connection needs no handshake of its own: its twin's has been.
    pub(crate) fn open_established(&mut self) {
        self.conn.started = true;
        self.conn.established_at = self.now;
        self.conn.joins_begun = true;
        for sf in self.subs.iter_mut() {
            sf.status = Status::Joining;
        }
        for r in 0..self.subs.len() {
            self.establish(r);
        }
    }

    pub(super) fn on_syn_ack(&mut self, r: usize, packet: &Packet) {
        if self.subs[r].status != Status::SynSent {
            return;
        }
        self.conn.acknowledge(packet.data_ack, packet.window);
        let rtt = self.now.since(packet.echo);
        let sf = &mut self.subs[r];
        sf.timer.cancel();
        sf.echo = packet.sent;
        sf.rtt.sample_min(self.now, rtt);
        sf.rtt.sample(rtt, sf.board.una(), sf.board.nxt(), self.config.rto_min);
        let joins = self.joins(r);
        let join = if joins { Packet::JOIN } else { 0 };
        self.send_control(r, Packet::DATA | join, TAG_HANDSHAKE);
        let wait = Span::from_ps(rtt.ps() / 2 * u64::from(self.config.join_half_rtts));
        if !joins || wait == Span::ZERO {
            self.establish(r);
        } else {
            self.wait_for_join(r, wait);
        }
    }

    /// Subflow `r` may carry data from now on.
    pub(super) fn establish(&mut self, r: usize) {
        let sf = &mut self.subs[r];
        sf.board.allocate();
        sf.status = Status::Established;
        sf.opened = true;
        sf.ecn_accurate = self.cc.needs_ecn || self.config.ecn == EcnMode::Accurate;
        sf.ecn = sf.ecn_accurate || self.config.ecn == EcnMode::Classic;
        sf.last_sent = self.now;
        sf.place = if self.conn.selector.scheduler == Scheduler::Redundant { self.conn.una } else { 0 };
        let event = self.event(r, false);
        self.ask(r, Algorithm::init, &event);
        if self.conn.grouped && self.conn.sharing.is_none() && self.cc.algorithm.info().detects {
            self.conn.sharing = Some(Box::default());
        }
        if r == 0 {
            if self.conn.established_at == Time::NEVER {
                self.conn.established_at = self.now;
            }
            self.on_connected();
        }
        self.push(Some(r));
    }

    /// Asks for further subflows, but those that the pool knows to share a bottleneck, once the other end has sent an ACK besides
    /// the handshake's: only then does the opener know that it has the key (RFC 8684 section 3.1), and Linux's path manager
    /// begins (`check_fully_established`). Servers have theirs from the first request on (`open_established`).
    pub(super) fn join_others(&mut self) {
        if self.conn.joins_begun {
            return;
        }
        self.conn.joins_begun = true;
        for other in 1..self.subs.len() {
            let shares = self.kept_by_pool(other).is_some_and(|kept| self.subs[kept].is_established());
            if self.subs[other].status == Status::Idle && !shares {
                let delay = self.subs[other].join_delay;
                self.open_subflow(other, delay);
            }
        }
    }

    /// Segment `data_seq`, which another subflow has not delivered, goes out on subflow `r`.
    pub(super) fn count_reinjected(&mut self, r: usize, data_seq: u32) {
        let bytes = u64::from(self.conn.len_of(data_seq));
        let counters = &mut self.subs[r].counters;
        counters.reinjected += 1;
        counters.reinjected_bytes += bytes;
    }

    /// Queues what subflow `r` has in flight for the others.
    pub(super) fn reinject_from(&mut self, r: usize) {
        if !self.conn.grouped || self.conn.selector.scheduler == Scheduler::Redundant {
            return;
        }
        self.conn.queue_reinjection(self.subs[r].board.data_seqs());
    }

    /// Subflow `r` carries nothing any more; what it had in flight goes to the others.
    pub(crate) fn close_subflow(&mut self, r: usize, why: Closing) {
        self.reinject_from(r);
        let sf = &mut self.subs[r];
        sf.status = Status::Closed;
        sf.closed = Some(why);
        sf.history.get_or_insert_default().closed_at = Some(self.now);
        sf.timer.cancel();
        sf.pace_timer.cancel();
        sf.paced_out = false;
        sf.board.release();
        self.publish(r);
        self.conn.selector.refresh(r, &self.subs[r]);
        if self.conn.selector.only == Some(r as u8) {
            self.conn.selector.only = None;
        }
        if self.conn.selector.scheduler == Scheduler::Redundant {
            // Its copies may have been the only ones: the others walk the stream again from the start.
            for sf in self.subs.iter_mut() {
                sf.place = self.conn.una;
            }
        }
    }

    /// All data is acknowledged.
    pub(crate) fn finish(&mut self) {
        self.conn.acknowledged_at = self.now;
        self.conn.enter_limit(Limit::Idle, self.now);
        self.conn.release();
        for r in 0..self.subs.len() {
            let sf = &mut self.subs[r];
            sf.timer.cancel();
            sf.pace_timer.cancel();
            sf.board.release();
        }
    }

    /// The receive window is full although a subflow has room: the subflow that holds the oldest segment is
    /// slowed down, and the segment is sent again where it arrives sooner (opportunistic retransmission
    /// and penalization; C. Raiciu et al., NSDI 2012, section 4.2, in the form of the out-of-tree kernel).
    pub(super) fn relieve_window(&mut self, touched: &mut u32) {
        let head = self.conn.una;
        if self.conn.nxt == head {
            return;
        }
        let now_us = self.now.us();
        let carriers = self.conn.carriers(head);
        let Some(fast) = self.conn.select(self.subs, carriers, now_us) else { return };
        self.penalize(fast, carriers);
        if carriers & 1 << fast != 0 || !self.helps(fast, carriers) {
            return;
        }
        *touched |= 1 << fast;
        self.conn.selector.note_blocked();
        self.count_reinjected(fast, head);
        self.conn.carry(head, fast, false);
        self.transmit_one(fast, head);
    }

    /// Halves the window of slower subflows that hold the oldest segment, each once per round trip of its own
    /// (NSDI 2012, section 4.2; later versions of the kernel counted those of `fast`).
    fn penalize(&mut self, fast: usize, carriers: u32) {
        let srtt_8us = self.subs[fast].rtt.srtt_8us;
        for r in 0..self.subs.len() {
            let sf = &mut self.subs[r];
            if r == fast || carriers & 1 << r == 0 || sf.rtt.srtt_8us <= srtt_8us || sf.state != State::Open {
                continue;
            }
            let history = sf.history.get_or_insert_default();
            if self.now.since(history.last_penalty) <= sf.rtt.srtt() {
                continue;
            }
            history.last_penalty = self.now;
            let slow_start = sf.in_slow_start();
            sf.cwnd = (sf.cwnd / 2).max(1);
            if !slow_start {
                sf.ssthresh = (sf.ssthresh / 2).max(2);
            }
            self.publish(r);
        }
    }

    /// True if the oldest segment would arrive sooner on `fast` than on the subflows that carry it.
    fn helps(&self, fast: usize, carriers: u32) -> bool {
        let limit = 4 * u64::from(self.subs[fast].rtt.srtt_8us);
        let holders = (0..self.subs.len()).filter(|&r| r != fast && carriers & 1 << r != 0);
        let mut any = false;
        for r in holders {
            if self.subs[r].cwnd <= 4 {
                return true;
            }
            if limit >= u64::from(self.subs[r].rtt.srtt_8us) {
                return false;
            }
            any = true;
        }
        any
    }
}
