//! From a case to an engine that is ready to run.

use std::collections::BTreeMap;

use vmcc_cc::{Algorithm, Params};
use vmcc_scenario::model::{Common, Host, Param, Protocol, Scheduler as Chosen, Traffic};
use vmcc_scenario::{ResolvedCase, Scenario};

use super::changes::{self, Remap};
use super::error::SimError;
use crate::engine::Engine;
use crate::lower::{Fabric, span};
use crate::rng::Streams;
use crate::tcp::{
    AlgorithmId, App, ConfigId, ConnId, ConnSpec, DatagramId, Directory, Ecn, HostError, Hosts,
    ReceiveBuffer, Scheduler, SubflowSpec, TcpConfig, World,
};
use crate::time::{Span, Time};
use crate::traffic::{Planned, PlannedDatagrams, plan_datagrams, plan_flows};

/// Up to so many connections, each has its own RTT distribution; beyond, each traffic entry has one.
const OWN_GROUPS: usize = 256;
/// RTT and window samples of one run, about.
const SAMPLES: u64 = 1_000_000;

/// One connection as it was made.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) planned: Planned,
    pub(crate) conn: ConnId,
    /// The connection that carries the answers.
    pub(crate) answers: Option<ConnId>,
    pub(crate) cc: String,
    pub(crate) group: u16,
    /// Current path of each subflow, by index into the fabric's paths.
    pub(crate) paths: Vec<Option<usize>>,
    pub(crate) competing: bool,
}

/// A run ready to go.
pub(crate) struct Setup {
    pub(crate) scenario: Scenario,
    pub(crate) fabric: Fabric,
    pub(crate) engine: Engine<Hosts>,
    pub(crate) directory: Directory,
    pub(crate) flows: Vec<Flow>,
    pub(crate) datagrams: Vec<(DatagramId, PlannedDatagrams)>,
    pub(crate) labels: Vec<String>,
    pub(crate) remaps: Vec<Remap>,
    pub(crate) warmup: Time,
    pub(crate) end: Time,
    pub(crate) interval: Span,
    pub(crate) sample_every: Span,
    pub(crate) warnings: Vec<String>,
}

impl Setup {
    pub(crate) fn build(case: &ResolvedCase, seed: u64, threads: u32) -> Result<Self, SimError> {
        let scenario = case.scenario.clone();
        let streams = Streams::new(seed);
        let mut fabric = Fabric::build(&scenario)?;
        let partition = fabric.partition(threads);
        let mut world = World::new(partition.shard_of());
        let warnings = host_warnings(&scenario)?;
        let planned = plan_flows(&scenario, &fabric, &streams)?;
        let remaps = changes::plan(&scenario, &mut fabric, &mut world, &streams)?;
        let (warmup, end) = (Time::ZERO + span(scenario.warmup), Time::ZERO + span(scenario.duration));
        let count = planned.len();
        let mut maker = Maker::new(&scenario, &mut fabric, &mut world, &streams)?;
        let flows = planned.into_iter().map(|p| maker.flow(p, count)).collect::<Result<Vec<_>, _>>()?;
        let sample_every = sample_every(&scenario, &flows);
        world.sample_every(sample_every);
        let labels: Vec<String> =
            (0..scenario.traffic.len()).map(|i| Traffic::label(&scenario.traffic, i)).collect();
        let mut datagrams = Vec::new();
        for planned in plan_datagrams(&scenario, &mut fabric, &streams)? {
            let traffic = labels[planned.traffic].clone();
            let id = world
                .add_datagrams(planned.spec.clone())
                .map_err(|source| SimError::Host { traffic, source })?;
            datagrams.push((id, planned));
        }
        let interval = span(scenario.interval);
        for queue in fabric.paths.iter().map(|path| path.queue).collect::<Vec<_>>() {
            fabric.net.sample(queue, queue_interval(interval, end))?;
        }
        let remaps = changes::routes(&mut fabric, &scenario, &flows, remaps)?;
        let (hosts, directory) = world.build();
        let engine = Engine::new(&fabric.net, &partition, &streams, hosts)?;
        Ok(Self {
            scenario,
            fabric,
            engine,
            directory,
            flows,
            datagrams,
            labels,
            remaps,
            warmup,
            end,
            interval,
            sample_every,
            warnings,
        })
    }

