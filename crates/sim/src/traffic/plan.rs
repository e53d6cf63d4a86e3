//! Connections: when each starts, between whom, and how much it sends.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use vmcc_scenario::Scenario;
use vmcc_scenario::model::{FlowList, Incast, Poisson, Protocol, Traffic, TrafficKind};
use vmcc_scenario::sizes::Sizes;

use super::pairs::{Sender, senders};
use super::{App, MAX_FLOWS, Object};
use crate::build::{Fabric, span};
use crate::error::SimError;
use crate::rng::{Stream, Streams, below, exponential, uniform};
use crate::time::{Span, Time};

/// A client of memcached asks for a name of this length by `get `, that and an end of line.
const REQUEST_BYTES: u64 = 15;

/// One connection to be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    /// Index of the traffic entry.
    pub(crate) traffic: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) from_name: Arc<str>,
    pub(crate) to_name: Arc<str>,
    /// Names the connection's own random streams.
    pub(crate) stream: String,
    pub(crate) start: Time,
    pub(crate) stop: Time,
    pub(crate) app: App,
}

struct Planner<'a> {
    fabric: &'a Fabric,
    streams: &'a Streams,
    entry: &'a Traffic,
    traffic: usize,
    label: String,
    /// Names its random streams.
    identity: String,
    /// Stop time of the entry, or else of the run.
    stop: Time,
    planned: Vec<Planned>,
}

/// The connections of every entry that has some of these transports, in the entries' order.
pub(crate) fn plan_flows(
    scenario: &Scenario,
    fabric: &Fabric,
    streams: &Streams,
    protocols: &[Protocol],
) -> Result<Vec<Planned>, SimError> {
    let mut all = Vec::new();
    let names = Traffic::labels(&scenario.traffic).into_iter().zip(Traffic::identities(&scenario.traffic));
    for ((traffic, entry), (label, identity)) in scenario.traffic.iter().enumerate().zip(names) {
        if !entry.kind.has_connections() || !protocols.contains(&entry.protocol(&scenario.host)) {
            continue;
        }
        let senders = senders(scenario, fabric, entry, &identity, streams)?;
        let end = entry.common.stop.map_or(scenario.duration, |stop| stop.min(scenario.duration));
        let stop = Time::ZERO + span(end);
        let planned = Vec::new();
        let mut planner = Planner { fabric, streams, entry, traffic, label, identity, stop, planned };
        match &entry.kind {
            TrafficKind::Poisson(k) => planner.poisson(&senders, k)?,
            TrafficKind::Flows(k) => planner.listed(k)?,
            _ => senders.iter().try_for_each(|sender| planner.sender(sender))?,
        }
        all.append(&mut planner.planned);
    }
    Ok(all)
}

