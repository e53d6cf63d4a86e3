//! Tolerance of reordering, learned from losses that turn out spurious (RFC 9002 section 6.1, RFC 8985 section 6.2).

use crate::wire::ack::Ack;
use std::collections::VecDeque;
use vmcc_units::time::{Span, Time};

/// A packet is lost if this many later ones were acknowledged (RFC 9002 section 6.1.1), as long as no loss was spurious.
const PACKET_THRESHOLD: u64 = 3;
/// Packets declared lost whose late acknowledgment is recognized.
const MAX_DECLARED: usize = 512;
/// Round trips with losses, none of them spurious, after which the window shrinks to one step (RFC 8985 section 6.2).
const STEPS_LIFETIME: u32 = 16;

/// Reordering window of a packet number space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reordering {
    /// Packets declared lost, by ascending number, and when that was.
    declared: VecDeque<(u64, Time)>,
    /// Quarters of the minimum round trip; 0 before the first spurious loss.
    steps: u64,
    raised_at: Time,
    /// Round trips with losses since then, and when the last of them began.
    lossy_rounds: u32,
    round_at: Time,
}

impl Reordering {
    /// Time after which an overtaken packet is lost: 9/8 of the round trip (RFC 9002 section 6.1.2), or the round trip and the window.
    pub(crate) fn loss_delay(&self, rtt: Span, min_rtt: Span) -> Span {
        let window = min_rtt.times(self.steps).div(4).min(rtt);
        rtt.times(9).div(8).max(rtt + window).max(super::GRANULARITY)
    }

    /// A packet is lost if this many later ones were acknowledged; none once there was reordering, after which only time tells.
    pub(crate) fn packet_threshold(&self) -> Option<u64> {
        (self.steps == 0).then_some(PACKET_THRESHOLD)
    }

    /// Records that these packets were declared lost.
    pub(crate) fn on_lost(&mut self, now: Time, rtt: Span, numbers: impl Iterator<Item = u64>) {
        self.declared.extend(numbers.map(|number| (number, now)));
        let excess = self.declared.len().saturating_sub(MAX_DECLARED);
        self.declared.drain(..excess);
        if now.since(self.round_at) > rtt {
            (self.round_at, self.lossy_rounds) = (now, self.lossy_rounds + 1);
        }
        if self.lossy_rounds > STEPS_LIFETIME {
            self.steps = self.steps.min(1);
        }
    }

    /// Takes the packets out that were declared lost and have arrived. Returns when each was declared lost, and widens the window.
    pub(crate) fn take_spurious(&mut self, now: Time, rtt: Span, ack: &Ack<'_>) -> Vec<Time> {
        let mut spurious = Vec::new();
        for range in ack.ranges() {
            if self.declared.front().is_none_or(|(lowest, _)| range.end() < lowest) {
                break;
            }
            let begin = self.declared.partition_point(|(number, _)| number < range.start());
            let end = self.declared.partition_point(|(number, _)| number <= range.end());
            spurious.extend(self.declared.drain(begin..end).map(|(_, at)| at));
        }
        if self.declared.is_empty() {
            self.declared = VecDeque::new();
        }
        if !spurious.is_empty() {
            self.lossy_rounds = 0;
            if self.steps == 0 || now.since(self.raised_at) > rtt {
                (self.steps, self.raised_at) = (self.steps + 1, now);
            }
        }
        spurious
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::varint::Reader;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    /// Largest 9, 7 and 8 missing, 4 to 6 acknowledged.
    const ACK: [u8; 6] = [9, 0, 1, 0, 1, 2];

    #[test]
    fn window_grows_with_spurious_losses_up_to_a_round_trip() {
        let (rtt, min_rtt) = (Span::from_ms(24), Span::from_ms(20));
        let mut reordering = Reordering::default();
        assert_eq!(reordering.loss_delay(rtt, min_rtt), Span::from_ms(27));
        assert_eq!(reordering.packet_threshold(), Some(PACKET_THRESHOLD));
        for (round, expected_ms) in [(1, 29), (2, 34), (3, 39), (4, 44), (5, 48), (6, 48)] {
            let now = at(100 * round);
            reordering.on_lost(now, rtt, [3, 5, 7].into_iter());
            let ack = Ack::decode(&mut Reader::new(&ACK), false).unwrap();
            assert_eq!(reordering.take_spurious(now, rtt, &ack), [now], "the fifth");
            assert!(reordering.take_spurious(now, rtt, &ack).is_empty(), "once");
            assert_eq!(reordering.loss_delay(rtt, min_rtt), Span::from_ms(expected_ms));
            assert_eq!(reordering.packet_threshold(), None);
            reordering.declared.clear();
        }
        for round in 0..=STEPS_LIFETIME {
            reordering.on_lost(at(1000 + 100 * u64::from(round)), rtt, [100].into_iter());
        }
        assert_eq!(reordering.loss_delay(rtt, min_rtt), Span::from_ms(29), "no spurious loss for long");
    }

    #[test]
    fn memory_of_declared_losses_is_bounded() {
        let mut reordering = Reordering::default();
        reordering.on_lost(at(1), Span::from_ms(1), 0..10_000);
        assert_eq!(reordering.declared.len(), MAX_DECLARED);
        assert_eq!(reordering.declared.back().unwrap().0, 9_999);
    }
}
