//! QUIC connections of a scenario: made, read, moved, observed.

use std::sync::Arc;

use vmcc_cc::Params;
use vmcc_metrics::observed::{self, Closed, Counters, Moment, Observed, Subflow};
use vmcc_multipath::MIN_PATHS;
use vmcc_network::{Framing, Lead, Unloaded};
use vmcc_scenario::CongestionControl;
use vmcc_scenario::model::{Host, Protocol, Traffic};
use vmcc_transport::{Config, PathClose};

use super::end::{App, End, Sample, Spec};
use super::{HEADERS_BYTES, QuicEnds};
use crate::build::span;
use crate::endpoint::MAX_INDEX;
use crate::error::{HostError, SimError, shard_of};
use crate::packet::RouteId;
use crate::rtts::{RttGroups, rtt_group};
use crate::time::{Span, Time};
use crate::traffic::{App as Planning, Planned, Writer, plan_flows};
use crate::transport::{BuildContext, Ends, Part, RouteChange, Routed, Transport, at, job, sample_every};

/// The least that every path of QUIC's carries (RFC 9000 section 14).
const MIN_DATAGRAM_BYTES: u64 = 1200;

/// One connection.
#[derive(Debug)]
struct Flow {
    planned: Planned,
    cc: Arc<str>,
    competing: bool,
    /// Shard and index of who sends, and of who reads.
    sends: (usize, usize),
    reads: (usize, usize),
    /// Among the distributions of round trips.
    group: u32,
    /// Current path of each subflow, by index into the fabric's paths.
    paths: Vec<Option<usize>>,
    /// Timing of its transfer on the empty network.
    unloaded: Option<Arc<Unloaded>>,
    /// Bytes delivered at the last reading: in all, and by subflow.
    settled: (u64, Vec<u64>),
    window_bytes: u64,
}

#[derive(Debug, Default)]
struct Flows(Vec<Flow>);