    /// When competing connections begin and end.
    pub(crate) fn competing_times(&self) -> Vec<Time> {
        let competing = self.flows.iter().filter(|flow| flow.competing);
        let mut times: Vec<Time> = competing
            .flat_map(|flow| [flow.planned.start, flow.planned.stop])
            .filter(|t| *t < self.end)
            .collect();
        times.sort_unstable();
        times.dedup();
        // Many short competing transfers would cut the run into too many parts; their times do not matter then.
        if times.len() > 64 { Vec::new() } else { times }
    }

    /// Events that only take samples, one per interval and shard: the one count that depends on threads.
    pub(crate) fn sample_events(&self) -> u64 {
        let each = (self.end.ps() - 1) / self.sample_every.ps().max(1);
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

fn sample_every(scenario: &Scenario, flows: &[Flow]) -> Span {
    let traced: usize =
        flows.iter().filter(|flow| endless(flow.planned.app)).map(|flow| flow.paths.len()).sum();
    let steps = (SAMPLES / (traced.max(1) as u64)).clamp(10, 1_000);
    Span::from_ps((span(scenario.duration).ps() / steps).max(Span::from_us(100).ps()))
}

/// An application that sends as long as it may: what is sampled. Of short transfers every RTT is counted.
pub(crate) fn endless(app: App) -> bool {
    matches!(app, App::Bulk | App::OnOff { .. })
}

/// Settings that the simulator has no model of.
fn host_warnings(scenario: &Scenario) -> Result<Vec<String>, SimError> {
    if scenario.host.hystart {
        return Err(SimError::Unsupported {
            what: "HyStart (host.hystart)".into(),
            remedy: "leave it off, or use --engine kernel",
        });
    }
    let (host, linux) = (&scenario.host, Host::default());
    let buffers = [
        ("send_buffer", host.send_buffer != linux.send_buffer),
        ("notsent_lowat", host.notsent_lowat != linux.notsent_lowat),
    ];
    let changed = buffers.iter().filter(|(_, differs)| *differs);
    Ok(changed
        .map(|(key, _)| {
            format!("host.{key} has no effect: the simulator's applications never wait for a send buffer")
        })
        .collect())
}

struct Maker<'a> {
    scenario: &'a Scenario,
    fabric: &'a mut Fabric,
    world: &'a mut World,
    streams: &'a Streams,
    /// Without and with ECN asked for.
    configs: [ConfigId; 2],
    algorithms: BTreeMap<String, AlgorithmId>,
}

impl<'a> Maker<'a> {
    fn new(
        scenario: &'a Scenario,
        fabric: &'a mut Fabric,
        world: &'a mut World,
        streams: &'a Streams,
    ) -> Result<Self, SimError> {
        let mut add = |ecn| {
            let config = TcpConfig { ecn, ..tcp_config(&scenario.host) };
            world.add_config(config).map_err(SimError::Config)
        };
        let configs = [add(Ecn::Off)?, add(Ecn::Classic)?];
        Ok(Self { scenario, fabric, world, streams, configs, algorithms: BTreeMap::new() })
    }

    fn algorithm(&mut self, name: &str) -> Result<AlgorithmId, SimError> {
        if let Some(id) = self.algorithms.get(name) {
            return Ok(*id);
        }
        let found = Algorithm::by_name(name).map_err(|e| SimError::Algorithm(e.to_string()))?;
        let mut params = Params::defaults(found);
        for (key, value) in self.scenario.host.params.get(found.name()).into_iter().flatten() {
            let set = match value {
                Param::Number(number) => params.set(key, *number),
                Param::Word(word) => params.set(key, word.as_str()),
            };
            set.map_err(|e| SimError::Algorithm(e.to_string()))?;
        }
        let id = self.world.add_algorithm(found, params);
        self.algorithms.insert(name.to_owned(), id);
        Ok(id)
    }

