//! The named cases: what each builds and what is expected of it.
//!
//! All use 1500-byte packets, 10 Gbit/s links with 1 us of delay, 100-packet queues at every port, hosts
//! included, Linux's TCP constants, and bulk transfers that start within the first 100 us. Fat trees
//! carry a random permutation: every host sends to one other and receives from one other.

use vmcc_cc::{Algorithm, Params};
use vmcc_network::{
    Dumbbell, FatTree, HostId, Kind, Loss, Marking, Network, Queue, Reroute, RoutePair, ThresholdRule,
};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos, Packets};

use crate::bench::BenchError;
use crate::bench::fixed::{End, FixedWindow};
use crate::build::{net_spec, partition};
use crate::engine::{Endpoints, Engine, Partition};
use crate::hosts::Hosts;
use crate::net::{NetSpec, NodeId};
use crate::packet::RouteId;
use crate::rng::{Stream, Streams};
use crate::tcp::{
    AckPath, AlgorithmId, App, ConfigId, ConnId, ConnSpec, Directory, Scheduler, SubflowSpec, TcpConfig,
    World,
};
use crate::time::{Span, Time};

const RATE_BPS: u64 = 10_000_000_000;
const PACKET_BYTES: u64 = 1500;
const QUEUE_PKT: u64 = 100;
/// Marking threshold at 10 Gbit/s: Alizadeh et al., Data Center TCP, SIGCOMM 2010, section 4.1.
const MARK_PKT: u64 = 65;
const LINK_DELAY: Nanos = Nanos::from_micros(1);
const SEED: u64 = 1;

/// The network of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// A fat tree with this many ports per switch.
    FatTree {
        /// Ports per switch.
        k: u32,
    },
    /// This many senders, one bottleneck, as many receivers.
    Dumbbell {
        /// Number of flows.
        flows: u32,
    },
}

/// Traffic of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Load {
    /// Connections under this congestion control.
    Transport {
        /// Registry name of the algorithm.
        algorithm: &'static str,
        /// Subflows per connection over distinct paths.
        subflows: u32,
    },
    /// No transport: fixed windows, to show what the engine alone costs.
    FixedWindow {
        /// Windows per pair of hosts, over distinct paths.
        subflows: u32,
        /// Packets per window.
        window_pkt: u32,
    },
}

/// One named case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// One-line description.
    pub title: &'static str,
    /// Network.
    pub shape: Shape,
    /// Traffic.
    pub load: Load,
    /// Simulated time.
    pub duration: Span,
    /// Least packet-hops per CPU second, millions, on the machine where the peers were measured.
    pub floor_mhops: Option<f64>,
    /// Packet-hops per CPU second of csg-htsim in the same case on the same kind of machine, millions.
    pub htsim_mhops: Option<f64>,
    /// Most resident memory, MB.
    pub memory_mb: Option<u64>,
}

const fn case(name: &'static str, title: &'static str, shape: Shape, load: Load, duration: Span) -> Case {
    Case { name, title, shape, load, duration, floor_mhops: None, htsim_mhops: None, memory_mb: None }
}

const DCTCP: Load = Load::Transport { algorithm: "dctcp", subflows: 1 };
const LIA8: Load = Load::Transport { algorithm: "lia", subflows: 8 };