/// Both ends of every connection of the entries with this transport.
pub(crate) fn make<H>(ctx: &mut BuildContext<'_>, hosts: &mut [H]) -> Result<Box<dyn Transport<H>>, SimError>
where
    H: AsRef<QuicEnds> + AsMut<QuicEnds>,
{
    let planned = plan_flows(ctx.scenario, ctx.fabric, ctx.streams, &[Protocol::Quic])?;
    let sample_every = sample_every(ctx.scenario, planned.len() * 2);
    let count = planned.len();
    let flows = planned.into_iter().enumerate().map(|(number, planned)| {
        let group = rtt_group(count, number, planned.traffic);
        flow(ctx, hosts, planned, (sample_every, group))
    });
    Ok(Box::new(Flows(flows.collect::<Result<_, _>>()?)))
}

fn flow(
    ctx: &mut BuildContext<'_>,
    hosts: &mut [impl AsMut<QuicEnds>],
    planned: Planned,
    (sample_every, group): (Span, u32),
) -> Result<Flow, SimError> {
    let scenario = ctx.scenario;
    let entry = &scenario.traffic[planned.traffic];
    let app = app(ctx, &planned)?;
    let refuse = |source: HostError| SimError::Host { traffic: ctx.labels[planned.traffic].clone(), source };
    let shard = |end: usize| {
        let node = ctx.fabric.node(end).0;
        shard_of(ctx.shard_of, node).map(usize::from).map_err(refuse)
    };
    let (from, to) = (shard(planned.from)?, shard(planned.to)?);
    let (sends, reads) =
        (hosts[from].as_mut().all.len(), hosts[to].as_mut().all.len() + usize::from(from == to));
    if sends.max(reads) >= MAX_INDEX as usize {
        return Err(refuse(HostError::Full));
    }
    let CongestionControl { name: cc, params } = &**ctx.case.congestion_control(planned.traffic);
    let route_pairs = ctx.route_pairs(&planned)?;
    let config = Arc::new(config(ctx, entry, (cc, params), route_pairs.len())?);
    let (mut routes, mut paths) = ((Vec::new(), Vec::new()), Vec::new());
    for pair in &route_pairs {
        routes.0.push(ctx.fabric.route(&pair.forward)?);
        routes.1.push(ctx.fabric.route(&pair.reverse)?);
        paths.push(ctx.fabric.path_of(pair));
    }
    let spec = |end: usize, to: usize, routes: Vec<RouteId>, name: &str, sample_every: Span| Spec {
        host: ctx.fabric.node(end).0,
        to: to as u32,
        routes,
        class: ctx.fabric.class_of(planned.from, entry.common.class),
        config: config.clone(),
        seed: ctx.seed(&planned, name),
        start: planned.start,
        stop: planned.stop,
        sample_every,
        group,
        measured_from: Time::ZERO + span(scenario.warmup),
    };
    let sender = spec(planned.from, reads, routes.0, "client", sample_every);
    let reader = spec(planned.to, sends, routes.1, "server", Span::ZERO);
    hosts[from].as_mut().rtts.add_group(group);
    hosts[from].as_mut().all.push(End::new(sender, app));
    hosts[to].as_mut().all.push(End::new(reader, App::Reads));
    // A lower bound: packet headers and tags of QUIC itself are left out.
    let payload_bytes = scenario.host.mtu.get().saturating_sub(HEADERS_BYTES.into()).max(1);
    let framing = Framing { payload_bytes: payload_bytes as u32, header_bytes: HEADERS_BYTES.into() };
    let unloaded = ctx.fabric.unloaded(&route_pairs, framing, Lead::Handshake);
    let (competing, settled) = (entry.is_competing(), (0, vec![0; paths.len()]));
    let (sends, reads) = ((from, sends), (to, reads));
    let cc = cc.clone();
    Ok(Flow { planned, cc, group, competing, sends, reads, paths, unloaded, settled, window_bytes: 0 })
}

/// Application of the connection's sender.
fn app(ctx: &BuildContext<'_>, planned: &Planned) -> Result<App, SimError> {
    let label = &ctx.labels[planned.traffic];
    let refuse = |what: &str, remedy| {
        Err(SimError::Unsupported { what: format!("traffic `{label}` over QUIC {what}"), remedy })
    };
    if ctx.scenario.traffic[planned.traffic].common.read_rate.is_some() {
        return refuse("with a `read_rate`", "leave it out, or use protocol = \"mptcp\"");
    }
    match (Writer::of(&planned.app), &planned.app) {
        (Some(writer), _) => Ok(App::Sends(writer)),
        (None, Planning::Fetches { .. }) => {
            refuse("on `kept_connections`", "leave the key out, or use protocol = \"mptcp\"")
        }
        (None, _) => {
            refuse("of kind `request-response`", "use `sized` or `poisson`, or protocol = \"mptcp\"")
        }
    }
}

fn config(
    ctx: &mut BuildContext<'_>,
    entry: &Traffic,
    (cc, params): (&str, &Params),
    max_paths: usize,
) -> Result<Config, SimError> {
    let (host, common) = (&ctx.scenario.host, &entry.common);
    let algorithm = params.algorithm();
    ctx.warnings.extend(params.unheeded());
    if algorithm.info().paces {
        let warning = format!("{cc} over QUIC has no spacing: the transport paces by window and round trip");
        ctx.warnings.extend((!ctx.warnings.contains(&warning)).then_some(warning));
    }
    let datagram = u16::try_from(datagram_bytes(host)?).unwrap_or(u16::MAX);
    let ecn = common.ecn.or(host.ecn).unwrap_or(algorithm.info().needs_ecn);
    Ok(Config {
        algorithm,
        params: *params,
        coupling: common.coupling.or(host.coupling).unwrap_or_default(),
        min_paths: host.min_paths.unwrap_or(MIN_PATHS),
        scheduler: common.scheduler.unwrap_or(host.scheduler),
        ack_path: common.ack_path.unwrap_or(host.ack_path),
        max_paths: max_paths as u32,
        max_ack_delay: span(host.delayed_ack),
        stream_window: host.receive_buffer.get(),
        connection_window: host.receive_buffer.get(),
        send_window: host.send_buffer.get(),
        max_datagram: 0,
        initial_window_pkt: u32::try_from(host.initial_window.get()).unwrap_or(u32::MAX),
        initial_mtu: datagram,
        max_mtu: datagram,
        ecn,
        ..Config::default()
    })
}

/// Largest UDP payload within `host.mtu`, in bytes.
fn datagram_bytes(host: &Host) -> Result<u64, SimError> {
    let left = host.mtu.get().saturating_sub(HEADERS_BYTES.into());
    if left < MIN_DATAGRAM_BYTES {
        return Err(SimError::Unsupported {
            what: format!("QUIC over packets of {}", host.mtu),
            remedy: "it needs host.mtu = \"1228B\" or more",
        });
    }
    Ok(left)
}

impl Flow {
    fn sender<'a>(&self, hosts: &[&'a impl AsRef<QuicEnds>]) -> &'a End {
        &hosts[self.sends.0].as_ref().all[self.sends.1]
    }

    fn reader<'a>(&self, hosts: &[&'a impl AsRef<QuicEnds>]) -> &'a End {
        &hosts[self.reads.0].as_ref().all[self.reads.1]
    }

    fn subflow(&self, subflow: usize, hosts: &[&impl AsRef<QuicEnds>]) -> Subflow {
        let (sent, got) = (&self.sender(hosts).seen[subflow], &self.reader(hosts).seen[subflow]);
        let of_subflow = |sample: &&Sample| sample.subflow == subflow;
        let sample = |sample: &Sample| observed::Sample {
            at: at(sample.at),
            srtt_8us: u32::try_from(sample.srtt.ns() * 8 / 1_000).unwrap_or(u32::MAX),
            cwnd_pkt: sample.cwnd_pkt,
            alpha: None,
            acked: sample.acked,
        };
        Subflow {
            number: subflow,
            path: self.paths[subflow],
            established: sent.opened,
            end: sent
                .closed
                .map_or(observed::End::WithConnection, |(_, why)| observed::End::Closed(closed(why))),
            closed_at: sent.closed.map(|(when, _)| at(when)),
            counters: Counters {
                retransmits: Some(sent.lost_packets),
                timeouts: Some(sent.timeouts),
                ce_marks: Some(got.marked),
                ..Counters::default()
            },
            reductions: sent.reduced_at.iter().copied().map(at).collect(),
            samples: self.sender(hosts).samples.iter().filter(of_subflow).map(sample).collect(),
            ..Subflow::default()
        }
    }

    fn connection(
        &self,
        hosts: &[&impl AsRef<QuicEnds>],
        groups: usize,
        end: Moment,
    ) -> observed::Connection {
        let delivered = &self.reader(hosts).delivered;
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
            established: self.sender(hosts).established,
            received: (delivered.complete != Time::NEVER).then(|| at(delivered.complete)),
            delivered_bytes: delivered.bytes,
            window_bytes: self.window_bytes as f64,
            stalled_us: delivered.stalled_us(
                &self.planned.app,
                (self.planned.start, self.planned.stop),
                Time::from_ps(end.0),
            ),
            reinjected_bytes: Some(self.sender(hosts).reinjected_bytes),
            limits: None,
            held_bytes: None,
            rtts: Some(groups + self.group as usize),
            subflows: (0..self.paths.len()).map(|subflow| self.subflow(subflow, hosts)).collect(),
        }
    }
}

