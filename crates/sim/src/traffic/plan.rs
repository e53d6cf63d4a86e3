//! Connections: when each starts, between whom, and how much it sends.

use vmcc_scenario::Scenario;
use vmcc_scenario::model::{Incast, Poisson, Traffic, TrafficKind};
use vmcc_scenario::sizes::Sizes;

use super::pairs::{Sender, senders};
use super::{MAX_FLOWS, below, exponential, uniform};
use crate::host::App;
use crate::rng::Streams;
use crate::run::SimError;
use crate::time::{Span, Time};
use crate::topo::{Fabric, span};

/// One connection to be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    /// Index of the traffic entry.
    pub(crate) traffic: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) from_name: String,
    pub(crate) to_name: String,
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
    /// When the entry, or else the run, stops.
    stop: Time,
    planned: Vec<Planned>,
}

/// The connections of every entry, in the entries' order.
pub(crate) fn plan_flows(
    scenario: &Scenario,
    fabric: &Fabric,
    streams: &Streams,
) -> Result<Vec<Planned>, SimError> {
    let mut all = Vec::new();
    for (traffic, entry) in scenario.traffic.iter().enumerate() {
        if entry.kind.is_datagram() {
            continue;
        }
        let label = Traffic::label(&scenario.traffic, traffic);
        let senders = senders(scenario, fabric, entry, &label, streams)?;
        let end = entry.common.stop.map_or(scenario.duration, |stop| stop.min(scenario.duration));
        let stop = Time::ZERO + span(end);
        let mut planner = Planner { fabric, streams, entry, traffic, label, stop, planned: Vec::new() };
        for sender in &senders {
            planner.sender(sender)?;
        }
        all.append(&mut planner.planned);
    }
    Ok(all)
}

impl Planner<'_> {
    fn sender(&mut self, sender: &Sender) -> Result<(), SimError> {
        match &self.entry.kind {
            TrafficKind::Bulk(k) => self.connections(sender, k.connections, |_| App::Bulk),
            TrafficKind::Sized(k) => {
                self.connections(sender, k.connections, |_| App::Sized { bytes: k.size.get() })
            }
            TrafficKind::RequestResponse(k) => {
                self.connections(sender, k.connections, |_| App::RequestResponse {
                    request_bytes: k.request.get(),
                    response_bytes: k.response.get(),
                    count: 0,
                    think: span(k.think),
                })
            }
            TrafficKind::Incast(k) => self.incast(sender, k),
            TrafficKind::Poisson(k) => self.poisson(sender, k),
            TrafficKind::App(_) => Err(SimError::Unsupported {
                what: format!("traffic `{}` of kind `app`", self.label),
                remedy: "real programs need --engine kernel or guest",
            }),
            TrafficKind::OnOffUdp(_) | TrafficKind::CongestionGenerator(_) => Ok(()),
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
        if self.planned.len() >= MAX_FLOWS {
            return Err(SimError::TooMany { traffic: self.label.clone(), most: MAX_FLOWS });
        }
        let (to, to_name) = sender.receivers[receiver].clone();
        let stream = format!("traffic/{}/{}>{to_name}/{number}", self.label, sender.name);
        let from_name = sender.name.clone();
        // An entry that ends with the run needs no end of its own.
        let stop = if self.entry.common.stop.is_some() { self.stop } else { Time::NEVER };
        let (traffic, from) = (self.traffic, sender.host);
        self.planned.push(Planned { traffic, from, to, from_name, to_name, stream, start, stop, app });
        Ok(())
    }

    /// The receivers of the `number`-th connection of a sender.
    fn receivers(&self, sender: &Sender, number: u64) -> Vec<usize> {
        if !sender.random {
            return (0..sender.receivers.len()).collect();
        }
        let name = format!("traffic/{}/{}/receiver/{number}", self.label, sender.name);
        vec![below(&mut self.streams.stream(&name), sender.receivers.len())]
    }

    /// Long-lived connections start within one round trip of each other, as no two programs start at once.
    fn connections(&mut self, sender: &Sender, count: u32, app: impl Fn(u32) -> App) -> Result<(), SimError> {
        for number in 0..count {
            for receiver in self.receivers(sender, u64::from(number)) {
                let name = format!(
                    "traffic/{}/{}>{}/{number}/start",
                    self.label, sender.name, sender.receivers[receiver].1
                );
                let share = uniform(&mut self.streams.stream(&name));
                let wait = Span::from_ps((self.fabric.base_rtt.ps() as f64 * share) as u64);
                self.push(sender, receiver, u64::from(number), self.start() + wait, app(number))?;
            }
        }
        Ok(())
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

    /// One process per sender; each arrival goes to one of its receivers.
    fn poisson(&mut self, sender: &Sender, k: &Poisson) -> Result<(), SimError> {
        let sizes = Sizes::from(&k.sizes);
        let rate_bps = self.fabric.host_rates[sender.host].get() as f64;
        let per_second = match (k.load, k.per_second) {
            (Some(load), _) => load * rate_bps / 8.0 / sizes.mean(),
            (None, Some(per_second)) => per_second,
            (None, None) => return Ok(()),
        };
        // A one-to-one sender may appear once per receiver; each is a process of its own.
        let to = if let [only] = &sender.receivers[..] { only.1.as_str() } else { "any" };
        let mut stream =
            self.streams.stream(&format!("traffic/{}/{}>{to}/arrivals", self.label, sender.name));
        let mut at = self.start();
        let mut number = 0;
        loop {
            at += Span::from_ps((exponential(&mut stream, 1.0 / per_second) * 1e12) as u64);
            let limit = k.limit.is_some_and(|limit| self.planned.len() >= limit as usize);
            if at >= self.stop || limit {
                return Ok(());
            }
            let bytes = sizes.quantile(uniform(&mut stream)).get();
            let receiver = below(&mut stream, sender.receivers.len());
            self.push(sender, receiver, number, at, App::Sized { bytes })?;
            number += 1;
        }
    }
}
