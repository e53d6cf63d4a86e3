//! Recovery states: Linux's `tcp_fastretrans_alert`, `tcp_enter_cwr`, `tcp_enter_recovery`, `tcp_enter_loss`.

use super::Tx;
use crate::endpoint::Wire;
use crate::tcp::config::LossDetection;
use crate::tcp::scoreboard::Delivery;
use crate::time::Span;
use crate::transport::MAX_REDUCTIONS;
use vmcc_cc::{Algorithm, Cause, SSTHRESH_INFINITE, State};
use vmcc_multipath::Prr;

impl<W: Wire> Tx<'_, W> {
    /// An ACK that needs thought: marks, ECE, or a state that is not open. Returns whether it revealed a
    /// loss.
    pub(super) fn react(&mut self, r: usize, advanced: bool, got: &Delivery, ece: bool) -> bool {
        if self.subs[r].probe_high != 0 {
            self.on_probe_answer(r, advanced, got);
        }
        if self.subs[r].state == State::Open {
            self.subs[r].undo.forget_retransmissions();
        }
        self.leave(r, got);
        if self.was_in_vain(r, advanced, got) {
            return false;
        }
        let state = self.subs[r].state;
        let again = self.subs[r].board.again_out();
        let lost = self.detect(r, got);
        if state == State::Loss && self.subs[r].board.again_out() < again {
            // A retransmission was lost: a new reduction, gradual from here (Linux `FLAG_LOST_RETRANS`).
            self.subs[r].frto = false;
            self.enter_recovery(r, ece);
        } else if matches!(state, State::Open | State::Disorder | State::Cwr) {
            if self.subs[r].board.lost_out() > 0 {
                self.enter_recovery(r, ece);
            } else if ece && state != State::Cwr {
                self.subs[r].undo.clear();
                self.reduce_for(r, Cause::Ece);
                self.subs[r].counters.ecn_cuts += 1;
                self.set_state(r, State::Cwr);
            } else if state != State::Cwr {
                self.keep_open(r);
            }
        }
        lost > 0
    }

    /// Ends a state whose window of data has been acknowledged.
    fn leave(&mut self, r: usize, got: &Delivery) {
        let sf = &mut self.subs[r];
        let una = sf.board.una();
        match sf.state {
            State::Cwr if una > sf.high_seq => self.end_reduction(r),
            State::Recovery if una >= sf.high_seq => {
                if self.undo_recovered(r, got) {
                    self.subs[r].board.shrink();
                    self.set_state(r, State::Open);
                } else {
                    self.end_reduction(r);
                }
            }
            _ => {}
        }
    }

    fn end_reduction(&mut self, r: usize) {
        let sf = &mut self.subs[r];
        // `tcp_end_cwnd_reduction`: at ssthresh even where a timeout has left the window below it.
        if sf.ssthresh < SSTHRESH_INFINITE {
            sf.cwnd = sf.ssthresh.max(1);
        }
        if sf.state == State::Recovery {
            sf.board.shrink();
        }
        self.set_state(r, State::Open);
    }

    pub(super) fn keep_open(&mut self, r: usize) {
        let board = &self.subs[r].board;
        let disorder = board.sacked_out() + board.lost_out() + board.again_out() > 0;
        self.set_state(r, if disorder { State::Disorder } else { State::Open });
    }

    pub(super) fn set_state(&mut self, r: usize, state: State) {
        if self.subs[r].state != state {
            self.subs[r].state = state;
            let event = self.event(r, false);
            self.ask(r, Algorithm::on_state, &event);
        }
    }

    /// Asks for the new ssthresh and begins a gradual reduction towards it.
    pub(super) fn reduce_for(&mut self, r: usize, cause: Cause) {
        let mut event = self.event(r, cause == Cause::Ece);
        event.cause = cause;
        let board = &self.subs[r].board;
        event.in_flight_pkt = board.out();
        self.ask(r, Algorithm::on_congestion, &event);
        let sf = &mut self.subs[r];
        let reduced_at = &mut sf.history.get_or_insert_default().reduced_at;
        if reduced_at.len() < MAX_REDUCTIONS {
            reduced_at.push(self.now);
        }
        sf.high_seq = sf.board.nxt();
        sf.probe_high = 0;
        sf.cwr_pending = true;
        sf.prr = Prr::start(sf.cwnd);
    }

    pub(super) fn enter_recovery(&mut self, r: usize, ece: bool) {
        let sf = &mut self.subs[r];
        let restorable = sf.state != State::Cwr && !ece;
        let before = restorable.then(|| (sf.cwnd, sf.current_ssthresh()));
        sf.undo.begin(sf.board.una(), sf.board.again_out(), before);
        if self.subs[r].state != State::Cwr {
            self.reduce_for(r, if ece { Cause::Ece } else { Cause::Loss });
        }
        self.subs[r].counters.recoveries += 1;
        self.set_state(r, State::Recovery);
    }

    /// One step of PRR.
    pub(super) fn reduce(&mut self, r: usize, delivered: u32, safe: bool) {
        if delivered == 0 {
            return;
        }
        let sf = &mut self.subs[r];
        let pipe = sf.board.in_flight();
        let send = sf.prr.on_ack(pipe, sf.ssthresh.max(1), delivered, safe);
        sf.cwnd = (pipe + send).max(1);
        self.publish(r);
    }

    /// The retransmission timer expired: everything is lost but what is SACKed or, by RACK, was sent too recently (Linux
    /// `tcp_enter_loss` and `tcp_timeout_mark_lost`, whose `tcp_rack_skb_timeout` has no reordering window here).
    pub(super) fn enter_loss(&mut self, r: usize) {
        let sf = &self.subs[r];
        let fresh = !matches!(sf.state, State::Recovery | State::Loss);
        let repeated = sf.retries > 0;
        let una_past = sf.board.una() >= sf.high_seq;
        if matches!(sf.state, State::Open | State::Disorder)
            || una_past
            || (sf.state == State::Loss && !repeated)
        {
            let before = Some((sf.cwnd, sf.current_ssthresh()));
            let (una, again_out) = (sf.board.una(), sf.board.again_out());
            self.subs[r].undo.begin(una, again_out, before);
            let mut event = self.event(r, false);
            event.cause = Cause::Rto;
            event.in_flight_pkt = self.subs[r].board.out();
            self.ask(r, Algorithm::on_congestion, &event);
        }
        let sf = &mut self.subs[r];
        let recent = match self.config.loss_detection {
            LossDetection::Rack => sf.rack.rtt,
            LossDetection::Rfc6675 => Span::ZERO,
        };
        sf.board.mark_timed_out(self.now, recent);
        sf.cwnd = sf.board.in_flight() + 1;
        sf.cwnd_limited = true;
        sf.dupthresh = sf.dupthresh.min(3);
        sf.high_seq = sf.board.nxt();
        sf.probe_high = 0;
        sf.cwr_pending = true;
        sf.frto = fresh || repeated;
        self.set_state(r, State::Loss);
    }

    /// F-RTO (RFC 5682 section 3.1): an original transmission was delivered, so nothing was lost.
    pub(super) fn is_spurious_timeout(&mut self, r: usize, advanced: bool, got: &Delivery) -> bool {
        let sf = &mut self.subs[r];
        if !sf.frto {
            return false;
        }
        if got.original_seq < sf.high_seq {
            sf.frto = false;
            sf.counters.spurious_timeouts += 1;
            self.take_back(r, true);
            self.set_state(r, State::Open);
            return true;
        }
        if sf.board.nxt() > sf.high_seq {
            // Step 3a: new data was sent and a duplicate came back: the loss was real.
            sf.frto &= got.sacked == 0;
        } else if advanced {
            // Step 2b: send new data and watch; `push` prefers it while `frto` is set.
            sf.high_seq = sf.board.nxt();
            sf.frto = self.conn.sendable() > 0 && !self.conn.grouped;
            sf.hold_lost = sf.frto;
        }
        false
    }

    /// Answer to a tail loss probe (RFC 8985 section 7.4).
    fn on_probe_answer(&mut self, r: usize, advanced: bool, got: &Delivery) {
        let sf = &mut self.subs[r];
        if sf.board.una() < sf.probe_high {
            return;
        }
        if !sf.probe_repeats {
            sf.probe_high = 0;
        } else if sf.board.una() > sf.probe_high {
            // The probe repaired a loss that nothing else showed: react to it once.
            sf.probe_high = 0;
            if matches!(sf.state, State::Open | State::Disorder) {
                self.reduce_for(r, Cause::Loss);
                self.set_state(r, State::Cwr);
                self.end_reduction(r);
                self.keep_open(r);
            }
        } else if !advanced && got.sacked == 0 {
            sf.probe_high = 0;
        }
    }
}
