//! Recoveries that were in vain: Linux's `tcp_try_undo_recovery`, `_partial`, `_dsack` and `_loss`.

use super::Tx;
use crate::endpoint::Wire;
use crate::tcp::scoreboard::Delivery;
use vmcc_cc::State;

impl<W: Wire> Tx<'_, W> {
    /// True if the ACK shows, before loss detection, that the recovery was spurious and that there is no loss to detect.
    pub(super) fn was_in_vain(&mut self, r: usize, advanced: bool, got: &Delivery) -> bool {
        match self.subs[r].state {
            State::Recovery => self.undo_part(r, advanced, got),
            State::Loss => self.undo_timeout(r, advanced, got),
            State::Open | State::Disorder => {
                self.undo_duplicates(r);
                false
            }
            State::Cwr => false,
        }
    }

    /// All that was in flight has been acknowledged.
    pub(super) fn undo_recovered(&mut self, r: usize, got: &Delivery) -> bool {
        let undo = &self.subs[r].undo;
        let in_vain = undo.all_duplicates() || undo.is_delayed(got.echo);
        if in_vain {
            self.take_back(r, false);
            self.subs[r].counters.undone += 1;
        } else {
            self.subs[r].adaptation.recovered();
        }
        in_vain
    }

    /// Part of it has; a retransmission that is under way is waited for before anything more is declared lost or sent again.
    fn undo_part(&mut self, r: usize, advanced: bool, got: &Delivery) -> bool {
        let sf = &mut self.subs[r];
        if advanced && sf.undo.is_delayed(got.echo) {
            // What fills the gap is late, though it was sent again.
            sf.note_reordering(got.prior_una);
            if sf.board.again_out() > 0 {
                sf.hold_lost = true;
                return true;
            }
            if !sf.board.any_again() {
                sf.undo.forget_retransmissions();
            }
            sf.counters.undone += 1;
            self.take_back(r, true);
            self.keep_open(r);
        } else if self.undo_duplicates(r) {
            self.keep_open(r);
        }
        false
    }

    /// Every retransmission was a duplicate.
    fn undo_duplicates(&mut self, r: usize) -> bool {
        let in_vain = self.subs[r].undo.all_duplicates();
        if in_vain {
            self.subs[r].adaptation.undone();
            self.subs[r].counters.undone += 1;
            self.take_back(r, false);
        }
        in_vain
    }

    /// After a timeout (`tcp_process_loss`).
    fn undo_timeout(&mut self, r: usize, advanced: bool, got: &Delivery) -> bool {
        let sf = &mut self.subs[r];
        if advanced && (sf.undo.all_duplicates() || sf.undo.is_delayed(got.echo)) {
            sf.frto = false;
            sf.counters.spurious_timeouts += 1;
            self.take_back(r, true);
            self.set_state(r, State::Open);
        } else if self.is_spurious_timeout(r, advanced, got) {
            return true;
        } else if self.subs[r].board.una() >= self.subs[r].high_seq {
            self.undo_recovered(r, got);
            let sf = &mut self.subs[r];
            sf.frto = false;
            sf.board.shrink();
            self.set_state(r, State::Open);
        }
        false
    }

    /// The window of before comes back; `unmark`: nothing was lost at all (`tcp_undo_cwnd_reduction`).
    pub(super) fn take_back(&mut self, r: usize, unmark: bool) {
        let sf = &mut self.subs[r];
        if unmark {
            sf.board.clear_lost();
        }
        if let Some((cwnd, ssthresh)) = sf.undo.take() {
            sf.cwnd = sf.cwnd.max(cwnd);
            if ssthresh > sf.ssthresh {
                sf.ssthresh = ssthresh;
                sf.cwr_pending = false;
            }
        }
        // What is late is looked at once more.
        sf.rack.advanced = true;
        self.publish(r);
    }
}
