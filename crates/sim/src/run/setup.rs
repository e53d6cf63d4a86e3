//! From a case to an engine that is ready to run.

use vmcc_scenario::model::Traffic;
use vmcc_scenario::{ResolvedCase, Scenario};

use super::changes::{self, RouteChanges};
use super::reroute;
use super::subflows;
use crate::build::{Fabric, span};
use crate::engine::Engine;
use crate::error::SimError;
use crate::hosts::{Hosts, KINDS};
use crate::rng::Streams;
use crate::time::{Span, Time};
use crate::transport::{BuildContext, Managed, Transport};

/// A run ready to go.
pub(crate) struct Setup {
    pub(crate) scenario: Scenario,
    pub(crate) fabric: Fabric,
    pub(crate) engine: Engine<Hosts>,
    /// The kinds of endpoints, as in [`KINDS`].
    pub(crate) transports: Vec<Box<dyn Transport<Hosts>>>,
    /// Of all kinds.
    pub(crate) connections: usize,
    pub(crate) labels: Vec<String>,
    /// By time.
    pub(crate) moves: Vec<RouteChanges>,
    pub(crate) managed: Vec<Managed>,
    pub(crate) warmup: Time,
    pub(crate) end: Time,
    pub(crate) interval: Span,
    pub(crate) warnings: Vec<String>,
}

impl Setup {
    pub(crate) fn build(case: &ResolvedCase, seed: u64, threads: u32) -> Result<Self, SimError> {
        let scenario = case.scenario.clone();
        let streams = Streams::new(seed);
        let mut fabric = Fabric::build(&scenario)?;
        let partition = fabric.partition(&scenario.event, threads);
        let mut hosts: Vec<Hosts> = std::iter::repeat_with(Hosts::default).take(partition.shards()).collect();
        let labels = Traffic::labels(&scenario.traffic);
        let identities = Traffic::identities(&scenario.traffic);
        let mut warnings = Vec::new();
        let mut ctx = BuildContext {
            case,
            scenario: &scenario,
            fabric: &mut fabric,
            streams: &streams,
            shard_of: partition.shard_of(),
            labels: &labels,
            identities: &identities,
            warnings: &mut warnings,
        };
        let transports =
            KINDS.iter().map(|make| make(&mut ctx, &mut hosts)).collect::<Result<Vec<_>, _>>()?;
        let (remaps, off_times) = changes::plan(&scenario, &mut fabric, &streams)?;
        let mut moves = changes::routes(&mut fabric, &scenario, &transports, &remaps)?;
        moves.extend(reroute::plan(&mut fabric, &scenario, &streams, &transports, &hosts)?);
        moves.sort_by_key(|moves| moves.at);
        for (node, times) in off_times {
            hosts[usize::from(partition.shard_of()[node as usize])].deschedule(node, times);
        }
        let managed = subflows::plan(&scenario);
        if moves.is_empty() {
            // One that moves may move to the path that an event names.
            subflows::check(&managed, &transports, &fabric.network.paths)?;
        }
        let (warmup, end) = (Time::ZERO + span(scenario.warmup), Time::ZERO + span(scenario.duration));
        let interval = span(scenario.interval());
        for path in &fabric.network.paths {
            fabric.net.sample(path.queue, queue_interval(interval, end))?;
        }
        let engine = Engine::new(&fabric.net, &partition, &streams, hosts)?;
        let connections = transports.iter().map(|transport| transport.ends().len()).sum();
        Ok(Self {
            scenario,
            fabric,
            engine,
            transports,
            connections,
            labels,
            moves,
            managed,
            warmup,
            end,
            interval,
            warnings,
        })
    }

    /// Applies the scenario's events of this moment: subflows are changed on the paths that they are on by then.
    pub(crate) fn apply_events(&mut self, now: Time) {
        changes::apply(&self.moves, now, &mut self.transports, &mut self.engine);
        let paths = &self.fabric.network.paths;
        subflows::apply(&self.managed, now, (&self.transports, paths), &mut self.engine);
    }

    /// Events that only take samples: the one count that depends on threads.
    pub(crate) fn sample_events(&self) -> u64 {
        let each: u64 = self.transports.iter().map(|transport| transport.samples(self.end)).sum();
        each * self.engine.hosts().count() as u64
    }

    /// The hosts of all shards.
    pub(crate) fn hosts(&self) -> Vec<&Hosts> {
        self.engine.hosts().collect()
    }
}

/// Queues are sampled ten times per interval of the series, so that a distribution is more than its means.
fn queue_interval(interval: Span, end: Time) -> Span {
    Span::from_ps((interval.ps() / 10).max(end.ps() / 100_000).max(1))
}