/// All cases.
pub const CASES: [Case; 8] = [
    Case {
        floor_mhops: Some(14.0),
        htsim_mhops: Some(4.45),
        ..case(
            "dctcp-k8",
            "DCTCP, fat tree k=8 (128 hosts), 50 ms",
            Shape::FatTree { k: 8 },
            DCTCP,
            Span::from_ms(50),
        )
    },
    Case {
        floor_mhops: Some(11.0),
        htsim_mhops: Some(3.32),
        ..case(
            "mptcp-k8",
            "MPTCP x 8 (LIA), fat tree k=8, 50 ms",
            Shape::FatTree { k: 8 },
            LIA8,
            Span::from_ms(50),
        )
    },
    Case {
        floor_mhops: Some(7.0),
        htsim_mhops: Some(1.14),
        memory_mb: Some(150),
        ..case(
            "mptcp-k16",
            "MPTCP x 8 (LIA), fat tree k=16 (1024 hosts), 5 ms",
            Shape::FatTree { k: 16 },
            LIA8,
            Span::from_ms(5),
        )
    },
    Case {
        floor_mhops: Some(20.0),
        htsim_mhops: Some(10.4),
        ..case(
            "dctcp-dumbbell",
            "DCTCP, dumbbell, 20 flows, 1 s",
            Shape::Dumbbell { flows: 20 },
            DCTCP,
            Span::from_secs(1),
        )
    },
    Case {
        memory_mb: Some(4096),
        ..case(
            "mptcp-k32",
            "MPTCP x 8 (LIA), fat tree k=32 (8192 hosts), 1 ms",
            Shape::FatTree { k: 32 },
            LIA8,
            Span::from_ms(1),
        )
    },
    case(
        "dctcp-k16",
        "DCTCP, fat tree k=16 (1024 hosts), 10 ms",
        Shape::FatTree { k: 16 },
        DCTCP,
        Span::from_ms(10),
    ),
    case(
        "engine-k8",
        "no transport, fixed windows, fat tree k=8, 20 ms",
        Shape::FatTree { k: 8 },
        Load::FixedWindow { subflows: 1, window_pkt: 20 },
        Span::from_ms(20),
    ),
    case(
        "engine-k16",
        "no transport, 8 fixed windows, fat tree k=16, 2 ms",
        Shape::FatTree { k: 16 },
        Load::FixedWindow { subflows: 8, window_pkt: 10 },
        Span::from_ms(2),
    ),
];

/// A pair of hosts and the routes between them.
struct Pair {
    from: NodeId,
    to: NodeId,
    routes: Vec<(RouteId, RouteId)>,
}

/// Network, partition and host pairs of a case.
struct Plan {
    net: NetSpec,
    partition: Partition,
    pairs: Vec<Pair>,
}

impl Case {
    /// The case called `name`.
    ///
    /// # Errors
    /// [`BenchError::UnknownCase`].
    pub fn by_name(name: &str) -> Result<Case, BenchError> {
        CASES.into_iter().find(|c| c.name == name).ok_or_else(|| BenchError::UnknownCase(name.to_owned()))
    }

    fn plan(&self, threads: u32, subflows: u32, marks: bool) -> Result<Plan, BenchError> {
        match self.shape {
            Shape::FatTree { k } => fat_tree(k, threads, subflows, marks),
            Shape::Dumbbell { flows } => dumbbell(flows, threads, marks),
        }
    }

    /// Builds the case for this many threads.
    ///
    /// # Errors
    /// [`BenchError`] if a named algorithm is missing.
    pub(crate) fn build(&self, threads: u32) -> Result<Built, BenchError> {
        let end = Time::ZERO + self.duration;
        match self.load {
            Load::Transport { algorithm, subflows } => {
                let algorithm = Algorithm::by_name(algorithm)?;
                let plan = self.plan(threads, subflows, algorithm.info().needs_ecn)?;
                let (hosts, directory) = transport(&plan, algorithm)?;
                let engine = engine(&plan, hosts)?;
                Ok(Built::Transport { engine, directory, end, pairs: plan.pairs.len() })
            }
            Load::FixedWindow { subflows, window_pkt } => {
                let plan = self.plan(threads, subflows, false)?;
                let hosts = fixed(&plan, window_pkt);
                Ok(Built::Fixed { engine: engine(&plan, hosts)?, end })
            }
        }
    }
}

/// A case that is ready to run.
pub(crate) enum Built {
    Transport { engine: Engine<Hosts>, directory: Directory, end: Time, pairs: usize },
    Fixed { engine: Engine<FixedWindow>, end: Time },
}

