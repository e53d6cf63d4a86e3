//! Selection of routes to use together, as mTCP does it (section 3.3 of its paper): the best by RON's score first, then the
//! best one that is disjoint enough from all that are chosen.
//!
//! Two routes share a link if the same router answers at its end; it weighs as much as it delays. Routers that do not answer share nothing,
//! and one that answers with several addresses is several.

use super::{Hop, ProbedRoute};
use std::time::Duration;

/// RON's least share of losses: less cannot be told from none by a few probes, and would make the score infinite.
const MIN_LOSS: f64 = 0.02;
/// A link that delays less weighs this much.
const MIN_WEIGHT: f64 = 1e-6;

/// Criteria of the choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// At most this many.
    pub most: usize,
    /// The least share of a route's delay that it must not share with any other.
    pub beta: f64,
}

impl Default for Choice {
    fn default() -> Choice {
        Choice { most: 5, beta: 0.5 }
    }
}

/// Verdict on a route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It is one of those to use.
    Chosen,
    /// So much of its delay is shared with the chosen one of that place.
    Overlaps(f64, usize),
    /// There are enough without it.
    NotNeeded,
    /// It carries nothing.
    NoPath,
}

/// RON's estimate of the throughput of a TCP connection, in packets per second; none for what is no path.
pub fn score(route: &ProbedRoute) -> Option<f64> {
    let (rtt, loss) = route.estimate()?;
    Some(1.5_f64.sqrt() / (rtt.as_secs_f64().max(MIN_WEIGHT) * loss.max(MIN_LOSS).sqrt()))
}

/// The share of delay that two routes have in common, of the one that delays less.
pub fn overlap(a: &[Hop], b: &[Hop]) -> f64 {
    let (a, b) = (links(a), links(b));
    let total = |links: &[Link]| links.iter().map(|link| link.weight).sum::<f64>();
    let shared = a.iter().filter_map(|link| {
        let same = b.iter().find(|other| other.end.is_some() && other.end == link.end)?;
        Some(link.weight.min(same.weight))
    });
    let least = total(&a).min(total(&b));
    if least > 0.0 { shared.sum::<f64>() / least } else { 0.0 }
}

struct Link {
    end: Option<std::net::IpAddr>,
    weight: f64,
}

fn links(hops: &[Hop]) -> Vec<Link> {
    let mut before = Duration::ZERO;
    let link = |hop: &Hop| {
        // A router that answers late is not far for that: what is behind it says how far it is at most.
        let at = hop.round_trip.unwrap_or(before);
        let weight = at.saturating_sub(before).as_secs_f64().max(MIN_WEIGHT);
        before = before.max(at);
        Link { end: hop.address, weight }
    };
    hops.iter().map(link).collect()
}

/// Puts the best first, and says of each what became of it.
pub fn rank(mut routes: Vec<ProbedRoute>, choice: Choice) -> Vec<(ProbedRoute, Verdict)> {
    let of = |route: &ProbedRoute| score(route).unwrap_or(-1.0);
    routes.sort_by(|a, b| of(b).total_cmp(&of(a)));
    let mut ranked: Vec<(ProbedRoute, Verdict)> = Vec::new();
    for route in routes {
        let chosen = || ranked.iter().enumerate().filter(|(_, (_, verdict))| *verdict == Verdict::Chosen);
        let shared = chosen().map(|(place, (other, _))| (overlap(route.hops(), other.hops()), place));
        let most = shared.max_by(|a, b| a.0.total_cmp(&b.0));
        let verdict = match most {
            _ if score(&route).is_none() => Verdict::NoPath,
            Some((share, place)) if 1.0 - share < choice.beta => Verdict::Overlaps(share, place),
            _ if chosen().count() >= choice.most => Verdict::NotNeeded,
            _ => Verdict::Chosen,
        };
        ranked.push((route, verdict));
    }
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::ProbeStats;

    fn hops(path: &[(u8, u64)]) -> Vec<Hop> {
        let mut at = 0;
        let hop = |&(router, ms): &(u8, u64)| {
            at += ms;
            let address = (router > 0).then(|| [10, 0, 0, router].into());
            Hop { address, round_trip: address.map(|_| Duration::from_millis(at)) }
        };
        path.iter().map(hop).collect()
    }

    fn route(local: u8, rtt_ms: u64, lost: u32, path: &[(u8, u64)]) -> ProbedRoute {
        let answered = 10 - lost;
        let stats = ProbeStats {
            sent: 10,
            round_trips: vec![Duration::from_millis(rtt_ms); answered as usize],
            hops: hops(path),
            traffic: None,
        };
        ProbedRoute {
            local: [10, 1, 0, local].into(),
            interface: String::new(),
            relay: None,
            remote: "10.2.0.1:1".parse().unwrap(),
            stats: Ok(stats),
        }
    }

    #[test]
    fn rank_rejects_overlapping_and_dead_routes() {
        // 1 and 2 share the long link to router 9; 3 takes another route; 4 is lossy; 5 is dead.
        let routes = vec![
            route(4, 10, 5, &[(40, 5), (41, 5)]),
            route(2, 21, 0, &[(20, 1), (9, 19), (22, 1)]),
            route(3, 30, 0, &[(30, 15), (0, 0), (32, 15)]),
            route(5, 1, 10, &[]),
            route(1, 20, 0, &[(10, 1), (9, 18), (12, 1)]),
        ];
        let locals = |choice| {
            let ranked = rank(routes.clone(), choice);
            let of = |(route, verdict): (ProbedRoute, Verdict)| (route.local.to_string(), verdict);
            ranked.into_iter().map(of).collect::<Vec<_>>()
        };
        let usual = locals(Choice::default());
        let names: Vec<&str> = usual.iter().map(|(name, _)| &name[7..]).collect();
        assert_eq!(names, ["1", "2", "3", "4", "5"]);
        let verdicts: Vec<Verdict> = usual.iter().map(|(_, verdict)| *verdict).collect();
        let Verdict::Overlaps(share, 0) = verdicts[1] else { panic!("{verdicts:?}") };
        assert!((share - 0.9).abs() < 1e-9, "{share}");
        assert_eq!(verdicts[2..], [Verdict::Chosen, Verdict::Chosen, Verdict::NoPath]);
        assert_eq!(locals(Choice { most: 2, beta: 0.5 })[3].1, Verdict::NotNeeded);
        assert_eq!(locals(Choice { most: 5, beta: 0.05 })[1].1, Verdict::Chosen);
    }

    #[test]
    fn score_matches_ron_formula() {
        let of = |rtt_ms, lost| score(&route(1, rtt_ms, lost, &[])).unwrap();
        // sqrt(1.5) / (0.1 s * sqrt(0.5)), and with losses taken for 2 % where none was seen.
        assert!((of(100, 5) - 17.320_508).abs() < 1e-5 && (of(100, 0) - 86.602_540).abs() < 1e-5);
    }
}
