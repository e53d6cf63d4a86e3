//! Return routes of a multipath connection's acknowledgments.
//!
//! Source: M. Zhang et al., mTCP (USENIX ATC 2004), section 3.1.5: all acknowledgments on one return route, the one with the
//! least round trip. A subflow's acknowledgments on its own route are MPTCP's (RFC 8684): there is no [`AckRoutes`] then.
//!
//! The receiver learns a round trip when data carry the echo of an acknowledgment that took its subflow's own route, as
//! they do for an eighth of each round trip. What answers a handshake, a probe or a repeated segment takes the own route in any case:
//! a return route that has died is not used for long, and costs its subflow one timeout.

use crate::packet::RouteId;
use crate::time::{Span, Time};
use vmcc_multipath::AckPath;

/// A route that nothing has been heard of for longer than this, beyond four round trips, is not taken for others' ACKs.
const STALE_TIMEOUT: Span = Span::from_ms(200);

/// Of each round trip a subflow's acknowledgments take its own route for one part in this many, to keep measuring it.
const MEASURE_DIVISOR: u64 = 8;

/// One subflow's return route as the receiver knows it.
#[derive(Clone, Copy, Debug, Default)]
struct AckRoute {
    route: RouteId,
    /// Smoothed round trip over it; zero before the first.
    srtt: Span,
    measured: Time,
    /// Start of the latest period in which the subflow's acknowledgments take this route, to measure it.
    own_from: Time,
    /// End of that period; [`Time::NEVER`] while nothing is known of the route.
    own_to: Time,
}

impl AckRoute {
    fn new(route: RouteId) -> AckRoute {
        AckRoute { route, own_to: Time::NEVER, ..AckRoute::default() }
    }

    fn is_known(&self, now: Time) -> bool {
        self.srtt != Span::ZERO && now.since(self.measured) <= self.srtt.times(4) + STALE_TIMEOUT
    }

    /// True if an acknowledgment of the route's own subflow takes it now, to measure it.
    fn wants_own(&mut self, now: Time) -> bool {
        if !self.is_known(now) {
            self.own_from = if self.own_to == Time::NEVER { self.own_from } else { now };
            self.own_to = Time::NEVER;
        } else if now >= self.own_from + self.srtt {
            (self.own_from, self.own_to) = (now, now + self.srtt.div(MEASURE_DIVISOR));
        }
        now <= self.own_to
    }
}

/// The return routes of a connection whose acknowledgments share one.
#[derive(Clone, Debug)]
pub(crate) struct AckRoutes {
    best: bool,
    routes: Vec<AckRoute>,
}

impl AckRoutes {
    /// `None`: each subflow's on its own.
    pub(crate) fn new(policy: AckPath, routes: impl ExactSizeIterator<Item = RouteId>) -> Option<AckRoutes> {
        if policy == AckPath::Own || routes.len() < 2 {
            return None;
        }
        Some(AckRoutes { best: policy == AckPath::Best, routes: routes.map(AckRoute::new).collect() })
    }

    /// Subflow `r` has another route from now on.
    pub(crate) fn reroute(&mut self, r: usize, route: RouteId) {
        self.routes[r] = AckRoute::new(route);
    }

    /// Data of subflow `r` arrived that carry the echo of an acknowledgment sent at `echo`.
    pub(crate) fn on_data(&mut self, r: usize, echo: Time, now: Time) {
        let route = &mut self.routes[r];
        if echo == Time::ZERO || echo < route.own_from || echo > route.own_to {
            return;
        }
        let rtt = now.since(echo);
        let smoothed = route.srtt.div(8).times(7) + rtt.div(8);
        route.srtt = if route.srtt == Span::ZERO { rtt } else { smoothed };
        route.measured = now;
        route.own_to = route.own_to.min(now);
    }

    /// The route of an acknowledgment of subflow `r` that leaves now.
    pub(crate) fn choose(&mut self, r: usize, now: Time) -> RouteId {
        if !self.best {
            return self.routes[0].route;
        }
        if self.routes[r].wants_own(now) {
            return self.routes[r].route;
        }
        let known = self.routes.iter().filter(|route| route.is_known(now));
        known.min_by_key(|route| route.srtt).unwrap_or(&self.routes[r]).route
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    fn routes(policy: AckPath) -> AckRoutes {
        AckRoutes::new(policy, [RouteId(10), RouteId(20)].into_iter()).unwrap()
    }

    /// Both routes are measured at 100 ms, with these round trips.
    fn measured(rtts_ms: [u64; 2]) -> AckRoutes {
        let mut routes = routes(AckPath::Best);
        for (r, rtt_ms) in rtts_ms.into_iter().enumerate() {
            assert_eq!(
                routes.choose(r, at(100 - rtt_ms)),
                [RouteId(10), RouteId(20)][r],
                "its own, to learn of it"
            );
            routes.on_data(r, at(100 - rtt_ms), at(100));
        }
        routes
    }

    #[test]
    fn own_path_and_single_subflows_need_no_ack_selection() {
        assert!(AckRoutes::new(AckPath::Own, [RouteId(1), RouteId(2)].into_iter()).is_none());
        assert!(AckRoutes::new(AckPath::Best, [RouteId(1)].into_iter()).is_none());
    }

    #[test]
    fn fixed_ack_path_uses_the_first_subflow() {
        let mut routes = routes(AckPath::Fixed);
        assert_eq!([routes.choose(0, at(5)), routes.choose(1, at(5))], [RouteId(10); 2]);
        routes.reroute(0, RouteId(30));
        assert_eq!(routes.choose(1, at(5)), RouteId(30));
    }

    #[test]
    fn best_ack_path_is_used_seven_eighths_of_the_time() {
        let mut routes = measured([80, 16]);
        let of_first: Vec<_> = (101..181).map(|ms| routes.choose(0, at(ms))).collect();
        assert_eq!(of_first.iter().filter(|route| **route == RouteId(10)).count(), 11);
        assert_eq!(of_first.last(), Some(&RouteId(20)));
    }

    #[test]
    fn silent_ack_path_is_left() {
        let mut routes = measured([80, 16]);
        // 16 ms are forgotten after 264 ms, 80 ms after 520 ms.
        assert_eq!(routes.choose(0, at(300)), RouteId(10), "its turn");
        assert_eq!(routes.choose(0, at(340)), RouteId(20));
        assert_eq!(routes.choose(0, at(370)), RouteId(10), "the other is forgotten");
        assert_eq!(routes.choose(1, at(370)), RouteId(20), "nothing is known of it");
        assert_eq!(routes.choose(1, at(700)), RouteId(20), "nor of any");
    }

    #[test]
    fn only_own_timestamp_echoes_count() {
        let mut routes = measured([80, 16]);
        routes.on_data(1, at(101), at(400));
        assert_eq!(routes.routes[1].srtt, Span::from_ms(16));
        assert_eq!(routes.choose(1, at(120)), RouteId(20), "its turn");
        routes.on_data(1, at(120), at(144));
        assert_eq!(routes.routes[1].srtt, Span::from_ms(17));
    }
}
