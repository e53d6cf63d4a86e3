//! Late paths: what they carry would arrive sooner over another path, so they carry no data while another can.
//!
//! A path is late when its oldest packet takes three times as long as was usual when it was sent, and twice as long as another path
//! takes. It is on time again after two round trips in a row, without a loss between them, that are usual for the path or for the
//! best of the others. Without losses it is tried again after a while whatever its round trips are: they may be so from now on. The
//! idea is that of opportunistic retransmission and penalization (C. Raiciu et al., How Hard Can It Be?, NSDI 2012); a late path gets
//! no data at all, and is probed.

use crate::Rtt;
use vmcc_units::time::{Span, Time};

/// Round trips on time in a row that end a path's lateness.
const ON_TIME_SAMPLES: u8 = 2;
/// A late path is tried again after this long without a loss, at first and at most.
const FIRST_HOLD: Span = Span::from_secs(1);
const MAX_HOLD: Span = Span::from_secs(32);
/// Data sent twice because of late paths: bytes at first, and one of this many sent.
const BUDGET_FLOOR: u64 = 256 << 10;
const BUDGET_SHARE: u64 = 32;

/// State of a path: on time or late.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lateness {
    /// Late, and since then without a loss.
    since: Option<Time>,
    /// Round trips on time in a row.
    on_time: u8,
    /// It is tried again after this long.
    hold: Span,
    /// End of the last period of lateness.
    ended_at: Time,
}

/// Age at which a packet that leaves now will be overdue. `delay` is the longest delay of an acknowledgment. The window of a sender
/// doubles in a round trip at most, and so may its queue: three round trips are more.
pub fn overdue_age(rtt: &Rtt, delay: Span) -> Span {
    if rtt.srtt_8us == 0 {
        return Span::MAX;
    }
    let deviation = Span::from_us(u64::from(rtt.deviation_us()) * 4) + delay;
    (rtt.srtt() + deviation).max(rtt.srtt().times(3))
}

/// The oldest packet of a path that nothing is known of.
#[derive(Clone, Copy, Debug)]
pub struct Oldest {
    /// Time when it left.
    pub sent: Time,
    /// Age at which it is overdue, from [`overdue_age`].
    pub overdue: Span,
}

/// Time at which a path with this oldest packet is late beside another one, which takes `other` and has sent its own oldest packet at
/// `other_sent`. None while the other does not take less than half: ages of both grow alike, and both may only wait for the peer.
pub fn late_at(oldest: Oldest, other: Span, other_sent: Option<Time>) -> Option<Time> {
    if oldest.overdue == Span::MAX {
        return None;
    }
    let age = oldest.overdue.max(other.times(2));
    let at = oldest.sent + age;
    let other_age = other_sent.map_or(Span::ZERO, |sent| at.since(sent));
    (other_age.times(2) <= age).then_some(at)
}

/// Longest round trip that is on time: twice what is usual for the path, or for the best other one.
pub fn on_time_limit(rtt: &Rtt, other: Span) -> Span {
    rtt.min_rtt.min(rtt.srtt()).max(other).times(2)
}

impl Lateness {
    /// Returns true while the path is late.
    #[inline]
    pub fn is_late(&self) -> bool {
        self.since.is_some()
    }

    /// The path becomes late, for longer if it was so shortly before.
    pub fn begin(&mut self, now: Time) {
        if !self.is_late() {
            let again = self.hold > Span::ZERO && now.since(self.ended_at) < self.hold.times(2);
            self.hold = if again { self.hold.times(2).min(MAX_HOLD) } else { FIRST_HOLD };
        }
        (self.since, self.on_time) = (Some(now), 0);
    }

    /// The path is on time beside one that is worse.
    pub fn end(&mut self, now: Time) {
        if self.is_late() {
            (self.since, self.ended_at, self.on_time) = (None, now, 0);
        }
    }

    /// Returns true if a probe is due at once, where none is under way and the last left at `probed_at`: nothing is known of the path
    /// since its last loss, or one round trip was on time and another one decides.
    pub fn awaits_probe(&self, probed_at: Time) -> bool {
        self.on_time > 0 || self.since.is_some_and(|since| probed_at < since)
    }

    /// A round trip of a late path; `limit` is [`on_time_limit`]. Data from before say nothing. Returns true if it ended the lateness.
    pub fn on_sample(&mut self, now: Time, rtt: Span, limit: Span) -> bool {
        let Some(since) = self.since.filter(|&since| now.since(since) >= rtt) else { return false };
        let on_time = rtt <= limit || now.since(since) >= self.hold;
        self.on_time = if on_time { self.on_time + 1 } else { 0 };
        let ended = self.on_time >= ON_TIME_SAMPLES;
        if ended {
            self.end(now);
        }
        ended
    }

