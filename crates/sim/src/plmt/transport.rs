//! Sessions over TCP carriers of a scenario: made, read, moved, observed.

use std::collections::BTreeMap;
use std::sync::Arc;

use vmcc_metrics::observed::{self, Moment, Observed, Subflow};
use vmcc_network::{Framing, Lead, RoutePair, Unloaded};
use vmcc_scenario::model::Protocol;
use vmcc_tcp::Config;

use super::carrier::{Bytes, Carrier};
use super::end::{App, End, Spec};
use super::{Owner, Sessions};
use crate::endpoint::MAX_INDEX;
use crate::error::{HostError, SimError};
use crate::rtts::{RttGroups, rtt_group};
use crate::tcp::{
    self, AckPath, AlgorithmId, Algorithms, ConfigId, ConnId, ConnRecord, ConnSpec, Connections, Directory,
    EcnMode, SubflowSpec, TcpConfig, World, endless,
};
use crate::time::{Span, Time};
use crate::traffic::{App as Planning, Planned, Writer, plan_flows};
use crate::transport::{BuildContext, Ends, Part, RouteChange, Routed, Transport, at, job, sample_every};

/// Connections of a route that a session without end may make, one after the other. A transfer makes one: thousands of them need room.
const MAX_DIALS: usize = 8;

/// One session.
#[derive(Debug)]
struct Flow {
    planned: Planned,
    cc: Arc<str>,
    competing: bool,
    /// Among the distributions of round trips.
    group: u32,
    routes: Vec<CarrierRoute>,
    /// Shard and index of both ends.
    sends: (usize, usize),
    reads: (usize, usize),
    /// Timing of its transfer on the empty network.
    unloaded: Option<Arc<Unloaded>>,
    /// Bytes delivered at the last reading.
    settled: u64,
    window_bytes: u64,
}

/// A route of a session, and the connections along it.
#[derive(Debug)]
struct CarrierRoute {
    /// Current path, by index into the fabric's paths.
    path: Option<usize>,
    /// From the client; the twin in the other direction has the next number.
    dials: Vec<ConnId>,
    /// Bytes that had arrived at the last reading.
    settled: u64,
}

/// The twin of a carrier's connection, in the other direction.
fn twin(conn: ConnId) -> ConnId {
    ConnId(conn.0 + 1)
}

#[derive(Debug, Default)]
struct Flows {
    flows: Vec<Flow>,
    directory: Directory,
    sample_every: Span,
    /// RTT distributions when the window began.
    rtts_at_warmup: Option<RttGroups>,
}

