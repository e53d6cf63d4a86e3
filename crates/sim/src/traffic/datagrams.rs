//! Datagram senders: on-off patterns, and the random congestion generator.

use vmcc_network::RoutePair;
use vmcc_scenario::Scenario;
use vmcc_scenario::model::{CongestionGenerator, OnOffUdp, Traffic, TrafficKind};

use super::MAX_FLOWS;
use super::pairs::{Sender, senders};
use crate::build::{Fabric, span};
use crate::error::SimError;
use crate::packet::RouteId;
use crate::rng::{Stream, Streams, exponential_span, uniform};
use crate::time::{Span, Time};

const PS_PER_S: u128 = 1_000_000_000_000;

/// A datagram sender to create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DatagramSpec {
    /// Node that sends.
    pub(crate) sender: u32,
    /// Node that receives.
    pub(crate) receiver: u32,
    /// Way from one to the other.
    pub(crate) route: RouteId,
    /// First packet.
    pub(crate) start: Time,
    /// No packet at or after this time.
    pub(crate) stop: Time,
    /// Rate while on, in bits on the wire per second; at least 1.
    pub(crate) rate_bps: u64,
    /// Packet on the wire, in bytes; at least 1.
    pub(crate) size_bytes: u16,
    /// Length of an on period; zero never pauses.
    pub(crate) on: Span,
    /// Length of an off period.
    pub(crate) off: Span,
    /// Traffic class in scheduled queues, 0-7.
    pub(crate) class: u8,
}

/// One busy period, or one regular pattern, of one interface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedDatagrams {
    /// Index of the traffic entry.
    pub(crate) traffic: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) spec: DatagramSpec,
}

/// The datagram senders of every entry.
pub(crate) fn plan_datagrams(
    scenario: &Scenario,
    fabric: &mut Fabric,
    streams: &Streams,
) -> Result<Vec<PlannedDatagrams>, SimError> {
    let mut all = Vec::new();
    let names = Traffic::labels(&scenario.traffic).into_iter().zip(Traffic::identities(&scenario.traffic));
    let entries = scenario.traffic.iter().enumerate().zip(names);
    for ((traffic, entry), (label, identity)) in entries.filter(|((_, t), _)| t.kind.is_datagram()) {
        let end = entry.common.stop.map_or(scenario.duration, |stop| stop.min(scenario.duration));
        for sender in senders(scenario, fabric, entry, &identity, streams)? {
            for receiver in 0..sender.receivers.len() {
                let plan = Plan {
                    streams,
                    entry,
                    label: &label,
                    identity: &identity,
                    sender: &sender,
                    receiver,
                    end: Time::ZERO + span(end),
                };
                let specs = plan.specs(fabric)?;
                let (from, to) = (sender.host, sender.receivers[receiver].0);
                all.extend(specs.into_iter().map(|spec| PlannedDatagrams { traffic, from, to, spec }));
                if all.len() > MAX_FLOWS {
                    return Err(SimError::TooMany { traffic: label, most: MAX_FLOWS });
                }
            }
        }
    }
    Ok(all)
}

struct Plan<'a> {
    streams: &'a Streams,
    entry: &'a Traffic,
    label: &'a str,
    /// Names its random streams.
    identity: &'a str,
    sender: &'a Sender,
    receiver: usize,
    end: Time,
}

