//! Segments delivered by an ACK, and the most recently sent one delivered (RFC 8985).

use crate::time::{Span, Time};

/// Segments newly delivered by one ACK, gathered while marks change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    /// Segments delivered: cumulatively and not yet SACKed, or newly SACKed.
    pub(crate) delivered: u32,
    /// Newly SACKed.
    pub(crate) sacked: u32,
    /// First transmission times of the oldest and newest segment delivered without retransmission.
    pub(crate) first_sent: Time,
    /// See `first_sent`.
    pub(crate) last_sent: Time,
    /// True if a cumulatively acknowledged segment had been retransmitted: no RTT sample from it.
    pub(crate) retransmitted: bool,
    /// Lowest segment, never retransmitted, that was delivered below the highest SACKed one.
    pub(crate) reordered_below: Option<u32>,
    /// Lowest segment delivered by its original transmission (F-RTO); [`u32::MAX`] if none was.
    pub(crate) original_seq: u32,
    /// Transmission time of what triggered the ACK, from its timestamp.
    pub(crate) echo: Time,
    /// First segment in flight before the ACK.
    pub(crate) prior_una: u32,
}

impl Default for Delivery {
    fn default() -> Self {
        Delivery {
            delivered: 0,
            sacked: 0,
            first_sent: Time::NEVER,
            last_sent: Time::ZERO,
            retransmitted: false,
            reordered_below: None,
            original_seq: u32::MAX,
            echo: Time::ZERO,
            prior_una: 0,
        }
    }
}

impl Delivery {
    pub(super) fn original(&mut self, seq: u32, sent: Time) {
        self.first_sent = self.first_sent.min(sent);
        self.last_sent = self.last_sent.max(sent);
        self.original_seq = self.original_seq.min(seq);
    }
}

/// The most recently sent segment that was delivered (RFC 8985 section 5.2).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rack {
    /// Its transmission time.
    pub(crate) sent: Time,
    /// Its sequence number: order among equal times.
    pub(crate) seq: u32,
    /// True if this ACK advanced it.
    pub(crate) advanced: bool,
    /// Its round trip.
    pub(crate) rtt: Span,
}

impl Rack {
    /// RFC 8985 section 6.2 step 2; a retransmission answered faster than the minimum RTT was spurious.
    #[inline]
    pub(crate) fn advance(&mut self, now: Time, sent: Time, seq: u32, retransmitted: bool, min_rtt: Span) {
        let rtt = now.since(sent);
        if retransmitted && rtt < min_rtt {
            return;
        }
        self.advanced = true;
        self.rtt = rtt;
        if (sent, seq) > (self.sent, self.seq) {
            self.sent = sent;
            self.seq = seq;
        }
    }

    /// Sent later than this segment? In one instant, originals leave in sequence order; where a
    /// retransmission stands among them is not known, so it is given the benefit of the doubt.
    #[inline]
    pub(super) fn is_after(&self, sent: Time, seq: u32, retransmission: bool) -> bool {
        self.sent > sent || (self.sent == sent && self.seq > seq && !retransmission)
    }
}