/// Both ends of every session of the entries with this transport.
pub(crate) fn make<H>(ctx: &mut BuildContext<'_>, hosts: &mut [H]) -> Result<Box<dyn Transport<H>>, SimError>
where
    H: AsRef<Sessions> + AsMut<Sessions>,
{
    let planned = plan_flows(ctx.scenario, ctx.fabric, ctx.streams, &[Protocol::Plmt])?;
    if planned.is_empty() {
        return Ok(Box::new(Flows::default()));
    }
    let mut builder = Builder::new(ctx)?;
    let count = planned.len();
    let made = planned.into_iter().enumerate().map(|(number, planned)| builder.flow(number, count, planned));
    let mut flows = made.collect::<Result<Vec<_>, _>>()?;
    let Builder { ctx, mut world, .. } = builder;
    let traced = flows.iter().filter(|(flow, _)| endless(&flow.planned.app));
    let sample_every = sample_every(ctx.scenario, traced.map(|(flow, _)| flow.routes.len()).sum());
    world.sample_every(sample_every);
    let (tables, directory) = world.build::<Connections>();
    for (sessions, tcp) in hosts.iter_mut().map(AsMut::as_mut).zip(tables) {
        sessions.owners =
            (vec![Owner::default(); tcp.conns.len()], vec![Owner::default(); tcp.rx_conns.len()]);
        sessions.tcp = tcp;
    }
    for (flow, ends) in &mut flows {
        add_ends(flow, ends, &directory, hosts);
    }
    let flows = flows.into_iter().map(|(flow, _)| flow).collect();
    Ok(Box::new(Flows { flows, directory, sample_every, rtts_at_warmup: None }))
}

/// Parameters of a session's client and server.
struct EndSpecs {
    client: (Spec, App),
    server: (Spec, App),
}

/// Puts the ends of a session into the tables of their shards.
fn add_ends<H: AsMut<Sessions>>(flow: &mut Flow, specs: &EndSpecs, directory: &Directory, hosts: &mut [H]) {
    let per_route = flow.routes.first().map_or(1, |route| route.dials.len());
    let (mut of_client, mut of_server) = (Vec::new(), Vec::new());
    let (mut from, mut to) = (0, 0);
    for (slot, route) in (0..).zip(&flow.routes) {
        for &conn in &route.dials {
            let (there, back) = (Bytes::default(), Bytes::default());
            let ((client, tx), (server, rx)) = (directory.sender(conn), directory.receiver(conn));
            let ((_, answers), (_, answered)) =
                (directory.sender(twin(conn)), directory.receiver(twin(conn)));
            hosts[client].as_mut().tcp.conns[tx as usize].slot = slot;
            hosts[server].as_mut().tcp.conns[answers as usize].slot = slot;
            of_client.push(Carrier::new((tx, answered), &there, &back));
            of_server.push(Carrier::new((answers, rx), &back, &there));
            (from, to) = (client, server);
        }
    }
    let mut add = |shard: usize, (spec, app): &(Spec, App), carriers: Vec<Carrier>| {
        let sessions = hosts[shard].as_mut();
        let index = sessions.ends.len();
        for (carrier, own) in (0..).zip(&carriers) {
            let owner = Owner { end: index as u32, carrier };
            let (tx, rx) = own.halves();
            sessions.owners.0[tx as usize] = owner;
            sessions.owners.1[rx as usize] = owner;
        }
        sessions.ends.push(End::new(spec.clone(), *app, index as u32, carriers, per_route));
        (shard, index)
    };
    flow.sends = add(from, &specs.client, of_client);
    flow.reads = add(to, &specs.server, of_server);
}

struct Builder<'a, 'b> {
    ctx: &'a mut BuildContext<'b>,
    world: World,
    /// Without and with ECN asked for.
    configs: [ConfigId; 2],
    framing: Framing,
    algorithms: Algorithms,
}

impl<'a, 'b> Builder<'a, 'b> {
    fn new(ctx: &'a mut BuildContext<'b>) -> Result<Self, SimError> {
        let mut world = World::new(ctx.shard_of);
        let host = tcp::tcp_config(&ctx.scenario.host);
        let [framing, _] = tcp::framings(&host);
        let mut add = |ecn| world.add_config(TcpConfig { ecn, ..host.clone() }).map_err(SimError::Config);
        let configs = [add(EcnMode::Off)?, add(EcnMode::Classic)?];
        Ok(Self { ctx, world, configs, framing, algorithms: Algorithms::default() })
    }

    fn flow(&mut self, number: usize, count: usize, planned: Planned) -> Result<(Flow, EndSpecs), SimError> {
        let scenario = self.ctx.scenario;
        let entry = &scenario.traffic[planned.traffic];
        let writer = self.writer(&planned)?;
        let (algorithm, cc) = self.algorithms.of_entry(planned.traffic, self.ctx, &mut self.world);
        let route_pairs = self.ctx.route_pairs(&planned)?;
        let group = rtt_group(count, number, planned.traffic);
        let routes = route_pairs
            .iter()
            .map(|pair| self.route(&planned, pair, algorithm, group))
            .collect::<Result<Vec<_>, _>>()?;
        let unloaded = self.ctx.fabric.unloaded(&route_pairs, self.framing, Lead::Handshake);
        let config = Config {
            scheduler: entry.common.scheduler.unwrap_or(scenario.host.scheduler),
            max_carriers: routes.len(),
            ..Config::default()
        };
        let spec = |end: usize, name: &str| Spec {
            host: self.ctx.fabric.node(end).0,
            config: config.clone(),
            secrets: self.ctx.seed(&planned, name),
            stop: planned.stop,
        };
        let specs = EndSpecs {
            client: (spec(planned.from, "client"), App::Writes(writer)),
            server: (spec(planned.to, "server"), App::Reads),
        };
        let flow = Flow {
            cc,
            competing: entry.is_competing(),
            group,
            routes,
            sends: (0, 0),
            reads: (0, 0),
            unloaded,
            settled: 0,
            window_bytes: 0,
            planned,
        };
        Ok((flow, specs))
    }

    /// Application of the session's client.
    fn writer(&self, planned: &Planned) -> Result<Writer, SimError> {
        let refuse = |what: &str, remedy| {
            let label = &self.ctx.labels[planned.traffic];
            Err(SimError::Unsupported { what: format!("traffic `{label}` over TCP carriers {what}"), remedy })
        };
        if self.ctx.scenario.traffic[planned.traffic].common.read_rate.is_some() {
            return refuse("with a `read_rate`", "leave it out, or use protocol = \"mptcp\"");
        }
        match Writer::of(&planned.app) {
            Some(writer) => Ok(writer),
            None => refuse(
                "whose connections ask for answers",
                "use `bulk`, `sized` or `poisson` without `kept_connections`, or protocol = \"mptcp\"",
            ),
        }
    }

    /// The connections along a route.
    fn route(
        &mut self,
        planned: &Planned,
        pair: &RoutePair,
        algorithm: AlgorithmId,
        group: u32,
    ) -> Result<CarrierRoute, SimError> {
        let scenario = self.ctx.scenario;
        let common = &scenario.traffic[planned.traffic].common;
        let (forward, reverse) =
            (self.ctx.fabric.route(&pair.forward)?, self.ctx.fabric.route(&pair.reverse)?);
        let first = ConnSpec {
            sender: self.ctx.fabric.node(planned.from).0,
            receiver: self.ctx.fabric.node(planned.to).0,
            start: planned.start,
            stop: Time::NEVER,
            app: Planning::Carrier,
            algorithm,
            config: self.configs[usize::from(common.ecn.or(scenario.host.ecn) == Some(true))],
            scheduler: scenario.host.scheduler,
            ack_path: AckPath::Own,
            subflows: vec![SubflowSpec::new(forward, reverse)],
            multipath: false,
            read_rate_bps: None,
            class: self.ctx.fabric.class_of(planned.from, common.class),
            group,
            trace: endless(&planned.app),
        };
        let count = if endless(&planned.app) { MAX_DIALS } else { 1 };
        let dials = (0..count).map(|number| {
            let start = if number == 0 { first.start } else { Time::NEVER };
            if self.world.connections() >= MAX_INDEX as usize {
                return Err(HostError::Full);
            }
            self.world.add_connection(ConnSpec { start, ..first.clone() })
        });
        let traffic = || self.ctx.labels[planned.traffic].clone();
        let dials = dials
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| SimError::Host { traffic: traffic(), source })?;
        Ok(CarrierRoute { path: self.ctx.fabric.path_of(pair), dials, settled: 0 })
    }
}