impl Plan<'_> {
    fn specs(&self, fabric: &mut Fabric) -> Result<Vec<DatagramSpec>, SimError> {
        let (to, to_name) = &self.sender.receivers[self.receiver];
        let base = format!("traffic/{}/{}>{to_name}", self.identity, self.sender.name);
        let mut ecmp = self.streams.stream(&format!("{base}/ecmp"));
        let allowed = self.entry.common.path.as_ref().map(|p| p.0.as_slice());
        let route_pairs = fabric.route_pairs(self.sender.host, *to, allowed, None, &mut ecmp)?;
        // The generator keeps every interface busy; a plain sender uses one, unless it names several.
        let used = match (&self.entry.kind, allowed) {
            (TrafficKind::CongestionGenerator(_), _) | (_, Some(_)) => route_pairs.len(),
            _ => 1,
        };
        let mut specs = Vec::new();
        for (interface, route_pair) in route_pairs.iter().take(used).enumerate() {
            let spec = self.spec(fabric, *to, route_pair)?;
            // By name, so that a path more leaves the others' draws alone.
            let own = fabric.path_of(route_pair).map(|path| fabric.network.paths[path].name.clone());
            let own = own.unwrap_or_else(|| interface.to_string());
            match &self.entry.kind {
                TrafficKind::OnOffUdp(k) => {
                    let mut stream = self.streams.stream(&format!("{base}/{own}/periods"));
                    self.on_off(k, spec, &mut stream, &mut specs)?;
                }
                TrafficKind::CongestionGenerator(k) => {
                    let own = if k.independent { own } else { "all".into() };
                    let mut stream = self.streams.stream(&format!("{base}/{own}/periods"));
                    self.generator(k, spec, &mut stream, &mut specs)?;
                }
                _ => {}
            }
        }
        Ok(specs)
    }

    fn spec(&self, fabric: &mut Fabric, to: usize, route_pair: &RoutePair) -> Result<DatagramSpec, SimError> {
        let route: RouteId = fabric.route(&route_pair.forward)?;
        Ok(DatagramSpec {
            sender: fabric.node(self.sender.host).0,
            receiver: fabric.node(to).0,
            route,
            start: Time::ZERO + span(self.entry.common.start),
            stop: self.end,
            rate_bps: 1,
            size_bytes: 0,
            on: Span::ZERO,
            off: Span::ZERO,
            class: fabric.class_of(self.sender.host, self.entry.common.class),
        })
    }

    fn full(&self, specs: &[DatagramSpec]) -> Result<(), SimError> {
        if specs.len() < MAX_FLOWS {
            return Ok(());
        }
        Err(SimError::TooMany { traffic: self.label.to_owned(), most: MAX_FLOWS })
    }

    fn on_off(
        &self,
        k: &OnOffUdp,
        base: DatagramSpec,
        stream: &mut Stream,
        specs: &mut Vec<DatagramSpec>,
    ) -> Result<(), SimError> {
        let base = DatagramSpec { rate_bps: k.rate.get(), size_bytes: packet(k.packet), ..base };
        let (Some(on), true) = (k.on, k.random) else {
            let on = k.on.filter(|_| !k.off.is_zero()).map_or(Span::ZERO, span);
            specs.push(DatagramSpec { on, off: span(k.off), ..base });
            return Ok(());
        };
        let (mut at, mut debt) = (base.start, Debt::default());
        while at < self.end {
            self.full(specs)?;
            let on_time = exponential_span(stream, span(on));
            if let Some(start) = debt.first(at, on_time, base.rate_bps, base.size_bytes) {
                specs.push(DatagramSpec { start, stop: (at + on_time).min(self.end), ..base.clone() });
            }
            // A pattern without any pause still makes progress.
            at = at + on_time + exponential_span(stream, span(k.off)) + Span::from_ns(1);
        }
        Ok(())
    }

    fn generator(
        &self,
        k: &CongestionGenerator,
        base: DatagramSpec,
        stream: &mut Stream,
        specs: &mut Vec<DatagramSpec>,
    ) -> Result<(), SimError> {
        let between = |low: u64, high: u64, u: f64| low + ((high - low) as f64 * u) as u64;
        let (mut at, mut debt) = (base.start, Debt::default());
        while at < self.end {
            self.full(specs)?;
            let lasts = between(k.min_duration.get(), k.max_duration.get(), uniform(stream));
            let rate_bps = between(k.min_rate.get(), k.max_rate.get(), uniform(stream));
            let busy = uniform(stream) < k.busy;
            let stop = (at + Span::from_ns(lasts)).min(self.end);
            if busy && rate_bps > 0 {
                let size_bytes = packet(k.packet);
                let start = debt.first(at, Span::from_ns(lasts), rate_bps, size_bytes);
                specs.extend(start.map(|at| DatagramSpec {
                    start: at,
                    stop,
                    rate_bps,
                    size_bytes,
                    ..base.clone()
                }));
            }
            at += Span::from_ns(lasts);
        }
        Ok(())
    }
}

/// On-time that is left until the next packet, over busy periods of any rate.
#[derive(Debug, Default)]
struct Debt {
    /// In bits, times [`PS_PER_S`].
    left: u128,
}

impl Debt {
    /// The first packet of a busy period from `at` on at this rate; `None` if it is too short for one.
    fn first(&mut self, at: Time, lasts: Span, rate_bps: u64, size_bytes: u16) -> Option<Time> {
        let rate = u128::from(rate_bps.max(1));
        let sends = u128::from(lasts.ps()) * rate;
        if self.left >= sends {
            self.left -= sends;
            return None;
        }
        let packet = u128::from(size_bytes.max(1)) * 8 * PS_PER_S;
        let wait = self.left / rate;
        self.left = self.left + (sends - self.left).div_ceil(packet) * packet - sends;
        Some(at + Span::from_ps(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}

fn packet(bytes: vmcc_units::Bytes) -> u16 {
    u16::try_from(bytes.get()).unwrap_or(u16::MAX)
}