fn closed(why: PathClose) -> Closed {
    match why {
        PathClose::NotNeeded => Closed::Guard,
        PathClose::Unanswered => Closed::Timeout,
        _ => Closed::Peer,
    }
}

impl<H: AsRef<QuicEnds> + AsMut<QuicEnds>> Transport<H> for Flows {
    fn ends(&self) -> Vec<Ends> {
        let one = |flow: &Flow| {
            let (traffic, from, to) = (flow.planned.traffic, flow.planned.from, flow.planned.to);
            Ends { traffic, from, to, subflows: flow.paths.len() }
        };
        self.0.iter().map(one).collect()
    }

    fn settle(&mut self, hosts: &[&H], part: &mut Part) {
        for flow in &mut self.0 {
            let reader = flow.reader(hosts);
            let new = reader.delivered.bytes - std::mem::replace(&mut flow.settled.0, reader.delivered.bytes);
            part.traffic[flow.planned.traffic] += new;
            flow.window_bytes += if part.inside { new } else { 0 };
            for (subflow, path) in flow.paths.iter().enumerate() {
                let bytes = reader.seen[subflow].payload_in;
                let new = bytes - std::mem::replace(&mut flow.settled.1[subflow], bytes);
                part.add_on_path(*path, flow.competing, new);
            }
        }
    }

    fn routed(&self, hosts: &[H]) -> Vec<Routed> {
        let of_flow = |(ends, flow): (usize, &Flow)| {
            let (traffic, from, to) = (flow.planned.traffic, flow.planned.from, flow.planned.to);
            let sends = &hosts[flow.sends.0].as_ref().all[flow.sends.1];
            let reads = &hosts[flow.reads.0].as_ref().all[flow.reads.1];
            let one = move |(subflow, &path): (usize, &Option<usize>)| {
                let routes = (sends.links(subflow), Some(reads.links(subflow)));
                Routed { ends, subflow, traffic, from, to, routes, path }
            };
            flow.paths.iter().enumerate().map(one).collect::<Vec<_>>()
        };
        self.0.iter().enumerate().flat_map(of_flow).collect()
    }

    fn reroute(&mut self, moved: &RouteChange, hosts: &mut [&mut H]) {
        let flow = &mut self.0[moved.ends];
        hosts[flow.sends.0].as_mut().all[flow.sends.1].reroute(moved.subflow, moved.routes.0);
        hosts[flow.reads.0].as_mut().all[flow.reads.1].reroute(moved.subflow, moved.routes.1);
        flow.paths[moved.subflow] = moved.path;
    }

    fn observe(&self, hosts: &[&H], observed: &mut Observed) {
        let (groups, end) = (observed.rtts.len(), observed.window.1);
        observed.connections.extend(self.0.iter().map(|flow| flow.connection(hosts, groups, end)));
        let mut rtts = RttGroups::default();
        hosts.iter().for_each(|shard| rtts.merge(&shard.as_ref().rtts));
        observed.rtts.extend(rtts.into_groups());
    }
}