/// The connections of carriers in each shard.
fn tables<'a, H: AsRef<Sessions>>(hosts: &[&'a H]) -> Vec<&'a Connections> {
    hosts.iter().map(|&shard| &shard.as_ref().tcp).collect()
}

impl CarrierRoute {
    /// Records of its connections in both directions, from the client first.
    fn records(&self, directory: &Directory, tcp: &[&Connections]) -> Vec<[ConnRecord; 2]> {
        let both = |&conn: &ConnId| [directory.flow(conn, tcp), directory.flow(twin(conn), tcp)];
        self.dials.iter().map(both).collect()
    }

    /// The connections along it as subflows that follow each other.
    fn subflows(
        &self,
        number: usize,
        (directory, tcp): (&Directory, &[&Connections]),
        samples: &mut BTreeMap<ConnId, Vec<observed::Sample>>,
    ) -> Vec<Subflow> {
        let mut subflows = Vec::new();
        for (dial, directions) in self.dials.iter().zip(self.records(directory, tcp)) {
            let samples = samples.remove(dial).unwrap_or_default();
            let seen = tcp::observed_subflow(&directions, 0);
            // Connections that were never needed.
            if seen.established || subflows.is_empty() {
                subflows.push(Subflow { number, path: self.path, samples, ..seen });
            }
        }
        subflows
    }
}

impl Flow {
    fn reader<'a>(&self, hosts: &[&'a impl AsRef<Sessions>]) -> &'a End {
        &hosts[self.reads.0].as_ref().ends[self.reads.1]
    }

    fn sender<'a>(&self, hosts: &[&'a impl AsRef<Sessions>]) -> &'a End {
        &hosts[self.sends.0].as_ref().ends[self.sends.1]
    }

    fn connection(
        &self,
        hosts: &[&impl AsRef<Sessions>],
        subflows: Vec<Subflow>,
        (groups, end): (usize, Moment),
    ) -> observed::Connection {
        let (delivered, stats) = (&self.reader(hosts).delivered, self.sender(hosts).stats());
        let times = (self.planned.start, self.planned.stop);
        observed::Connection {
            entry: self.planned.traffic,
            sender: self.planned.from,
            from: self.planned.from_name.clone(),
            to: self.planned.to_name.clone(),
            cc: self.cc.clone(),
            job: job(&self.planned.app),
            start: at(self.planned.start),
            stop: at(self.planned.stop),
            unloaded: self.unloaded.clone(),
            established: self.sender(hosts).connected,
            received: (delivered.complete != Time::NEVER).then(|| at(delivered.complete)),
            delivered_bytes: delivered.bytes,
            window_bytes: self.window_bytes as f64,
            stalled_us: delivered.stalled_us(&self.planned.app, times, Time::from_ps(end.0)),
            reinjected_bytes: Some(stats.returned_bytes + stats.repeated_bytes),
            limits: None,
            held_bytes: None,
            rtts: Some(groups + self.group as usize),
            subflows,
        }
    }
}