impl Built {
    pub(crate) fn run(&mut self) -> crate::net::Totals {
        match self {
            Built::Transport { engine, end, .. } => {
                engine.run_until(*end);
                engine.totals()
            }
            Built::Fixed { engine, end } => {
                engine.run_until(*end);
                engine.totals()
            }
        }
    }

    /// Mean goodput per pair as a share of the line rate.
    pub(crate) fn utilization(&self) -> Option<f64> {
        let Built::Transport { engine, directory, end, pairs } = self else { return None };
        let hosts: Vec<&Hosts> = engine.hosts().collect();
        let conns = 0..directory.connections() as u32;
        let bytes: u64 = conns.map(|c| directory.delivered_bytes(ConnId(c), &hosts)).sum();
        Some(bytes as f64 * 8.0 / (end.secs_f64() * *pairs as f64 * RATE_BPS as f64))
    }
}

fn engine<E: Endpoints>(plan: &Plan, hosts: Vec<E>) -> Result<Engine<E>, BenchError> {
    Ok(Engine::new(&plan.net, &plan.partition, &Streams::new(SEED), hosts)?)
}

/// The network of a kind with the same marks at every port, hosts' own included.
fn network(kind: &impl Kind, marks: bool) -> Network {
    let mut network = kind.network();
    let at = vmcc_units::Threshold::Bytes(Bytes::new(MARK_PKT * PACKET_BYTES));
    if marks {
        let ports = network.ports.iter_mut().map(|port| &mut port.settings.marking);
        ports.for_each(|marking| *marking = Marking::Threshold(ThresholdRule { at }));
    }
    network
}

/// The default buffer of topologies.
fn buffer() -> Limit {
    Limit::Packets(Packets::new(QUEUE_PKT))
}

fn fat_tree(k: u32, threads: u32, subflows: u32, marks: bool) -> Result<Plan, BenchError> {
    let kind = FatTree {
        k,
        rate: BitsPerSec::new(RATE_BPS),
        delay: LINK_DELAY,
        buffer: buffer(),
        marking: Marking::None,
        queue: Queue::default(),
        reroute: Reroute::default(),
    };
    let (network, tree) = (network(&kind, marks), kind.tree());
    let mut net = net_spec(&network, Bytes::new(PACKET_BYTES))?;
    let streams = Streams::new(SEED);
    let mut ecmp = streams.stream("bench/ecmp");
    let mut pairs = Vec::new();
    for (from, to) in permutation(tree.hosts(), &mut streams.stream("bench/permutation")) {
        let (from, to) = (HostId(from), HostId(to));
        let paths = distinct_paths(&mut ecmp, tree.paths(from, to), subflows).into_iter();
        let route_pair = |path| RoutePair {
            path: None,
            forward: tree.path(from, to, path),
            reverse: tree.path(to, from, path),
        };
        pairs.push(pair(&network, &mut net, (from, to), paths.map(route_pair))?);
    }
    let least: Vec<Span> = net.links().iter().map(|link| link.delay).collect();
    let partition = partition(&network, &net, &least, threads);
    Ok(Plan { net, partition, pairs })
}

/// The left side in the first shard, the right side in the last.
fn dumbbell(flows: u32, threads: u32, marks: bool) -> Result<Plan, BenchError> {
    let kind = Dumbbell {
        pairs: flows,
        rate: BitsPerSec::new(RATE_BPS),
        delay: LINK_DELAY,
        buffer: buffer(),
        marking: Marking::None,
        queue: Queue::default(),
        loss: Loss::default(),
        reverse: None,
        access_rate: None,
        access_delay: LINK_DELAY,
        access_buffer: buffer(),
    };
    let network = network(&kind, marks);
    let mut net = net_spec(&network, Bytes::new(PACKET_BYTES))?;
    let mut pairs = Vec::new();
    for flow in 0..flows {
        let (from, to) = (HostId(flow), HostId(flows + flow));
        let route_pairs = network.routes.between(from, to, 1, &mut || 0);
        pairs.push(pair(&network, &mut net, (from, to), route_pairs.into_iter())?);
    }
    let is_right = |name: &String| threads > 1 && name.starts_with("right");
    let shard_of = network.nodes.iter().map(|name| u8::from(is_right(name))).collect();
    Ok(Plan { net, partition: Partition::new(shard_of), pairs })
}

