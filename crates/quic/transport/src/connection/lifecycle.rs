//! Phases of a connection from its handshake to its end (RFC 9000 section 10), and the CONNECTION_CLOSE that it sends.

use crate::error::ConnectionError;
use vmcc_units::time::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshaking,
    Established,
    /// CONNECTION_CLOSE was sent, or is to be.
    Closing,
    /// The peer has closed.
    Draining,
    Closed,
}

/// Contents of CONNECTION_CLOSE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CloseFrame {
    pub(super) application: bool,
    pub(super) code: u64,
    pub(super) reason: Vec<u8>,
}

/// The phase of a connection, with the reason of its end.
#[derive(Debug)]
pub(super) struct Lifecycle {
    phase: Phase,
    error: Option<ConnectionError>,
    frame: CloseFrame,
    /// End of the closing or draining period.
    until: Time,
    /// CONNECTION_CLOSE is to be sent now.
    due: bool,
    /// Packets received since it was sent last, and the number after which it is sent again.
    packets_since_sent: u32,
    resend_after: u32,
}

impl Lifecycle {
    pub(super) fn new() -> Lifecycle {
        Lifecycle {
            phase: Phase::Handshaking,
            error: None,
            frame: CloseFrame::default(),
            until: Time::NEVER,
            due: false,
            packets_since_sent: 0,
            resend_after: 1,
        }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.phase == Phase::Handshaking
    }

    pub(super) fn is_established(&self) -> bool {
        self.phase == Phase::Established
    }

    pub(super) fn is_closing(&self) -> bool {
        self.phase == Phase::Closing
    }

    /// Returns true from the beginning of the closing or draining period.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Closing | Phase::Draining | Phase::Closed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Reason of the end.
    pub(super) fn error(&self) -> Option<&ConnectionError> {
        self.error.as_ref()
    }

    pub(super) fn close_frame(&self) -> &CloseFrame {
        &self.frame
    }

    /// The handshake is complete.
    pub(super) fn establish(&mut self) {
        self.phase = Phase::Established;
    }

    /// Begins the closing period, in which CONNECTION_CLOSE is sent.
    pub(super) fn close(&mut self, until: Time, frame: CloseFrame, error: ConnectionError) {
        *self = Lifecycle {
            phase: Phase::Closing,
            error: Some(error),
            frame,
            until,
            due: true,
            ..Lifecycle::new()
        };
    }

    /// Ends without CONNECTION_CLOSE: drains if the peer has closed, else there is nothing to wait for.
    pub(super) fn end(&mut self, until: Time, error: ConnectionError) {
        let by_peer =
            matches!(error, ConnectionError::PeerClosed(_) | ConnectionError::ApplicationClosed { .. });
        self.phase = if by_peer { Phase::Draining } else { Phase::Closed };
        (self.until, self.error) = (until, Some(error));
    }

    /// The peer's CONNECTION_CLOSE came in the closing or draining period.
    pub(super) fn drain(&mut self, until: Time) {
        (self.phase, self.due, self.until) = (Phase::Draining, false, self.until.min(until));
    }

    /// Counts a packet in the closing period; CONNECTION_CLOSE is resent after 1, 2, 4, ... of them (RFC 9000 section 10.2.1).
    pub(super) fn on_packet(&mut self) {
        self.packets_since_sent += 1;
        if self.packets_since_sent >= self.resend_after {
            (self.due, self.packets_since_sent) = (true, 0);
            self.resend_after = self.resend_after.saturating_mul(2);
        }
    }

    /// Returns true if CONNECTION_CLOSE is to be sent, which the caller does.
    pub(super) fn take_due(&mut self) -> bool {
        self.phase == Phase::Closing && std::mem::take(&mut self.due)
    }

    /// End of the closing or draining period.
    pub(super) fn until(&self) -> Time {
        self.until
    }

    /// Closes once the closing or draining period is over.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.is_over() && now >= self.until {
            self.phase = Phase::Closed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmcc_units::time::Span;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    #[test]
    fn close_is_resent_after_1_2_4_packets_until_the_period_ends() {
        let mut life = Lifecycle::new();
        assert!(!life.take_due() && !life.is_over());
        life.establish();
        life.close(at(9), CloseFrame { code: 7, ..CloseFrame::default() }, ConnectionError::LocallyClosed);
        assert!(life.take_due() && !life.take_due());
        let sent: Vec<u32> = (1..=16)
            .filter(|_| {
                life.on_packet();
                life.take_due()
            })
            .collect();
        assert_eq!((sent, life.close_frame().code), (vec![1, 3, 7, 15], 7));
        life.handle_timeout(at(8));
        assert!(life.is_closing());
        life.handle_timeout(at(9));
        assert!(life.is_closed() && life.is_over());
    }

    #[test]
    fn peer_close_drains_silently_and_not_longer_than_closing() {
        let mut life = Lifecycle::new();
        life.close(at(9), CloseFrame::default(), ConnectionError::LocallyClosed);
        life.drain(at(20));
        assert_eq!((life.take_due(), life.until(), life.is_closing()), (false, at(9), false));
        life.on_packet();
        assert!(!life.take_due(), "nothing is sent while draining");
        let error = ConnectionError::ApplicationClosed { code: 1, reason: String::new() };
        let mut life = Lifecycle::new();
        life.end(at(5), error.clone());
        assert!(life.is_over() && !life.is_closed() && life.error() == Some(&error));
    }

    #[test]
    fn end_without_a_peer_closes_at_once() {
        let mut life = Lifecycle::new();
        life.end(at(5), ConnectionError::TimedOut);
        assert!(life.is_closed() && !life.is_handshaking() && !life.is_established());
    }
}