impl Planner<'_> {
    fn sender(&mut self, sender: &Sender) -> Result<(), SimError> {
        match &self.entry.kind {
            TrafficKind::Bulk(k) => {
                let app = paced(&self.entry.kind, None).unwrap_or(App::Bulk);
                self.connections(sender, k.connections, |_| app.clone())
            }
            TrafficKind::Sized(k) if k.rounds.is_some_and(|rounds| rounds > 1) => {
                Err(SimError::Unsupported {
                    what: format!("traffic `{}` in rounds that wait for each other", self.label),
                    remedy: "rounds need --engine kernel or guest; here one round is all there is",
                })
            }
            TrafficKind::Sized(k) => {
                let bytes = k.size.get();
                let app = paced(&self.entry.kind, Some(bytes)).unwrap_or(App::Sized { bytes });
                self.connections(sender, k.connections, |_| app.clone())
            }
            TrafficKind::RequestResponse(k) => self.connections(sender, k.connections, |number| {
                let (request, response) = match number < k.readers() {
                    true => (k.request, k.response),
                    false => (k.response, k.request),
                };
                App::RequestResponse {
                    request_bytes: request.get(),
                    response_bytes: response.get(),
                    // Without a number of requests, without end.
                    count: k.requests_of(1).map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX)),
                    think: span(k.think),
                }
            }),
            TrafficKind::Incast(k) => self.incast(sender, k),
            // Of all senders together, and without connections.
            TrafficKind::Poisson(_)
            | TrafficKind::Flows(_)
            | TrafficKind::OnOffUdp(_)
            | TrafficKind::CongestionGenerator(_)
            | TrafficKind::Probe(_) => Ok(()),
        }
    }

    fn start(&self) -> Time {
        Time::ZERO + span(self.entry.common.start)
    }

    fn push(
        &mut self,
        sender: &Sender,
        receiver: usize,
        number: u64,
        start: Time,
        app: App,
    ) -> Result<(), SimError> {
        let from = (sender.host, sender.name.clone());
        self.push_between(from, sender.receivers[receiver].clone(), number, start, app)
    }

    fn push_between(
        &mut self,
        (from, from_name): (usize, Arc<str>),
        (to, to_name): (usize, Arc<str>),
        number: u64,
        start: Time,
        app: App,
    ) -> Result<(), SimError> {
        if self.planned.len() >= MAX_FLOWS {
            return Err(SimError::TooMany { traffic: self.label.clone(), most: MAX_FLOWS });
        }
        let stream = format!("traffic/{}/{from_name}>{to_name}/{number}", self.identity);
        // An entry that ends with the run needs no end of its own.
        let stop = if self.entry.common.stop.is_some() { self.stop } else { Time::NEVER };
        let traffic = self.traffic;
        self.planned.push(Planned { traffic, from, to, from_name, to_name, stream, start, stop, app });
        Ok(())
    }

    /// The receivers of the `number`-th connection of a sender.
    fn receivers(&self, sender: &Sender, number: u64) -> Vec<usize> {
        if !sender.random {
            return (0..sender.receivers.len()).collect();
        }
        let name = format!("traffic/{}/{}/receiver/{number}", self.identity, sender.name);
        vec![below(&mut self.streams.stream(&name), sender.receivers.len())]
    }

    /// Connections start within one round trip of each other, as no two programs start at once, and within a
    /// hundredth of the time until they stop.
    fn connections(&mut self, sender: &Sender, count: u32, app: impl Fn(u32) -> App) -> Result<(), SimError> {
        for number in 0..count {
            for receiver in self.receivers(sender, u64::from(number)) {
                self.connection(sender, receiver, number, app(number))?;
            }
        }
        Ok(())
    }

    fn connection(
        &mut self,
        sender: &Sender,
        receiver: usize,
        number: u32,
        app: App,
    ) -> Result<(), SimError> {
        let spread_ps = self.fabric.base_rtt.ps().min(self.stop.since(self.start()).ps() / 100) as f64;
        let to_name = &sender.receivers[receiver].1;
        let name = format!("traffic/{}/{}>{to_name}/{number}/start", self.identity, sender.name);
        let share = uniform(&mut self.streams.stream(&name));
        let wait = Span::from_ps((spread_ps * share) as u64);
        self.push(sender, receiver, u64::from(number), self.start() + wait, app)
    }

    /// Every round, all senders at the same instant.
    fn incast(&mut self, sender: &Sender, k: &Incast) -> Result<(), SimError> {
        let mut at = self.start();
        let mut number = 0;
        while at < self.stop {
            for _ in 0..k.connections {
                for receiver in self.receivers(sender, number) {
                    self.push(sender, receiver, number, at, App::Sized { bytes: k.size.get() })?;
                }
                number += 1;
            }
            match k.interval {
                Some(interval) => at += span(interval),
                None => break,
            }
        }
        Ok(())
    }

    /// Each at its own time, if that is before the entry ends.
    fn listed(&mut self, list: &FlowList) -> Result<(), SimError> {
        let mut hosts: BTreeMap<&str, (usize, Arc<str>)> = BTreeMap::new();
        for name in list.flows.iter().flat_map(|flow| [&flow.from, &flow.to]) {
            if let Entry::Vacant(vacant) = hosts.entry(name) {
                vacant.insert((self.fabric.host(name)?, name.as_str().into()));
            }
        }
        for (number, flow) in (0..).zip(&list.flows) {
            let start = self.start() + span(flow.at);
            if start < self.stop {
                let (from, to) = (hosts[flow.from.as_str()].clone(), hosts[flow.to.as_str()].clone());
                self.push_between(from, to, number, start, App::Sized { bytes: flow.size.get() })?;
            }
        }
        Ok(())
    }

    /// One process per sender; each arrival goes to one of its receivers. A limit takes the earliest of them all.
    fn poisson(&mut self, senders: &[Sender], k: &Poisson) -> Result<(), SimError> {
        let sizes = Sizes::from(&k.sizes);
        let mut all: Vec<Arrivals> =
            senders.iter().filter_map(|sender| self.arrivals(sender, k, &sizes)).collect();
        let mut next: BinaryHeap<Reverse<(Time, usize)>> = BinaryHeap::new();
        for (index, arrivals) in all.iter_mut().enumerate() {
            next.extend(arrivals.advance().map(|at| Reverse((at, index))));
        }
        let limit = k.limit.map_or(usize::MAX, |limit| limit as usize).min(MAX_FLOWS + 1);
        let mut chosen = Vec::new();
        while chosen.len() < limit
            && let Some(Reverse((at, index))) = next.pop()
        {
            let (number, bytes, receiver) = all[index].take(&sizes, senders[index].receivers.len());
            chosen.push((index, number, receiver, at, bytes));
            next.extend(all[index].advance().map(|at| Reverse((at, index))));
        }
        if let Some(count) = k.kept_connections {
            return self.persistent(senders, &chosen, count);
        }
        // Connections are numbered sender by sender.
        chosen.sort_unstable_by_key(|(index, number, ..)| (*index, *number));
        for (index, number, receiver, at, bytes) in chosen {
            self.push(&senders[index], receiver, number, at, App::Sized { bytes })?;
        }
        Ok(())
    }

    /// Connections that stay open, and take what arrives for their pair of hosts in turn.
    fn persistent(&mut self, senders: &[Sender], arrived: &[Arrived], count: u32) -> Result<(), SimError> {
        if arrived.len() > MAX_FLOWS {
            return Err(SimError::TooMany { traffic: self.label.clone(), most: MAX_FLOWS });
        }
        let mut of_pairs: Vec<Vec<Vec<Object>>> =
            senders.iter().map(|sender| vec![Vec::new(); sender.receivers.len()]).collect();
        for &(sender, _, receiver, at, bytes) in arrived {
            of_pairs[sender][receiver].push(Object { at, bytes });
        }
        for (sender, of_receivers) in senders.iter().zip(&of_pairs) {
            for (receiver, objects) in of_receivers.iter().enumerate() {
                for number in 0..count {
                    let own = objects.iter().skip(number as usize).step_by(count as usize);
                    let (request_bytes, objects) = (REQUEST_BYTES, own.copied().collect());
                    let app = App::Fetches { request_bytes, objects };
                    self.connection(sender, receiver, number, app)?;
                }
            }
        }
        Ok(())
    }

    /// The arrivals at one sender; `None` if there are none.
    fn arrivals(&self, sender: &Sender, k: &Poisson, sizes: &Sizes) -> Option<Arrivals> {
        let rate_bps = self.fabric.network.hosts[sender.host].rate.get() as f64;
        let per_second = match (k.load, k.per_second) {
            (Some(load), _) => load * rate_bps / 8.0 / sizes.mean(),
            (None, per_second) => per_second?,
        };
        // A one-to-one sender may appear once per receiver; each is a process of its own.
        let to = if let [only] = &sender.receivers[..] { &*only.1 } else { "any" };
        let name = format!("traffic/{}/{}>{to}/arrivals", self.identity, sender.name);
        let (at, stop) = (self.start(), self.stop);
        Some(Arrivals { stream: self.streams.stream(&name), mean_s: 1.0 / per_second, at, stop, number: 0 })
    }
}

/// Sender, number among its arrivals, receiver, when and how much.
type Arrived = (usize, u64, usize, Time, u64);

/// Application that writes at a rate, if the entry has one.
fn paced(kind: &TrafficKind, bytes: Option<u64>) -> Option<App> {
    let (rate, chunk) = kind.writes_at()?;
    Some(App::Paced { rate_bps: rate.get(), chunk_bytes: chunk.get(), bytes })
}

/// A Poisson process.
struct Arrivals {
    stream: Stream,
    mean_s: f64,
    at: Time,
    stop: Time,
    number: u64,
}

impl Arrivals {
    /// Time of the next arrival, if it is before the end.
    fn advance(&mut self) -> Option<Time> {
        self.at += Span::from_ps((exponential(&mut self.stream, self.mean_s) * 1e12) as u64);
        (self.at < self.stop).then_some(self.at)
    }

    /// Number, bytes and receiver of the one that has come.
    fn take(&mut self, sizes: &Sizes, receivers: usize) -> (u64, u64, usize) {
        let bytes = sizes.quantile(uniform(&mut self.stream)).get();
        let receiver = below(&mut self.stream, receivers);
        self.number += 1;
        (self.number - 1, bytes, receiver)
    }
}
