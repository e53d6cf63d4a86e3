//! By which way a multipath connection's acknowledgments go back.
//!
//! Source: M. Zhang et al., mTCP (USENIX ATC 2004), section 3.1.5: all acknowledgments on one way back, the one with the
//! least round trip. A subflow's acknowledgments on its own way are MPTCP's (RFC 8684): there is no [`AckWays`] then.
//!
//! Who receives learns a round trip when data carry the echo of an acknowledgment that took its subflow's own way, as
//! they do for an eighth of each round trip. What answers a handshake, a probe or a repeated segment takes the own way in any case:
//! a way back that has died is not used for long, and costs its subflow one timeout.

use super::config::AckPath;
use crate::packet::RouteId;
use crate::time::{Span, Time};

/// A way that nothing has been heard of for longer than this, beyond four round trips, is not taken for others' ACKs.
const STALE: Span = Span::from_ms(200);

/// Of each round trip a subflow's acknowledgments take its own way for this part, to keep measuring it.
const MEASURED_PART: u64 = 8;

/// One subflow's way back as the receiver knows it.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    route: RouteId,
    /// Smoothed round trip over it; zero before the first.
    srtt: Span,
    measured: Time,
    /// Start of the latest period in which the subflow's acknowledgments take this way, to measure it.
    own_from: Time,
    /// End of that period; [`Time::NEVER`] while nothing is known of the way.
    own_to: Time,
}

impl Way {
    fn new(route: RouteId) -> Way {
        Way { route, own_to: Time::NEVER, ..Way::default() }
    }

    fn is_known(&self, now: Time) -> bool {
        self.srtt != Span::ZERO && now.since(self.measured) <= self.srtt.times(4) + STALE
    }

    /// True if an acknowledgment of the way's own subflow takes it now, to measure it.
    fn wants_own(&mut self, now: Time) -> bool {
        if !self.is_known(now) {
            self.own_from = if self.own_to == Time::NEVER { self.own_from } else { now };
            self.own_to = Time::NEVER;
        } else if now >= self.own_from + self.srtt {
            (self.own_from, self.own_to) = (now, now + self.srtt.div(MEASURED_PART));
        }
        now <= self.own_to
    }
}

/// The ways back of a connection whose acknowledgments share one.
#[derive(Clone, Debug)]
pub(crate) struct AckWays {
    best: bool,
    ways: Vec<Way>,
}

impl AckWays {
    /// `None`: each subflow's on its own.
    pub(crate) fn new(
        policy: AckPath,
        routes: impl ExactSizeIterator<Item = RouteId>,
    ) -> Option<Box<AckWays>> {
        if policy == AckPath::Own || routes.len() < 2 {
            return None;
        }
        Some(Box::new(AckWays { best: policy == AckPath::Best, ways: routes.map(Way::new).collect() }))
    }

    /// Subflow `r` has another way from now on.
    pub(crate) fn reroute(&mut self, r: usize, route: RouteId) {
        self.ways[r] = Way::new(route);
    }

    /// Data of subflow `r` arrived that carry the echo of an acknowledgment sent at `echo`.
    pub(crate) fn on_data(&mut self, r: usize, echo: Time, now: Time) {
        let way = &mut self.ways[r];
        if echo == Time::ZERO || echo < way.own_from || echo > way.own_to {
            return;
        }
        let rtt = now.since(echo);
        let smoothed = way.srtt.div(8).times(7) + rtt.div(8);
        way.srtt = if way.srtt == Span::ZERO { rtt } else { smoothed };
        way.measured = now;
        way.own_to = way.own_to.min(now);
    }

    /// The way of an acknowledgment of subflow `r` that leaves now.
    pub(crate) fn choose(&mut self, r: usize, now: Time) -> RouteId {
        if !self.best {
            return self.ways[0].route;
        }
        if self.ways[r].wants_own(now) {
            return self.ways[r].route;
        }
        let known = self.ways.iter().filter(|way| way.is_known(now));
        known.min_by_key(|way| way.srtt).unwrap_or(&self.ways[r]).route
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    fn ways(policy: AckPath) -> Box<AckWays> {
        AckWays::new(policy, [RouteId(10), RouteId(20)].into_iter()).unwrap()
    }

    /// Both ways are measured at 100 ms, with these round trips.
    fn measured(rtts_ms: [u64; 2]) -> Box<AckWays> {
        let mut ways = ways(AckPath::Best);
        for (r, rtt_ms) in rtts_ms.into_iter().enumerate() {
            assert_eq!(
                ways.choose(r, at(100 - rtt_ms)),
                [RouteId(10), RouteId(20)][r],
                "its own, to learn of it"
            );
            ways.on_data(r, at(100 - rtt_ms), at(100));
        }
        ways
    }

    #[test]
    fn own_ways_and_single_subflows_need_nothing() {
        assert!(AckWays::new(AckPath::Own, [RouteId(1), RouteId(2)].into_iter()).is_none());
        assert!(AckWays::new(AckPath::Best, [RouteId(1)].into_iter()).is_none());
    }

    #[test]
    fn all_take_the_first_way_if_that_is_fixed() {
        let mut ways = ways(AckPath::Fixed);
        assert_eq!([ways.choose(0, at(5)), ways.choose(1, at(5))], [RouteId(10); 2]);
        ways.reroute(0, RouteId(30));
        assert_eq!(ways.choose(1, at(5)), RouteId(30));
    }

    #[test]
    fn all_take_the_best_way_but_for_an_eighth_of_the_time() {
        let mut ways = measured([80, 16]);
        let of_first: Vec<_> = (101..181).map(|ms| ways.choose(0, at(ms))).collect();
        assert_eq!(of_first.iter().filter(|route| **route == RouteId(10)).count(), 11);
        assert_eq!(of_first.last(), Some(&RouteId(20)));
    }

    #[test]
    fn a_way_that_nothing_is_heard_of_is_left() {
        let mut ways = measured([80, 16]);
        // 16 ms are forgotten after 264 ms, 80 ms after 520 ms.
        assert_eq!(ways.choose(0, at(300)), RouteId(10), "its turn");
        assert_eq!(ways.choose(0, at(340)), RouteId(20));
        assert_eq!(ways.choose(0, at(370)), RouteId(10), "the other is forgotten");
        assert_eq!(ways.choose(1, at(370)), RouteId(20), "nothing is known of it");
        assert_eq!(ways.choose(1, at(700)), RouteId(20), "nor of any");
    }

    #[test]
    fn only_echoes_of_its_own_time_count() {
        let mut ways = measured([80, 16]);
        ways.on_data(1, at(101), at(400));
        assert_eq!(ways.ways[1].srtt, Span::from_ms(16));
        assert_eq!(ways.choose(1, at(120)), RouteId(20), "its turn");
        ways.on_data(1, at(120), at(144));
        assert_eq!(ways.ways[1].srtt, Span::from_ms(17));
    }
}
