//! Validation of a path's ECN marks (RFC 9000 section 13.4.2), and of their meaning.

use crate::wire::ack::EcnCounts;
use vmcc_units::time::{Span, Time};

/// Packets that are sent ECN-capable before an answer must have come.
const TEST_PACKETS: u64 = 10;
/// Packets in a row, and round trips, that must all be marked before marks are doubted. A window that is halved that often is at its least.
const DOUBT_PACKETS: u64 = 40;
const DOUBT_ROUNDS: u64 = 20;
/// Packets of a trial without ECN, and losses among them that show that marks mean congestion.
const TRIAL_PACKETS: u64 = 50;
const TRIAL_LOSSES: u64 = 5;
/// Doublings of `DOUBT_ROUNDS` by failed trials.
const MAX_TRIALS: u32 = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Testing,
    Capable,
    /// Every packet is marked: packets go without ECN, which a bottleneck that marks all of them would drop.
    Trial {
        arrived: u64,
        lost: u64,
    },
    Failed,
}

/// Validation of a path's ECN by the peer's counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnValidation {
    state: State,
    sent: u64,
    /// Of them, those before the test began.
    before: u64,
    lost: u64,
    /// Packets in a row that were all marked, and when the first was acknowledged.
    marked: u64,
    marked_since: Time,
    /// Trials that have shown losses.
    trials: u32,
}

impl EcnValidation {
    /// Returns true if the next packet is sent ECN-capable.
    pub(crate) fn is_sending(&self) -> bool {
        match self.state {
            State::Testing => self.sent - self.before < TEST_PACKETS,
            State::Capable => true,
            State::Trial { .. } | State::Failed => false,
        }
    }

    /// Returns true if the peer's counts have been right.
    pub(crate) fn is_capable(&self) -> bool {
        self.state == State::Capable
    }

    /// Packets take another path from now on, which is validated again. The peer counts on, so what was sent before is not forgotten.
    pub(crate) fn restart(&mut self) {
        *self = EcnValidation { sent: self.sent, before: self.sent, ..EcnValidation::default() };
    }

    pub(crate) fn on_sent(&mut self) {
        self.sent += 1;
    }

    /// A packet is lost. Where all are that were sent ECN-capable, that may be why.
    pub(crate) fn on_lost(&mut self, ect: bool) {
        match &mut self.state {
            State::Testing if ect => {
                self.lost += 1;
                if self.lost >= TEST_PACKETS {
                    self.state = State::Failed;
                }
            }
            State::Trial { lost, .. } if !ect => {
                *lost += 1;
                if *lost >= TRIAL_LOSSES {
                    let trials = (self.trials + 1).min(MAX_TRIALS);
                    self.restart();
                    self.trials = trials;
                }
            }
            _ => {}
        }
    }

    /// Counts packets that arrived and were not sent ECN-capable. True when they end a trial: marks mean nothing here.
    pub(crate) fn on_arrived_without(&mut self, packets: u64) -> bool {
        let State::Trial { arrived, .. } = &mut self.state else { return false };
        *arrived += packets;
        let over = *arrived >= TRIAL_PACKETS;
        if over {
            self.state = State::Failed;
        }
        over
    }

    /// Counts acknowledged packets that were sent ECN-capable, and marks on them. True when a trial begins.
    pub(crate) fn on_marks(&mut self, now: Time, rtt: Span, ect: u64, marked: u64) -> bool {
        if ect == 0 || self.state != State::Capable {
            return false;
        }
        if marked < ect {
            self.marked = 0;
            return false;
        }
        if self.marked == 0 {
            self.marked_since = now;
        }
        self.marked += ect;
        let rounds = DOUBT_ROUNDS << self.trials;
        let doubted = self.marked >= DOUBT_PACKETS && now.since(self.marked_since) >= rtt.times(rounds);
        if doubted {
            self.state = State::Trial { arrived: 0, lost: 0 };
        }
        doubted
    }

    /// An acknowledgment came that raises no number. It proves nothing (RFC 9000 section 13.4.2.1), but if its counts are higher, it is newer
    /// than the last one: how many packets were marked since.
    pub(crate) fn on_late_ack(&self, before: &EcnCounts, told: Option<EcnCounts>) -> Option<u64> {
        let told = told.filter(|told| self.is_capable() && told.ect0 >= before.ect0 && told.ect1 == 0)?;
        told.ce.checked_sub(before.ce)
    }

