//! The connections of a scenario, made.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand_xoshiro::rand_core::Rng;
use vmcc_network::{Framing, Lead, RoutePair, Unloaded};
use vmcc_scenario::model::{Host, Protocol};
use vmcc_scenario::{CongestionControl, Scenario};
use vmcc_units::{BitsPerSec, Bytes, Nanos};

use super::delivered::Delivered;
use super::{Flow, Flows};
use crate::build::span;
use crate::error::{HostError, SimError};
use crate::rtts::rtt_group;
use crate::tcp::config::{AlgorithmId, ConfigId, ConnSpec, EcnMode, ReceiveBuffer, SubflowSpec, TcpConfig};
use crate::tcp::{ConnId, Connections, World};
use crate::time::{Span, Time};
use crate::traffic::{App, Planned, plan_flows};
use crate::transport::{BuildContext, Transport, sample_every};

/// Connections of the entries that have some.
pub(crate) fn make<H>(ctx: &mut BuildContext<'_>, hosts: &mut [H]) -> Result<Box<dyn Transport<H>>, SimError>
where
    H: AsRef<Connections> + AsMut<Connections>,
{
    ctx.warnings.extend(host_warnings(ctx.scenario)?);
    let planned = plan_flows(ctx.scenario, ctx.fabric, ctx.streams, &[Protocol::Mptcp, Protocol::Tcp])?;
    let count = planned.len();
    let scenario = ctx.scenario;
    let labels = ctx.labels;
    let names = ctx.fabric.host_names();
    let mut maker = Builder::new(ctx)?;
    maker.world.reserve(count);
    maker.paths.reserve_exact(count);
    let mut flows = Vec::with_capacity(count);
    for one in planned {
        flows.push(maker.flow(one, count)?);
    }
    maker.warn_of_timeouts();
    let (mut world, paths, traced) = (maker.world, maker.paths, maker.traced);
    let sample_every = sample_every(scenario, traced);
    world.sample_every(sample_every);
    let (made, directory) = world.build();
    for (shard, made) in hosts.iter_mut().zip(made) {
        *shard.as_mut() = made;
    }
    Ok(Box::new(Flows {
        directory,
        delivered: Delivered::new(&flows),
        flows,
        paths,
        hosts: names,
        labels: labels.to_vec(),
        sample_every,
        rtts_at_warmup: None,
        past_paths: Vec::new(),
    }))
}

/// Settings that the simulator has no model of.
fn host_warnings(scenario: &Scenario) -> Result<Vec<String>, SimError> {
    if scenario.host.hystart {
        return Err(SimError::Unsupported {
            what: "HyStart (host.hystart)".into(),
            remedy: "leave it off, or use --engine kernel",
        });
    }
    let mut warnings = Vec::new();
    if scenario.host.notsent_lowat != Host::default().notsent_lowat {
        let why = "the simulator's scheduler gives one segment at a time";
        warnings.push(format!("host.notsent_lowat has no effect: {why}"));
    }
    Ok(warnings)
}

/// Algorithms of a world by their names.
#[derive(Default)]
pub(crate) struct Algorithms(BTreeMap<Arc<str>, AlgorithmId>);

impl Algorithms {
    /// The algorithm of an entry of traffic, and its name, which all its connections share.
    pub(crate) fn of_entry(
        &mut self,
        traffic: usize,
        ctx: &mut BuildContext<'_>,
        world: &mut World,
    ) -> (AlgorithmId, Arc<str>) {
        let CongestionControl { name, params } = &**ctx.case.congestion_control(traffic);
        let id = *self.0.entry(name.clone()).or_insert_with(|| {
            ctx.warnings.extend(params.unheeded());
            world.add_algorithm(params.algorithm(), *params)
        });
        (id, name.clone())
    }
}

struct Builder<'a, 'b> {
    ctx: &'a mut BuildContext<'b>,
    world: World,
    /// Without and with ECN asked for.
    configs: [ConfigId; 2],
    /// Packets of single-path and of multipath connections.
    framings: [Framing; 2],
    algorithms: Algorithms,
    /// Path of each subflow so far.
    paths: Vec<Option<u32>>,
    /// Subflows that are sampled.
    traced: usize,
    /// Entries whose SYNs time out before they can be answered, with the longest of these round trips.
    slow: BTreeMap<usize, Span>,
}

impl<'a, 'b> Builder<'a, 'b> {
    fn new(ctx: &'a mut BuildContext<'b>) -> Result<Self, SimError> {
        let mut world = World::new(ctx.shard_of);
        let pool_secret = ctx.scenario.host.pool_routes.then(|| ctx.streams.stream("pool").next_u64());
        let mut add = |ecn| {
            let config = TcpConfig { ecn, pool_secret, ..tcp_config(&ctx.scenario.host) };
            world.add_config(config).map_err(SimError::Config)
        };
        let configs = [add(EcnMode::Off)?, add(EcnMode::Classic)?];
        let framings = framings(&tcp_config(&ctx.scenario.host));
        Ok(Self {
            ctx,
            world,
            configs,
            framings,
            algorithms: Algorithms::default(),
            paths: Vec::new(),
            traced: 0,
            slow: BTreeMap::new(),
        })
    }

    fn flow(&mut self, planned: Planned, count: usize) -> Result<Flow, SimError> {
        let scenario = self.ctx.scenario;
        let entry = &scenario.traffic[planned.traffic];
        let (common, host) = (&entry.common, &scenario.host);
        let multipath = entry.protocol(host) == Protocol::Mptcp;
        let route_pairs = self.ctx.route_pairs(&planned)?;
        self.note_round_trips(&planned, &route_pairs);
        let first = self.paths.len() as u32;
        let mut subflows = self.subflows(&route_pairs)?;
        let unloaded = self.unloaded(&planned.app, route_pairs, multipath);
        // Who fetches opens the connection.
        let fetches = matches!(planned.app, App::Fetches { .. });
        let (mut opens, mut other) = (planned.from, planned.to);
        if fetches {
            (opens, other) = (other, opens);
            subflows.iter_mut().for_each(|one| *one = one.reversed());
        }
        let trace = endless(&planned.app);
        self.traced += if trace { subflows.len() } else { 0 };
        let (algorithm, cc) = self.algorithms.of_entry(planned.traffic, self.ctx, &mut self.world);
        let own = self.world_flows();
        let group = rtt_group(count, own, planned.traffic);
        let spec = ConnSpec {
            sender: self.ctx.fabric.node(opens).0,
            receiver: self.ctx.fabric.node(other).0,
            start: planned.start,
            // What arrives is fetched, as what has begun on a connection of its own arrives.
            stop: if fetches { Time::NEVER } else { planned.stop },
            app: planned.app.clone(),
            algorithm,
            config: self.configs[usize::from(common.ecn.or(host.ecn) == Some(true))],
            scheduler: common.scheduler.unwrap_or(host.scheduler),
            ack_path: common.ack_path.unwrap_or(host.ack_path),
            subflows,
            multipath,
            read_rate_bps: common.read_rate.map(BitsPerSec::get),
            class: self.ctx.fabric.class_of(planned.from, common.class),
            group,
            trace,
        };
        let traffic = || self.ctx.labels[planned.traffic].clone();
        let conn = self
            .world
            .add_connection(spec)
            .map_err(|source: HostError| SimError::Host { traffic: traffic(), source })?;
        let asks = fetches || matches!(planned.app, App::RequestResponse { .. });
        let answers = asks.then_some(ConnId(conn.0 + 1));
        Ok(Flow {
            traffic: planned.traffic as u32,
            from: planned.from as u32,
            to: planned.to as u32,
            start: planned.start,
            stop: planned.stop,
            fetches,
            conn,
            answers,
            cc,
            group,
            first,
            subflows: (self.paths.len() as u32 - first) as u8,
            competing: entry.is_competing(),
            unloaded,
        })
    }

    fn note_round_trips(&mut self, planned: &Planned, route_pairs: &[RoutePair]) {
        let bytes = TcpConfig::default().ack_bytes;
        let longest = route_pairs.iter().map(|pair| self.ctx.fabric.round_trip(pair, bytes)).max();
        let timeout = span(self.ctx.scenario.host.initial_rto);
        if let Some(rtt) = longest.filter(|rtt| *rtt > timeout) {
            let slowest = self.slow.entry(planned.traffic).or_insert(rtt);
            *slowest = rtt.max(*slowest);
        }
    }

    fn warn_of_timeouts(&mut self) {
        let timeout = self.ctx.scenario.host.initial_rto;
        let gives_up = tcp_config(&self.ctx.scenario.host).handshake_timeout();
        for (entry, rtt) in &self.slow {
            let effect = match *rtt > gives_up {
                true => "a connection gives up before its first answer comes, and nothing gets through",
                false => "SYNs are sent again before they can be answered",
            };
            let (label, rtt) = (&self.ctx.labels[*entry], Nanos::from_micros(rtt.ps().div_ceil(1_000_000)));
            self.ctx.warnings.push(format!(
                "host.initial_rto of {timeout} is below the {rtt} that a round trip of traffic `{label}` takes on the empty network: \
                 {effect}; set it above {rtt}"
            ));
        }
    }

    /// Connections made so far: the next one's number.
    fn world_flows(&self) -> usize {
        self.world.connections()
    }

    /// Timing on the empty network of what the connection transfers.
    fn unloaded(&mut self, app: &App, route_pairs: Vec<RoutePair>, multipath: bool) -> Option<Arc<Unloaded>> {
        let (lead, answers) = match *app {
            App::RequestResponse { request_bytes, .. } => (Lead::Request(request_bytes), true),
            App::Fetches { request_bytes, .. } => (Lead::Request(request_bytes), false),
            _ => (Lead::Handshake, false),
        };
        let turned = |pair: RoutePair| if answers { pair.reversed() } else { pair };
        let carrying: Vec<RoutePair> = route_pairs.into_iter().map(turned).collect();
        self.ctx.fabric.unloaded(&carrying, self.framings[usize::from(multipath)], lead)
    }

    /// The subflows of a connection; notes the path that each is on.
    fn subflows(&mut self, route_pairs: &[RoutePair]) -> Result<Vec<SubflowSpec>, SimError> {
        let mut subflows = Vec::with_capacity(route_pairs.len());
        for (index, route_pair) in route_pairs.iter().enumerate() {
            let routes =
                (self.ctx.fabric.route(&route_pair.forward)?, self.ctx.fabric.route(&route_pair.reverse)?);
            let mut subflow = SubflowSpec::new(routes.0, routes.1);
            subflow.interface = route_pair.forward.first().copied();
            subflow.far_interface = route_pair.reverse.first().copied();
            if index > 0 {
                subflow.join_delay = span(self.ctx.scenario.host.join_delay);
            }
            subflows.push(subflow);
            self.paths.push(self.ctx.fabric.path_of(route_pair).map(|path| path as u32));
        }
        Ok(subflows)
    }
}

/// Packets of single-path and of multipath connections.
pub(crate) fn framings(config: &TcpConfig) -> [Framing; 2] {
    [config.header_bytes, config.header_bytes + config.multipath_header_bytes].map(|header| Framing {
        payload_bytes: config.mtu_bytes.saturating_sub(header).max(1).into(),
        header_bytes: header.into(),
    })
}

pub(crate) fn tcp_config(host: &Host) -> TcpConfig {
    let default = TcpConfig::default();
    let max_bytes = host.receive_buffer.get();
    let initial_bytes = match default.receive_buffer {
        // Two packets at least, however large they are.
        ReceiveBuffer::Auto { initial_bytes, .. } => initial_bytes.max(4 * host.mtu.get()).min(max_bytes),
        ReceiveBuffer::Fixed { bytes } => bytes.min(max_bytes),
    };
    let payload_bytes = host.mtu.get().saturating_sub(default.header_bytes.into());
    let ratio = |memory: Bytes| (payload_bytes << 8) / memory.get().max(1);
    TcpConfig {
        mtu_bytes: u16::try_from(host.mtu.get()).unwrap_or(u16::MAX),
        initial_cwnd_pkt: u32::try_from(host.initial_window.get()).unwrap_or(u32::MAX),
        rto_min: span(host.min_rto),
        rto_initial: span(host.initial_rto),
        delayed_ack: span(host.delayed_ack),
        receive_buffer: ReceiveBuffer::Auto { initial_bytes, max_bytes },
        scaling_ratio: host.packet_memory.map_or(default.scaling_ratio, |m| ratio(m).clamp(1, 255) as u8),
        send_buffer_bytes: host.send_buffer.get(),
        min_paths: host.min_paths.unwrap_or(default.min_paths),
        ..default
    }
}

/// An application that sends as long as it may: what is sampled. Of short transfers every RTT is counted.
pub(crate) fn endless(app: &App) -> bool {
    matches!(app, App::Bulk | App::Paced { bytes: None, .. } | App::OnOff { .. })
}
