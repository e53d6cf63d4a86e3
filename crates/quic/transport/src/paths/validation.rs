//! Address validation of a path (RFC 9000 sections 8 and 9): PATH_CHALLENGE, the anti-amplification limit, migrations.

use super::route::Route;
use vmcc_units::time::{Span, Time};

/// Bytes that may be sent to an address for each that came from it, until it is validated (RFC 9000 section 8.1).
pub(crate) const AMPLIFICATION: u64 = 3;
/// Transmissions of a challenge before path validation fails.
const MAX_CHALLENGES: u32 = 4;
/// Doublings of the time between two transmissions.
const MAX_BACKOFF: u32 = 6;

/// PATH_CHALLENGE that is due or unanswered (RFC 9000 section 8.2.1).
#[derive(Clone, Copy, Debug)]
struct Challenge {
    data: u64,
    /// To be sent, or sent again, then.
    send_at: Time,
    tries: u32,
    /// Time of its first transmission.
    first_sent: Time,
    /// Path validation fails at this time, whether it was sent or not.
    until: Time,
}

/// Result of a PATH_RESPONSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validated {
    /// Send time of the challenge; none if there were several, of which it is not known which was answered.
    pub(crate) sent: Option<Time>,
    /// Route before the migration that is validated now.
    pub(crate) previous: Option<Route>,
}

/// Validation of a path's present route.
#[derive(Clone, Debug, Default)]
pub(crate) struct Validation {
    validated: bool,
    /// Bytes that came and that left along the route.
    bytes_in: u64,
    bytes_out: u64,
    challenge: Option<Challenge>,
    /// Validated route before the address changed, until the new one is validated.
    previous: Option<Route>,
}

impl Validation {
    /// The peer receives here, or what may be sent is limited by what came.
    pub(crate) fn is_validated(&self) -> bool {
        self.validated
    }

    pub(crate) fn set_validated(&mut self) {
        self.validated = true;
    }

