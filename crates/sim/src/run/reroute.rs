//! Routes that follow links which fail and come back: ECMP rehashes over the remaining links, once the failure is detected.
//!
//! A flow keeps its route as long as that is whole, and returns to its first one when it is repaired: tables hash consistently
//! (RFC 2992, section 3). What is down for less than the detection delay is not noticed; nor is what is up for less.

use std::collections::{BTreeMap, BTreeSet};

use rand_xoshiro::rand_core::Rng;
use vmcc_scenario::Scenario;
use vmcc_scenario::model::{EventKind, Traffic};

use super::changes::RouteChanges;
use crate::build::{Fabric, span};
use crate::error::SimError;
use crate::hosts::Hosts;
use crate::packet::{LinkId, RouteId};
use crate::rng::Streams;
use crate::time::{Span, Time};
use crate::transport::{RouteChange, Routed, Transport};

/// The moves at every moment at which routes change.
pub(super) fn plan(
    fabric: &mut Fabric,
    scenario: &Scenario,
    streams: &Streams,
    transports: &[Box<dyn Transport<Hosts>>],
    hosts: &[Hosts],
) -> Result<Vec<RouteChanges>, SimError> {
    let Some(delay) = fabric.reroute else { return Ok(Vec::new()) };
    let views = views(fabric, scenario, delay);
    if views.is_empty() {
        return Ok(Vec::new());
    }
    let mut routed_subflows = routed_subflows(scenario, transports, hosts);
    let mut all = Vec::new();
    for (at, down) in views {
        let mut moved = Vec::new();
        for routed_subflow in &mut routed_subflows {
            if let Some((there, back)) = routed_subflow.follow(fabric, streams, &down)? {
                let Routed { ends, subflow, path, .. } = routed_subflow.routed;
                let routes = (there, back.unwrap_or(there));
                moved.push((routed_subflow.kind, RouteChange { ends, subflow, routes, path, at }));
            }
        }
        all.push(RouteChanges { at, moved });
    }
    Ok(all)
}

/// The links that routing takes to be down, from each moment on at which that changes.
fn views(fabric: &Fabric, scenario: &Scenario, delay: Span) -> Vec<(Time, BTreeSet<LinkId>)> {
    let mut of_links: BTreeMap<LinkId, Vec<(Time, bool)>> = BTreeMap::new();
    for event in &scenario.event {
        let (name, is_down) = match &event.kind {
            EventKind::LinkDown(e) => (&e.link, true),
            EventKind::LinkUp(e) => (&e.link, false),
            _ => continue,
        };
        for link in fabric.named_links(name) {
            of_links.entry(link).or_default().push((Time::ZERO + span(event.at), is_down));
        }
    }
    let mut changes: BTreeMap<Time, Vec<(LinkId, bool)>> = BTreeMap::new();
    for (link, mut events) in of_links {
        events.sort_by_key(|(at, _)| *at);
        for (i, &(at, is_down)) in events.iter().enumerate() {
            let seen = at + delay;
            // Of several at one moment the last counts, as for the link itself.
            let later = events[i + 1..].iter().take_while(|(next, _)| *next <= seen);
            if later.into_iter().all(|(next, state)| *next > at && *state == is_down) {
                changes.entry(seen).or_default().push((link, is_down));
            }
        }
    }
    let end = Time::ZERO + span(scenario.duration);
    let mut down = BTreeSet::new();
    let mut views: Vec<(Time, BTreeSet<LinkId>)> = Vec::new();
    for (at, links) in changes.into_iter().filter(|(at, _)| *at < end) {
        let before = down.clone();
        for (link, is_down) in links {
            if is_down {
                down.insert(link)
            } else {
                down.remove(&link)
            };
        }
        if down != before {
            views.push((at, down.clone()));
        }
    }
    views
}

/// A subflow, and where its route leads now.
struct RoutedSubflow {
    /// Number of the kind among the run's.
    kind: usize,
    routed: Routed,
    first: (RouteId, Option<RouteId>),
    /// Names its random draws.
    name: String,
}

fn routed_subflows(
    scenario: &Scenario,
    transports: &[Box<dyn Transport<Hosts>>],
    hosts: &[Hosts],
) -> Vec<RoutedSubflow> {
    let identities = Traffic::identities(&scenario.traffic);
    let mut of_pair: BTreeMap<(usize, usize, usize), u64> = BTreeMap::new();
    let mut all = Vec::new();
    for (kind, transport) in transports.iter().enumerate() {
        for routed in transport.routed(hosts) {
            let number = of_pair.entry((routed.traffic, routed.from, routed.to)).or_default();
            let name = format!(
                "traffic/{}/{}>{}/{number}/reroute",
                identities[routed.traffic], routed.from, routed.to
            );
            *number += 1;
            all.push(RoutedSubflow { kind, routed, first: routed.routes, name });
        }
    }
    all
}

impl RoutedSubflow {
    /// The routes from now on, there and back, if they change.
    fn follow(
        &mut self,
        fabric: &mut Fabric,
        streams: &Streams,
        down: &BTreeSet<LinkId>,
    ) -> Result<Option<(RouteId, Option<RouteId>)>, SimError> {
        let (now, Routed { from, to, .. }) = (self.routed.routes, self.routed);
        let there = self.direction(fabric, streams, down, (now.0, self.first.0), (from, to, "there"))?;
        let back = now.1.zip(self.first.1);
        let back = back.map(|back| self.direction(fabric, streams, down, back, (to, from, "back")));
        self.routed.routes = (there, back.transpose()?);
        Ok((self.routed.routes != now).then_some(self.routed.routes))
    }

    fn direction(
        &self,
        fabric: &mut Fabric,
        streams: &Streams,
        down: &BTreeSet<LinkId>,
        (now, first): (RouteId, RouteId),
        (from, to, direction): (usize, usize, &str),
    ) -> Result<RouteId, SimError> {
        let is_whole = |route| !fabric.net.route_links(route).any(|link| down.contains(&link));
        if is_whole(first) {
            return Ok(first);
        }
        if is_whole(now) {
            return Ok(now);
        }
        let mut hash = streams.stream(&format!("{}/{direction}", self.name));
        let links = fabric.avoiding(from, to, down, &mut || hash.next_u32());
        links.map_or(Ok(now), |links| Ok(fabric.route(&links)?))
    }
}
