//! A packet number space, and loss detection in it (RFC 9002 section 6).

use super::received::Received;
use super::reordering::Reordering;
use super::sent::{SentPacket, SentPackets};
use crate::wire::ack::EcnCounts;
use vmcc_units::time::{Span, Time};

/// A packet number space: of Initial packets, of Handshake packets, or of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpaceId {
    Initial,
    Handshake,
    /// Slot of the path.
    Path(usize),
}

impl SpaceId {
    /// Spaces of packets with long headers.
    pub(crate) const LONG: [SpaceId; 2] = [SpaceId::Initial, SpaceId::Handshake];

    /// Slot of the path whose window the packets count against.
    pub(crate) fn slot(self) -> usize {
        match self {
            SpaceId::Path(slot) => slot,
            _ => 0,
        }
    }
}

/// Numbers of packets in one direction and the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    pub(crate) sent: SentPackets,
    pub(crate) received: Received,
    pub(crate) largest_acked: Option<u64>,
    pub(crate) reordering: Reordering,
    /// The oldest that later ones have overtaken is lost then.
    pub(crate) loss_at: Option<Time>,
    /// Send time of the last ack-eliciting packet.
    pub(crate) last_eliciting: Time,
    /// Marks that the peer has told of.
    pub(crate) ecn: EcnCounts,
}

impl Space {
    /// Takes out what is lost now, oldest first, and sets when the next one will be.
    pub(crate) fn detect_lost(
        &mut self,
        now: Time,
        rtt: Span,
        min_rtt: Span,
        lost: &mut Vec<(u64, SentPacket)>,
    ) {
        let (delay, threshold) =
            (self.reordering.loss_delay(rtt, min_rtt), self.reordering.packet_threshold());
        self.loss_at = None;
        let Some(largest) = self.largest_acked else { return };
        let before = lost.len();
        let mut numbers = Vec::new();
        for (pn, packet) in self.sent.below(largest) {
            if threshold.is_some_and(|packets| pn + packets <= largest) || packet.sent + delay <= now {
                numbers.push(pn);
            } else {
                self.loss_at = Some(packet.sent + delay);
                break;
            }
        }
        lost.extend(numbers.into_iter().filter_map(|pn| Some((pn, self.sent.take(pn)?))));
        if lost.len() > before {
            self.reordering.on_lost(now, rtt, lost[before..].iter().map(|(pn, _)| *pn));
            self.sent.trim();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::sent::Frames;

    fn packet(ms: u64) -> SentPacket {
        SentPacket {
            sent: Time::ZERO + Span::from_ms(ms),
            overdue: Span::MAX,
            size: 1200,
            eliciting: true,
            ect: false,
            mtu_probe: false,
            reinjected: false,
            free: false,
            frames: Frames::default(),
        }
    }

    #[test]
    fn loss_by_packet_threshold_or_time_threshold() {
        let mut space = Space::default();
        (0..6).for_each(|i| space.sent.push(packet(i)));
        (space.largest_acked, _) = (Some(4), space.sent.take(4));
        let (mut lost, rtt) = (Vec::new(), Span::from_ms(8));
        space.detect_lost(Time::ZERO + Span::from_ms(8), rtt, rtt, &mut lost);
        assert_eq!(lost.iter().map(|(pn, _)| *pn).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(space.loss_at, Some(Time::ZERO + Span::from_ms(11)), "the third, nine after it was sent");
        lost.clear();
        space.detect_lost(Time::ZERO + Span::from_ms(12), rtt, rtt, &mut lost);
        assert_eq!(lost.iter().map(|(pn, _)| *pn).collect::<Vec<_>>(), [2, 3]);
        assert_eq!((space.loss_at, space.sent.lowest(), space.sent.eliciting()), (None, 5, 1));
    }
}