    pub(crate) fn on_received(&mut self, bytes: u64) {
        self.bytes_in += bytes;
    }

    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.bytes_out += bytes;
    }

    /// Bytes that came, and that left, since the route last changed.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.bytes_in, self.bytes_out)
    }

    /// Bytes that may leave before the address is validated; as many as wanted after.
    pub(crate) fn amplification_room(&self) -> u64 {
        if self.validated { u64::MAX } else { (AMPLIFICATION * self.bytes_in).saturating_sub(self.bytes_out) }
    }

    /// Starts a validation that fails at `until`, if it is not answered.
    pub(crate) fn start(&mut self, data: u64, now: Time, until: Time) {
        self.challenge = Some(Challenge { data, send_at: now, tries: 0, first_sent: now, until });
    }

    /// Ends it without a result.
    pub(crate) fn cancel(&mut self) {
        self.challenge = None;
    }

    pub(crate) fn is_challenge_due(&self, now: Time) -> bool {
        self.challenge.is_some_and(|challenge| challenge.send_at <= now)
    }

    /// Takes the data of a challenge that is due; it is due again after `pto`, doubled each time.
    pub(crate) fn take_challenge(&mut self, now: Time, pto: Span) -> Option<u64> {
        let challenge = self.challenge.as_mut().filter(|challenge| challenge.send_at <= now)?;
        if challenge.tries == 0 {
            challenge.first_sent = now;
        }
        challenge.tries += 1;
        challenge.send_at = now + pto.times(1 << challenge.tries.min(MAX_BACKOFF));
        Some(challenge.data)
    }

    /// Time at which a challenge is due or fails; only the latter if nothing can be sent.
    pub(crate) fn timer(&self, blocked: bool) -> Option<Time> {
        let challenge = self.challenge?;
        Some(if blocked { challenge.until } else { challenge.send_at.min(challenge.until) })
    }

    /// PATH_RESPONSE came, from wherever (RFC 9000 section 8.2.3). None if it answers nothing.
    pub(crate) fn on_response(&mut self, data: u64) -> Option<Validated> {
        let challenge = self.challenge.take_if(|own| own.data == data)?;
        self.validated = true;
        let sent = (challenge.tries == 1).then_some(challenge.first_sent);
        Some(Validated { sent, previous: self.previous.take() })
    }

    pub(crate) fn has_timed_out(&self, now: Time) -> bool {
        self.challenge.is_some_and(|c| c.until <= now || (c.send_at <= now && c.tries >= MAX_CHALLENGES))
    }

    /// The validation has failed. Returns the route to go back to, which was validated before.
    pub(crate) fn on_timeout(&mut self) -> Option<Route> {
        self.challenge = None;
        let previous = self.previous.take();
        self.validated |= previous.is_some();
        previous
    }

    /// The peer sends from another address: `bytes` came from there.
    pub(crate) fn on_migration(&mut self, old: Route, bytes: u64) {
        if self.validated {
            self.previous = Some(old);
        }
        self.validated = false;
        (self.bytes_in, self.bytes_out) = (bytes, 0);
    }

    /// Goes back to `route` if it was validated before the last migration: the peer was never gone (RFC 9000 section 9.3.2).
    pub(crate) fn return_to(&mut self, route: Route) -> bool {
        let back = self.previous == Some(route);
        if back {
            (self.validated, self.previous, self.challenge) = (true, None, None);
        }
        back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    fn route(port: u16) -> Route {
        let address = |port| ([127, 0, 0, 1], port).into();
        Route { local: address(1), remote: address(port) }
    }

    #[test]
    fn unvalidated_address_gets_three_times_the_received_bytes() {
        let mut validation = Validation::default();
        assert_eq!(validation.amplification_room(), 0);
        validation.on_received(100);
        validation.on_sent(250);
        assert_eq!(validation.amplification_room(), 50);
        validation.on_sent(100);
        assert_eq!((validation.amplification_room(), validation.bytes()), (0, (100, 350)));
        validation.set_validated();
        assert_eq!(validation.amplification_room(), u64::MAX);
    }

    #[test]
    fn challenge_backs_off_and_fails_after_four_transmissions_or_in_time() {
        let (pto, mut validation) = (Span::from_ms(10), Validation::default());
        validation.start(7, at(0), at(1000));
        let mut sent = Vec::new();
        for ms in 0..1000 {
            if validation.has_timed_out(at(ms)) {
                sent.push(ms);
                break;
            }
            sent.extend(validation.take_challenge(at(ms), pto).map(|_| ms));
        }
        assert_eq!(sent, [0, 20, 60, 140, 300]);
        validation.start(7, at(0), at(100));
        assert_eq!((validation.timer(true), validation.timer(false)), (Some(at(100)), Some(at(0))));
        assert!(validation.has_timed_out(at(100)) && !validation.has_timed_out(at(99)));
        assert_eq!((validation.on_timeout(), validation.is_validated()), (None, false));
    }

    #[test]
    fn response_validates_once_and_gives_the_rtt_of_a_single_challenge() {
        let mut validation = Validation::default();
        validation.start(7, at(0), at(1000));
        assert_eq!(validation.take_challenge(at(5), Span::from_ms(10)), Some(7));
        assert_eq!(validation.on_response(8), None);
        assert_eq!(validation.on_response(7), Some(Validated { sent: Some(at(5)), previous: None }));
        assert!(validation.is_validated() && validation.on_response(7).is_none());
        validation.start(9, at(10), at(1000));
        (0..2).for_each(|i| _ = validation.take_challenge(at(10 + 100 * i), Span::from_ms(10)));
        assert_eq!(validation.on_response(9).map(|validated| validated.sent), Some(None));
    }

    #[test]
    fn migration_goes_back_to_a_validated_route_only() {
        let mut validation = Validation::default();
        validation.set_validated();
        validation.on_migration(route(2), 60);
        assert_eq!((validation.is_validated(), validation.bytes()), (false, (60, 0)));
        // Moved again before it was validated: the first route stays the one to go back to.
        validation.on_migration(route(3), 70);
        assert!(!validation.return_to(route(3)));
        validation.start(7, at(0), at(9));
        assert_eq!((validation.on_timeout(), validation.is_validated()), (Some(route(2)), true));
        validation.on_migration(route(2), 60);
        assert!(validation.return_to(route(2)) && validation.is_validated());
    }
}