    /// An acknowledgment that raises the highest number came: `acked` packets that were sent ECN-capable are newly acknowledged.
    /// How many of them were marked.
    pub(crate) fn on_ack(&mut self, before: &EcnCounts, told: Option<EcnCounts>, acked: u64) -> u64 {
        if matches!(self.state, State::Trial { .. } | State::Failed) {
            return 0;
        }
        let Some(told) = told else {
            if acked > 0 {
                self.state = State::Failed;
            }
            return 0;
        };
        let grown = |new: u64, old: u64| new.checked_sub(old);
        let (ect0, ce) = (grown(told.ect0, before.ect0), grown(told.ce, before.ce));
        let sum = ect0.zip(ce).map(|(ect0, ce)| ect0 + ce);
        // ECT(1) is never sent: if the peer has seen it, something rewrites the field.
        if sum.is_none_or(|sum| sum < acked) || told.ect1 != 0 || told.ect0 + told.ce > self.sent {
            self.state = State::Failed;
            return 0;
        }
        if acked > 0 {
            self.state = State::Capable;
        }
        ce.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(ect0: u64, ce: u64) -> EcnCounts {
        EcnCounts { ect0, ect1: 0, ce }
    }

    fn after(sent: u64) -> EcnValidation {
        let mut ecn = EcnValidation::default();
        (0..sent).for_each(|_| ecn.on_sent());
        ecn
    }

    #[test]
    fn consistent_ecn_counts_validate_a_path() {
        let mut ecn = after(4);
        assert_eq!(ecn.on_ack(&counts(0, 0), Some(counts(3, 1)), 4), 1);
        assert!(ecn.is_capable() && ecn.is_sending());
    }

    #[test]
    fn marks_of_reordered_packets_are_counted() {
        let mut ecn = after(4);
        assert_eq!(ecn.on_late_ack(&counts(0, 0), Some(counts(1, 0))), None, "nothing is known of the path");
        assert_eq!(ecn.on_ack(&counts(0, 0), Some(counts(1, 0)), 1), 0);
        assert_eq!(ecn.on_late_ack(&counts(1, 0), Some(counts(1, 1))), Some(1));
        assert_eq!(ecn.on_late_ack(&counts(1, 1), Some(counts(1, 0))), None, "it is older");
        assert_eq!(ecn.on_late_ack(&counts(1, 1), None), None);
        assert!(ecn.is_capable());
    }

    /// Acknowledges two marked packets each 10 ms until a trial begins; how many there were.
    fn until_trial(ecn: &mut EcnValidation, begin: Time) -> u64 {
        let rtt = Span::from_ms(10);
        let begins = |i: &u64| ecn.on_marks(begin + rtt.times(*i), rtt, 2, 2);
        2 * (0..100_000).find(begins).expect("a trial") + 2
    }

    #[test]
    fn marks_on_every_packet_start_a_trial_and_losses_confirm_them() {
        let begin = Time::ZERO + Span::from_secs(1);
        let mut ecn = after(4);
        ecn.on_ack(&counts(0, 0), Some(counts(0, 4)), 4);
        for i in 0..1000 {
            let now = begin + Span::from_ms(10 * i);
            assert!(!ecn.on_marks(now, Span::from_ms(10), 2, if i % 15 == 0 { 1 } else { 2 }), "{i}");
        }
        ecn.on_marks(begin + Span::from_secs(19), Span::from_ms(10), 2, 1);
        let first = until_trial(&mut ecn, begin + Span::from_secs(20));
        assert!(first >= DOUBT_PACKETS && !ecn.is_sending());
        (0..TRIAL_LOSSES).for_each(|_| ecn.on_lost(false));
        assert!(ecn.is_sending(), "packets without ECN are lost here");
        ecn.on_ack(&counts(0, 0), Some(counts(0, 1)), 1);
        let second = until_trial(&mut ecn, begin + Span::from_secs(40));
        assert!(second > 3 * first / 2, "{first} {second}");
        (0..TRIAL_LOSSES - 1).for_each(|_| ecn.on_lost(false));
        assert!(!ecn.on_arrived_without(TRIAL_PACKETS - 1) && ecn.on_arrived_without(1));
        assert!(!ecn.is_sending() && !ecn.on_arrived_without(100), "once");
    }

    #[test]
    fn bleached_miscounted_or_lost_ect_fails_validation() {
        for (told, sent) in [
            (None, 4),
            (Some(counts(2, 1)), 4),
            (Some(counts(9, 0)), 4),
            (Some(EcnCounts { ect1: 1, ..counts(4, 0) }), 5),
        ] {
            let mut ecn = after(sent);
            assert_eq!(ecn.on_ack(&counts(0, 0), told, 4), 0);
            assert!(!ecn.is_sending(), "{told:?}");
        }
        let mut ecn = after(TEST_PACKETS);
        assert!(!ecn.is_sending(), "no answer yet");
        (0..TEST_PACKETS).for_each(|_| ecn.on_lost(true));
        ecn.on_ack(&counts(0, 0), Some(counts(1, 0)), 1);
        assert!(!ecn.is_sending());
    }
}