    /// A packet of the path was lost.
    pub fn on_loss(&mut self, now: Time) {
        self.since = self.since.map(|_| now);
        self.on_time = 0;
    }
}

/// Bound of the data that is sent twice because of late paths: a few per cent of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReinjectionBudget {
    used: u64,
}

impl ReinjectionBudget {
    /// Bytes that may be sent twice now, where `sent` were sent once.
    pub fn left(&self, sent: u64) -> u64 {
        (BUDGET_FLOOR + sent / BUDGET_SHARE).saturating_sub(self.used)
    }

    /// Records bytes that are sent twice.
    pub fn take(&mut self, bytes: u64) {
        self.used += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Span = Span::from_ms(100);

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    fn steady(rtt: Span) -> Rtt {
        let mut estimate = Rtt::default();
        for i in 0..200 {
            estimate.sample_min(at(0), rtt);
            estimate.sample(rtt, i, i, Span::ZERO);
        }
        estimate
    }

    #[test]
    fn overdue_age_is_three_round_trips_and_two_of_the_other_path() {
        let (fast, slow) = (steady(Span::from_ms(10)), steady(Span::from_ms(100)));
        let late_ms = |own: &Rtt, other: &Rtt, other_sent_ms: Option<u64>| {
            let oldest = Oldest { sent: at(0), overdue: overdue_age(own, Span::ZERO) };
            late_at(oldest, other.srtt(), other_sent_ms.map(at)).map(|at| at.us() / 1000)
        };
        assert_eq!(late_ms(&fast, &fast, None), Some(30));
        assert_eq!(late_ms(&fast, &slow, Some(120)), Some(200));
        assert_eq!(late_ms(&slow, &fast, Some(150)), Some(300));
        assert_eq!(late_ms(&slow, &fast, Some(149)), None, "the other takes more than half");
        assert_eq!(late_ms(&Rtt::default(), &fast, None), None, "nothing is known of its round trip");
        let limit_ms = |own: &Rtt, other: &Rtt| on_time_limit(own, other.srtt()).us() / 1000;
        assert_eq!((limit_ms(&fast, &slow), limit_ms(&slow, &fast), limit_ms(&fast, &fast)), (200, 200, 20));
    }

    #[test]
    fn lateness_ends_with_two_round_trips_on_time_in_a_row() {
        let mut path = Lateness::default();
        path.begin(at(0));
        assert!(!path.awaits_probe(at(0)));
        assert!(
            !path.on_sample(at(99), LIMIT, LIMIT) && !path.awaits_probe(at(0)),
            "of a packet from before"
        );
        assert!(!path.on_sample(at(100), LIMIT, LIMIT) && path.awaits_probe(at(0)));
        assert!(!path.on_sample(at(300), LIMIT + LIMIT, LIMIT) && !path.awaits_probe(at(0)));
        assert!(!path.on_sample(at(300), LIMIT, LIMIT));
        path.on_loss(at(300));
        assert!(path.awaits_probe(at(299)) && !path.awaits_probe(at(300)));
        assert!(
            !path.on_sample(at(399), LIMIT, LIMIT)
                && !path.on_sample(at(400), LIMIT, LIMIT)
                && path.is_late()
        );
        assert!(path.on_sample(at(401), LIMIT, LIMIT) && !path.is_late());
        path.on_loss(at(402));
        assert!(!path.is_late());
    }

    #[test]
    fn late_path_without_losses_is_tried_again_ever_later() {
        let (mut path, mut now, slow) = (Lateness::default(), at(0), LIMIT + LIMIT);
        for seconds in [1, 2, 4, 8, 16, 32, 32] {
            path.begin(now);
            let lost_at = now + Span::from_ms(500);
            path.on_loss(lost_at);
            let early = lost_at + Span::from_ms(seconds * 1000 - 1);
            assert!(!path.on_sample(early, slow, LIMIT) && !path.on_sample(early, slow, LIMIT));
            now = lost_at + Span::from_secs(seconds);
            assert!(!path.on_sample(now, slow, LIMIT) && path.on_sample(now, slow, LIMIT), "{seconds}");
        }
        now += Span::from_secs(64);
        path.begin(now);
        assert!(!path.on_sample(now + FIRST_HOLD, slow, LIMIT), "the first of two");
        assert!(path.on_sample(now + FIRST_HOLD, slow, LIMIT), "it was on time for long");
    }

    #[test]
    fn budget_is_a_share_of_sent_bytes() {
        let mut budget = ReinjectionBudget::default();
        assert_eq!(budget.left(0), BUDGET_FLOOR);
        budget.take(BUDGET_FLOOR);
        assert_eq!((budget.left(0), budget.left(32_000)), (0, 1000));
    }
}
