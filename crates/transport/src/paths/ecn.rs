//! Whether a path carries ECN marks (RFC 9000 section 13.4.2).

use crate::wire::ack::EcnCounts;

/// Packets that are sent ECN-capable before an answer must have come.
const TESTED: u64 = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Testing,
    Capable,
    Failed,
}

/// What the peer's counts have shown of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnValidation {
    state: State,
    sent: u64,
    /// Of them, those before the test began.
    before: u64,
    lost: u64,
}

impl EcnValidation {
    /// Whether the next packet is sent ECN-capable.
    pub(crate) fn is_sending(&self) -> bool {
        match self.state {
            State::Testing => self.sent - self.before < TESTED,
            State::Capable => true,
            State::Failed => false,
        }
    }

    /// Whether the peer's counts have been right.
    pub(crate) fn is_capable(&self) -> bool {
        self.state == State::Capable
    }

    /// Packets take another way from now on, which is tested anew. The peer counts on, so what was sent before is not forgotten.
    pub(crate) fn restart(&mut self) {
        *self = EcnValidation { sent: self.sent, before: self.sent, ..EcnValidation::default() };
    }

    pub(crate) fn on_sent(&mut self) {
        self.sent += 1;
    }

    /// A packet that was sent ECN-capable is lost: where all that were are, they may be why.
    pub(crate) fn on_lost(&mut self) {
        self.lost += 1;
        if self.state == State::Testing && self.lost >= TESTED {
            self.state = State::Failed;
        }
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
        if self.state == State::Failed {
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
    fn counts_that_add_up_make_a_path_capable() {
        let mut ecn = after(4);
        assert_eq!(ecn.on_ack(&counts(0, 0), Some(counts(3, 1)), 4), 1);
        assert!(ecn.is_capable() && ecn.is_sending());
    }

    #[test]
    fn marks_of_packets_that_were_overtaken_are_counted() {
        let mut ecn = after(4);
        assert_eq!(ecn.on_late_ack(&counts(0, 0), Some(counts(1, 0))), None, "nothing is known of the path");
        assert_eq!(ecn.on_ack(&counts(0, 0), Some(counts(1, 0)), 1), 0);
        assert_eq!(ecn.on_late_ack(&counts(1, 0), Some(counts(1, 1))), Some(1));
        assert_eq!(ecn.on_late_ack(&counts(1, 1), Some(counts(1, 0))), None, "it is older");
        assert_eq!(ecn.on_late_ack(&counts(1, 1), None), None);
        assert!(ecn.is_capable());
    }

    #[test]
    fn a_path_that_bleaches_counts_wrongly_or_loses_them_all_is_not_capable() {
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
        let mut ecn = after(TESTED);
        assert!(!ecn.is_sending(), "no answer yet");
        (0..TESTED).for_each(|_| ecn.on_lost());
        ecn.on_ack(&counts(0, 0), Some(counts(1, 0)), 1);
        assert!(!ecn.is_sending());
    }
}