/// Two hosts and these routes; the description's numbers are the simulator's.
fn pair(
    network: &Network,
    net: &mut NetSpec,
    (from, to): (HostId, HostId),
    route_pairs: impl Iterator<Item = RoutePair>,
) -> Result<Pair, BenchError> {
    let node = |host: HostId| network.hosts[host.index()].node;
    let mut routes = Vec::new();
    for route_pair in route_pairs {
        routes.push((net.route(&route_pair.forward)?, net.route(&route_pair.reverse)?));
    }
    Ok(Pair { from: node(from), to: node(to), routes })
}

fn transport(plan: &Plan, algorithm: Algorithm) -> Result<(Vec<Hosts>, Directory), BenchError> {
    let mut world = World::new(plan.partition.shard_of());
    let config = world.add_config(TcpConfig::default())?;
    let selected = world.add_algorithm(algorithm, Params::defaults(algorithm));
    let mut starts = Streams::new(SEED).stream("bench/start");
    for pair in &plan.pairs {
        let start = Time::ZERO + Span::from_ns(u64::from(below(&mut starts, 100_000)));
        world.add_connection(bulk(pair, start, selected, config))?;
    }
    Ok(world.build())
}

fn bulk(pair: &Pair, start: Time, algorithm: AlgorithmId, config: ConfigId) -> ConnSpec {
    ConnSpec {
        sender: pair.from.0,
        receiver: pair.to.0,
        start,
        stop: Time::NEVER,
        app: App::Bulk,
        algorithm,
        config,
        scheduler: Scheduler::LowestRtt,
        ack_path: AckPath::Own,
        subflows: pair.routes.iter().map(|&(there, back)| SubflowSpec::new(there, back)).collect(),
        multipath: pair.routes.len() > 1,
        read_rate_bps: None,
        class: 0,
        group: 0,
        trace: false,
    }
}

fn fixed(plan: &Plan, window: u32) -> Vec<FixedWindow> {
    let mut hosts = vec![FixedWindow::default(); plan.partition.shards()];
    let shard = |node: NodeId| usize::from(plan.partition.shard_of()[node.0 as usize]);
    for pair in &plan.pairs {
        let (a, b) = (shard(pair.from), shard(pair.to));
        for &(there, back) in &pair.routes {
            let index_a = hosts[a].ends.len() as u32;
            let index_b = if a == b { index_a + 1 } else { hosts[b].ends.len() as u32 };
            hosts[a].ends.push(End { route: there, peer: index_b, window });
            hosts[b].ends.push(End { route: back, peer: index_a, window: 0 });
        }
    }
    hosts
}

/// Each host sends to another, each receives from one: a random cyclic permutation (Sattolo's algorithm).
fn permutation(hosts: u32, rng: &mut Stream) -> Vec<(u32, u32)> {
    let mut to: Vec<u32> = (0..hosts).collect();
    for i in (1..hosts).rev() {
        to.swap(i as usize, below(rng, i) as usize);
    }
    (0..hosts).zip(to).collect()
}

/// `n` path numbers out of `paths`, without repetition as long as there are enough.
fn distinct_paths(rng: &mut Stream, paths: u32, n: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..paths).collect();
    for i in (1..paths).rev() {
        all.swap(i as usize, below(rng, i + 1) as usize);
    }
    all.iter().copied().cycle().take(n as usize).collect()
}

/// A number below `n`.
fn below(rng: &mut Stream, n: u32) -> u32 {
    use rand_xoshiro::rand_core::Rng;
    ((u64::from(rng.next_u32()) * u64::from(n)) >> 32) as u32
}