/// Samples of carriers by their connection, in order of time.
fn samples(tcp: &[&Connections]) -> BTreeMap<ConnId, Vec<observed::Sample>> {
    let mut all: BTreeMap<ConnId, Vec<observed::Sample>> = BTreeMap::new();
    for sample in tcp.iter().flat_map(|shard| shard.samples()) {
        all.entry(sample.conn).or_default().push(tcp::observed_sample(sample));
    }
    all
}

impl<H: AsRef<Sessions> + AsMut<Sessions>> Transport<H> for Flows {
    fn ends(&self) -> Vec<Ends> {
        let one = |flow: &Flow| {
            let (traffic, from, to) = (flow.planned.traffic, flow.planned.from, flow.planned.to);
            Ends { traffic, from, to, subflows: flow.routes.len() }
        };
        self.flows.iter().map(one).collect()
    }

    fn settle(&mut self, hosts: &[&H], part: &mut Part) {
        let (directory, tcp) = (&self.directory, tables(hosts));
        for flow in &mut self.flows {
            let delivered = flow.reader(hosts).delivered.bytes;
            let new = delivered - std::mem::replace(&mut flow.settled, delivered);
            part.traffic[flow.planned.traffic] += new;
            flow.window_bytes += if part.inside { new } else { 0 };
            for route in &mut flow.routes {
                let of_dial = |&conn: &ConnId| directory.delivered_bytes(conn, &tcp);
                let bytes: u64 = route.dials.iter().map(of_dial).sum();
                let new = bytes - std::mem::replace(&mut route.settled, bytes);
                part.add_on_path(route.path, flow.competing, new);
            }
        }
    }

    fn warmed_up(&mut self, hosts: &[&H]) {
        self.rtts_at_warmup = Some(self.directory.rtts(tables(hosts)));
    }

    fn routed(&self, hosts: &[H]) -> Vec<Routed> {
        let directory = &self.directory;
        let tcp: Vec<&Connections> = hosts.iter().map(|shard| &shard.as_ref().tcp).collect();
        let of_flow = |(ends, flow): (usize, &Flow)| {
            let (traffic, from, to) = (flow.planned.traffic, flow.planned.from, flow.planned.to);
            let one = |(subflow, route): (usize, &CarrierRoute)| {
                let (there, back) = directory.routes(*route.dials.first()?, 0, &tcp);
                let (routes, path) = ((there, Some(back)), route.path);
                Some(Routed { ends, subflow, traffic, from, to, routes, path })
            };
            flow.routes.iter().enumerate().filter_map(one).collect::<Vec<_>>()
        };
        self.flows.iter().enumerate().flat_map(of_flow).collect()
    }

    fn reroute(&mut self, moved: &RouteChange, hosts: &mut [&mut H]) {
        let directory = &self.directory;
        let mut tcp: Vec<&mut Connections> = hosts.iter_mut().map(|shard| &mut shard.as_mut().tcp).collect();
        let route = &mut self.flows[moved.ends].routes[moved.subflow];
        for &conn in &route.dials {
            directory.reroute(conn, 0, moved.routes, &mut tcp);
            directory.reroute(twin(conn), 0, (moved.routes.1, moved.routes.0), &mut tcp);
        }
        route.path = moved.path;
    }

    fn samples(&self, end: Time) -> u64 {
        (end.ps() - 1).checked_div(self.sample_every.ps()).unwrap_or(0)
    }

    fn observe(&self, hosts: &[&H], observed: &mut Observed) {
        let directory = &self.directory;
        let tcp = tables(hosts);
        let (groups, end) = (observed.rtts.len(), observed.window.1);
        let mut samples = samples(&tcp);
        for flow in &self.flows {
            let of_route = |(number, route): (usize, &CarrierRoute)| {
                route.subflows(number, (directory, &tcp), &mut samples)
            };
            let subflows = flow.routes.iter().enumerate().flat_map(of_route).collect();
            observed.connections.push(flow.connection(hosts, subflows, (groups, end)));
        }
        let mut rtts = directory.rtts(tcp.iter().copied()).into_groups();
        for (group, histogram) in (0..).zip(&mut rtts) {
            if let Some(early) = self.rtts_at_warmup.as_ref().and_then(|rtts| rtts.group(group)) {
                let _ = histogram.subtract(early);
            }
        }
        observed.rtts.extend(rtts);
    }
}