    fn flow(&mut self, planned: Planned, count: usize) -> Result<Flow, SimError> {
        let scenario = self.scenario;
        let entry = &scenario.traffic[planned.traffic];
        let (common, host) = (&entry.common, &scenario.host);
        let multipath = common.protocol.unwrap_or(host.protocol) == Protocol::Mptcp;
        let (subflows, paths) = self.subflows(&planned, common, multipath)?;
        let cc = common.cc.clone().unwrap_or_else(|| host.cc.clone());
        let own = self.world_flows();
        let group = if count <= OWN_GROUPS { own } else { planned.traffic };
        let spec = ConnSpec {
            sender: self.fabric.hosts[planned.from].0,
            receiver: self.fabric.hosts[planned.to].0,
            start: planned.start,
            stop: planned.stop,
            app: planned.app,
            algorithm: self.algorithm(&cc)?,
            config: self.configs[usize::from(common.ecn.or(host.ecn) == Some(true))],
            scheduler: scheduler(host.scheduler),
            subflows,
            multipath,
            read_rate_bytes_per_s: 0,
            class: self.fabric.class_of(planned.from, common.class),
            group: group as u16,
            trace: endless(planned.app),
        };
        let traffic = || Traffic::label(&scenario.traffic, planned.traffic);
        let conn = self
            .world
            .add_connection(spec)
            .map_err(|source: HostError| SimError::Host { traffic: traffic(), source })?;
        let answers = matches!(planned.app, App::RequestResponse { .. }).then_some(ConnId(conn.0 + 1));
        Ok(Flow { conn, answers, cc, group: group as u16, paths, competing: entry.is_competing(), planned })
    }

    /// Connections made so far: the next one's number.
    fn world_flows(&self) -> usize {
        self.world.connections()
    }

    /// The subflows of a connection, and the path each is on.
    fn subflows(
        &mut self,
        planned: &Planned,
        common: &Common,
        multipath: bool,
    ) -> Result<(Vec<SubflowSpec>, Vec<Option<usize>>), SimError> {
        let count = if multipath { common.subflows.or(self.scenario.host.subflows) } else { Some(1) };
        let allowed = common.path.as_ref().map(|p| p.0.as_slice());
        let mut ecmp = self.streams.stream(&format!("{}/ecmp", planned.stream));
        let ways = self.fabric.ways(planned.from, planned.to, allowed, count, &mut ecmp)?;
        let (mut subflows, mut paths) = (Vec::new(), Vec::new());
        for (index, way) in ways.iter().enumerate() {
            let routes = (self.fabric.route(&way.forward)?, self.fabric.route(&way.reverse)?);
            let mut subflow = SubflowSpec::new(routes.0, routes.1);
            if index > 0 {
                subflow.join_delay = span(self.scenario.host.join_delay);
            }
            subflows.push(subflow);
            paths.push(self.fabric.paths.iter().position(|p| Some(&p.name) == way.path.as_ref()));
        }
        Ok((subflows, paths))
    }
}

fn scheduler(chosen: Chosen) -> Scheduler {
    match chosen {
        Chosen::LowestRtt => Scheduler::LowestRtt,
        Chosen::RoundRobin => Scheduler::RoundRobin { num_segments: 1, cwnd_limited: true },
        Chosen::Redundant => Scheduler::Redundant,
        Chosen::Blest => Scheduler::Blest,
        Chosen::Ecf => Scheduler::Ecf,
    }
}

fn tcp_config(host: &Host) -> TcpConfig {
    let default = TcpConfig::default();
    let max_bytes = host.receive_buffer.get();
    let initial_bytes = match default.receive_buffer {
        // Two packets at least, however large they are.
        ReceiveBuffer::Auto { initial_bytes, .. } => initial_bytes.max(2 * host.mtu.get()).min(max_bytes),
        ReceiveBuffer::Fixed { bytes } => bytes.min(max_bytes),
    };
    TcpConfig {
        mtu_bytes: u16::try_from(host.mtu.get()).unwrap_or(u16::MAX),
        initial_cwnd_pkt: u32::try_from(host.initial_window.get()).unwrap_or(u32::MAX),
        rto_min: span(host.min_rto),
        delayed_ack: span(host.delayed_ack),
        receive_buffer: ReceiveBuffer::Auto { initial_bytes, max_bytes },
        ..default
    }
}
