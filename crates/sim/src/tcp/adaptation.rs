//! Adaptation of RACK's reordering window to duplicates (RFC 8985 section 6.2 step 4; Linux `tcp_rack_update_reo_wnd`).

use crate::time::Time;

/// The width of the window, and how long it keeps it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adaptation {
    /// Quarters of the minimum RTT.
    pub(crate) steps: u8,
    /// Recoveries after which it is one quarter again.
    persist: u8,
    /// A retransmission was reported as a duplicate since the last step.
    pub(crate) duplicate: bool,
    raised: Time,
}

/// Linux `TCP_RACK_RECOVERY_THRESH`.
const PERSISTENT_RECOVERIES: u8 = 16;

impl Default for Adaptation {
    fn default() -> Self {
        Adaptation { steps: 1, persist: 0, duplicate: false, raised: Time::ZERO }
    }
}

impl Adaptation {
    /// True if a step could change the window.
    #[inline]
    pub(crate) fn may_change(&self) -> bool {
        self.duplicate || self.steps > 1
    }

    /// An ACK has delivered what was sent at `sent`: one step a round trip.
    pub(crate) fn step(&mut self, now: Time, sent: Time) {
        let of_this_round = sent >= self.raised;
        if std::mem::take(&mut self.duplicate) && of_this_round {
            *self = Adaptation {
                steps: self.steps.saturating_add(1),
                persist: PERSISTENT_RECOVERIES,
                duplicate: false,
                raised: now,
            };
        } else if self.persist == 0 {
            self.steps = 1;
        }
    }

    /// A recovery has ended without being taken back.
    pub(crate) fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
    }

    /// A recovery has been taken back because of duplicates.
    pub(crate) fn undone(&mut self) {
        self.persist = (self.persist + 1).min(PERSISTENT_RECOVERIES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    #[test]
    fn reordering_window_grows_by_quarters_and_lasts_16_recoveries() {
        let at = |ms| Time::ZERO + Span::from_ms(ms);
        let mut adaptation = Adaptation::default();
        for (now, sent, steps) in [(20, 0, 2), (25, 10, 2), (40, 20, 3), (60, 45, 4)] {
            adaptation.duplicate = true;
            adaptation.step(at(now), at(sent));
            assert_eq!(adaptation.steps, steps);
        }
        for _ in 0..15 {
            adaptation.recovered();
            adaptation.step(at(100), at(80));
        }
        adaptation.undone();
        adaptation.recovered();
        adaptation.step(at(100), at(80));
        assert_eq!(adaptation.steps, 4);
        adaptation.recovered();
        adaptation.step(at(100), at(80));
        assert_eq!(adaptation.steps, 1);
        adaptation.steps = 255;
        adaptation.duplicate = true;
        adaptation.step(at(200), at(199));
        assert_eq!(adaptation.steps, 255);
    }
}
