//! The subflow's one timer: retransmission, tail loss probe, reordering, zero window, handshake.

use super::{TAG_PROBE, Tx};
use crate::endpoint::Wire;
use crate::packet::Packet;
use crate::tcp::record::Closing;
use crate::tcp::scoreboard::Delivery;
use crate::tcp::subflow::{Alarm, Status, Subflow};
use crate::tcp::timers::Purpose;
use crate::time::{Span, Time};
use vmcc_cc::State;

/// The least time before a zero-window probe (Linux `TCP_RTO_MIN` in `tcp_probe0_base`).
const PROBE_MIN: Span = Span::from_ms(200);

impl<W: Wire> Tx<'_, W> {
    #[inline]
    fn set_alarm(&mut self, r: usize, alarm: Alarm, at: Time) {
        let id = Purpose::Subflow.id(self.index(r));
        let sf = &mut self.subs[r];
        sf.alarm = alarm;
        self.wire.arm(&mut sf.timer, id, at);
    }

    /// Retransmission timer or tail loss probe, whichever Linux would arm (`tcp_set_xmit_timer`).
    /// `advanced`: an ACK moved the window, so the timeout counts from now.
    #[inline]
    pub(super) fn schedule(&mut self, r: usize, advanced: bool) {
        let sf = &mut self.subs[r];
        if sf.alarm == Alarm::Window {
            // The window has opened (`tcp_ack_probe`): probes that were lost before tell nothing of the data.
            sf.rtt.backoff = 0;
            sf.retries = 0;
        }
        let out = sf.board.out();
        if out == 0 {
            sf.timer.cancel();
            return;
        }
        let rto = sf.rto(self.config);
        let probes = self.config.tlp && sf.probe_high == 0 && matches!(sf.state, State::Open | State::Cwr);
        let base = if advanced || out == 1 { self.now } else { sf.board.segment(sf.board.una()).sent };
        let timeout = (base + rto).max(self.now);
        if probes && sf.rtt.srtt_8us != 0 {
            let extra = if out == 1 { self.config.rto_min } else { self.config.timer_slack };
            let probe = self.now + sf.rtt.srtt().times(2) + extra;
            self.set_alarm(r, Alarm::Probe, probe.min(timeout));
        } else if advanced || !sf.timer.is_armed() || sf.alarm == Alarm::Probe {
            self.set_alarm(r, Alarm::Retransmit, timeout);
        }
    }

    /// A retransmission timeout from now.
    pub(super) fn restart_rto(&mut self, r: usize) {
        let at = self.now + self.subs[r].rto(self.config);
        self.set_alarm(r, Alarm::Retransmit, at);
    }

    pub(super) fn arm_reorder(&mut self, r: usize, wait: Span) {
        self.subs[r].rearm = false;
        let at = self.now + wait + self.config.timer_slack;
        self.set_alarm(r, Alarm::Reorder, at);
    }

    /// The subflow's timer expired.
    pub(crate) fn on_alarm(&mut self, r: usize) {
        if self.subs[r].status == Status::Closed || self.conn.finished {
            return;
        }
        match self.subs[r].alarm {
            Alarm::Handshake => self.on_handshake_alarm(r),
            Alarm::Window => self.on_window_alarm(r),
            _ if self.subs[r].board.out() == 0 => {}
            Alarm::Retransmit => self.on_timeout(r),
            Alarm::Probe => self.on_probe(r),
            Alarm::Reorder => self.on_reorder(r),
        }
    }

    fn on_timeout(&mut self, r: usize) {
        if self.subs[r].retries >= self.config.max_retries {
            self.close_subflow(r, Closing::Timeout);
            self.push(None);
            return;
        }
        self.subs[r].counters.timeouts += 1;
        self.enter_loss(r);
        let sf = &mut self.subs[r];
        sf.retries += 1;
        sf.rtt.backoff = (sf.rtt.backoff + 1).min(16);
        sf.failed = true;
        self.reinject_from(r);
        self.push(Some(r));
        self.restart_rto(r);
    }

    /// Tail loss probe (RFC 8985 section 7.3): new data if there is some, else the last segment again.
    fn on_probe(&mut self, r: usize) {
        if self.subs[r].probe_high == 0 {
            self.subs[r].counters.probes += 1;
            if self.conn.sendable() > 0 && !self.conn.grouped {
                let seq = self.conn.nxt;
                self.conn.nxt += 1;
                self.transmit_one(r, seq);
                self.subs[r].probe_repeats = false;
            } else if let Some(seq) = self.subs[r].board.highest_unsacked() {
                self.retransmit(r, seq);
                self.subs[r].probe_repeats = true;
            }
            self.subs[r].probe_high = self.subs[r].board.nxt();
        }
        self.restart_rto(r);
    }

    /// RACK's reordering window has closed (RFC 8985 section 6.3).
    fn on_reorder(&mut self, r: usize) {
        self.subs[r].rack.advanced = true;
        let before = self.subs[r].board.in_flight();
        self.detect(r, &Delivery::default());
        if self.subs[r].board.in_flight() != before {
            if self.subs[r].state != State::Recovery {
                self.enter_recovery(r, false);
                self.reduce(r, 1, false);
            }
            self.push(Some(r));
        }
        if self.subs[r].alarm != Alarm::Reorder || !self.subs[r].timer.is_armed() {
            self.restart_rto(r);
        }
    }

    /// Data waits for the receive window and nothing is in flight that would bring news of it (`tcp_check_probe_timer`;
    /// RFC 9293 section 3.8.6.1). `acked`: the subflow on which an ACK has come and left the window shut, so that the next
    /// probe is counted from now (`tcp_ack_probe`).
    pub(super) fn watch_window(&mut self, acked: Option<usize>) {
        let idle = |s: &Subflow| s.status == Status::Established && s.board.out() == 0;
        let answers = |s: &Subflow| s.status == Status::Established && s.board.out() > 0 && !s.failed;
        if self.subs.iter().any(answers) {
            return;
        }
        let best = (0..self.subs.len())
            .filter(|&r| idle(&self.subs[r]))
            .min_by_key(|&r| (self.subs[r].has_unanswered_probe(), self.subs[r].rtt.srtt_8us, r));
        let Some(r) = best else { return };
        let sf = &self.subs[r];
        if acked == Some(r) || sf.alarm != Alarm::Window || !sf.timer.is_armed() {
            self.await_window(r);
        }
    }

    /// The time of the next probe (`tcp_probe0_when`).
    fn await_window(&mut self, r: usize) {
        let sf = &self.subs[r];
        let least = PROBE_MIN.times(1 << sf.rtt.backoff.min(16));
        let wait = sf.rto(self.config).max(least).min(self.config.rto_max);
        self.set_alarm(r, Alarm::Window, self.now + wait);
    }

    /// The window has been shut for so long that it is asked for (`tcp_send_probe0`).
    fn on_window_alarm(&mut self, r: usize) {
        if self.conn.end <= self.conn.nxt || self.subs[r].board.out() > 0 {
            return;
        }
        if self.conn.sendable() > 0 {
            self.push(Some(r));
            return;
        }
        let sf = &mut self.subs[r];
        if sf.retries >= self.config.max_retries {
            self.close_subflow(r, Closing::Timeout);
            self.push(None);
            return;
        }
        sf.retries += 1;
        sf.rtt.backoff = (sf.rtt.backoff + 1).min(16);
        self.send_control(r, Packet::DATA, TAG_PROBE);
        self.await_window(r);
        if self.subs[r].has_unanswered_probe() {
            // Another subflow asks, too.
            self.watch_window(None);
        }
    }

    fn on_handshake_alarm(&mut self, r: usize) {
        match self.subs[r].status {
            Status::Idle => self.send_syn(r),
            Status::SynSent
                if self.subs[r].syn_retries >= self.config.syn_linear + self.config.syn_retries =>
            {
                self.close_subflow(r, Closing::Timeout);
            }
            Status::SynSent => {
                self.subs[r].syn_retries += 1;
                self.subs[r].counters.timeouts += 1;
                self.send_syn(r);
            }
            Status::Joining => self.establish(r),
            Status::Established | Status::Closed => {}
        }
    }

    fn send_syn(&mut self, r: usize) {
        let join = if self.joins(r) { Packet::JOIN } else { 0 };
        self.subs[r].status = Status::SynSent;
        self.send_control(r, Packet::SYN | join, 0);
        let at = self.now + self.config.syn_wait(self.subs[r].syn_retries);
        self.set_alarm(r, Alarm::Handshake, at);
    }

    /// Starts subflow `r` after `delay`.
    pub(super) fn open_subflow(&mut self, r: usize, delay: Span) {
        if delay == Span::ZERO {
            self.send_syn(r);
        } else {
            self.set_alarm(r, Alarm::Handshake, self.now + delay);
        }
    }

    /// Lets the join's last messages pass.
    pub(super) fn wait_for_join(&mut self, r: usize, wait: Span) {
        self.subs[r].status = Status::Joining;
        self.set_alarm(r, Alarm::Handshake, self.now + wait);
    }
}
