//! Samples of the kernel's sockets and queues while a run lasts.

mod fates;
mod limits;
mod streams;

pub(crate) use fates::Fates;
pub(crate) use limits::Limits;
pub(crate) use streams::{Delivery, Stream, Streams};

use crate::Error;
use crate::ports::Ports;
use crate::spec::{Cc, LabSpec, Layout, Remap, flow_of};
use crate::topology::{QueueReader, Topology, subnet_of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use vmcc_bpf::states::States;
use vmcc_metrics::observed::Closed;
use vmcc_system::diag::{Diag, Subflow};

/// More points than any run of the lab takes; beyond, sampling stops.
const MAX_POINTS: usize = 10_000_000;

/// Sample of one subflow's socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) t_us: u64,
    pub(crate) srtt_us: u32,
    pub(crate) cwnd_pkt: u32,
    /// DCTCP's estimate, of algorithms of ours that have one.
    pub(crate) alpha: Option<f64>,
    pub(crate) bytes_acked: u64,
    pub(crate) retransmits: u32,
    pub(crate) echoed_ce: u32,
}

/// One subflow (or single-path connection) over time, as long as it takes the same path. A subflow whose vNIC
/// moves continues in a new track; each counts from its own start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Track {
    /// Index into [`LabSpec::flows`].
    pub(crate) flow: usize,
    /// Index into [`LabSpec::paths`]; beyond them, routes without a name.
    pub(crate) path: usize,
    /// Local and remote end; `None` in tests.
    pub(crate) ends: Option<(SocketAddr, SocketAddr)>,
    /// The port of the end that connected; 0 in tests.
    pub(crate) port: u16,
    /// Number of its socket: that of the first track.
    pub(crate) socket: usize,
    /// True for an MPTCP subflow.
    pub(crate) multipath: bool,
    /// Identity of the MPTCP connection that its subflows share: the receiver's token. The sender's sockets do not provide one: kernels
    /// report neither token of a connection's first subflow in a way that its other subflows share.
    pub(crate) token: Option<u32>,
    pub(crate) algorithm: String,
    pub(crate) points: Vec<Point>,
    /// Retransmission timeouts since the track began, where the kernel counts them.
    pub(crate) timeouts: Option<u32>,
    /// Packets that the receiver got with congestion experienced since then, likewise.
    pub(crate) arrived_ce: Option<u32>,
    /// Accounts of its sending, where a kernel has them.
    pub(crate) limits: Option<Limits>,
    /// Times of the first reductions of its window, where its program reports them.
    pub(crate) reductions: Vec<u64>,
    /// Time and reason of its close, where its program reports them.
    pub(crate) closed: Option<(u64, Closed)>,
    /// The socket's counters when the track began.
    base: Counters,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Counters {
    bytes_acked: u64,
    retransmits: u32,
    echoed_ce: u32,
    timeouts: u32,
    arrived_ce: u32,
}

/// Report of one of vmcc's programs on a path of one of its connections. Times count from the flow's start.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct QuicPathReport {
    /// Its number in place of a port, as in the program's report.
    pub(crate) connection: u16,
    pub(crate) subnet: usize,
    pub(crate) points: Vec<Point>,
    pub(crate) timeouts: u32,
    /// Reductions that were counted, and when they were noticed.
    pub(crate) reduced: u64,
    pub(crate) reductions: Vec<u64>,
    pub(crate) closed: Option<(u64, Closed)>,
}

/// Sample of a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct QueuePoint {
    pub(crate) t_us: u64,
    pub(crate) stats: vmcc_netlink::Counters,
}

/// Sample of one class of a port.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ClassPoint {
    pub(crate) t_us: u64,
    pub(crate) backlog_bytes: u64,
    pub(crate) threshold_bytes: Option<u64>,
}

/// Everything sampled.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    pub(crate) tracks: Vec<Track>,
    /// Per path: the queue of the port that stands for it.
    pub(crate) queues: Vec<Vec<QueuePoint>>,
    /// Per path: the classes of that port, by name.
    pub(crate) classes: Vec<BTreeMap<String, Vec<ClassPoint>>>,
    /// Whole connections.
    pub(crate) streams: Streams,
    /// Fates of subflows.
    pub(crate) fates: Fates,
    /// Receivers' data of sockets whose other end is not here, by that end and their own.
    unmatched: BTreeMap<(SocketAddr, SocketAddr), Arrived>,
    points: usize,
}

/// Data of a socket that only its receiver has.
#[derive(Debug, Clone, Copy, Default)]
struct Arrived {
    token: Option<u32>,
    ce_pkt: Option<u32>,
}

/// The port that stands for a path.
struct Watched {
    path: usize,
    port: usize,
    reader: QueueReader,
}

/// Open connections to everything that is sampled.
pub(crate) struct Sampler<'a> {
    topology: &'a Topology,
    senders: Vec<Diag>,
    /// The sender of each flow, by index into `senders`.
    sender_of: Vec<usize>,
    receivers: Vec<Diag>,
    streams: streams::Reader,
    listener: fates::Listener,
    /// Reader of the algorithms' states, if one of them estimates alpha.
    states: Option<States>,
    ports: &'a Ports,
    watched: Vec<Watched>,
    /// The path of each subnet, by the flow.
    paths: Vec<Vec<usize>>,
    spec: &'a LabSpec,
    known: BTreeMap<(SocketAddr, SocketAddr), usize>,
    samples: Samples,
}

impl<'a> Sampler<'a> {
    pub(crate) fn open(topology: &'a Topology, ports: &'a Ports, spec: &'a LabSpec) -> Result<Self, Error> {
        let (senders, receivers) = topology.senders_and_receivers();
        let sender_of = |flow: usize| {
            let name = topology.ends(flow).0.name();
            senders.iter().position(|end| end.name() == name).unwrap_or(usize::MAX)
        };
        let sender_of = (0..spec.flows.len()).map(sender_of).collect();
        let open = |ends: Vec<&crate::Netns>| {
            ends.into_iter().map(|end| end.run(Diag::open).map_err(|e| Error::diag(&e))).collect()
        };
        let (senders, receivers): (Result<Vec<_>, _>, Result<Vec<_>, _>) = (open(senders), open(receivers));
        let mut watched = Vec::new();
        for path in 0..spec.paths.len() {
            if let Some(port) = ports.first_of(path) {
                let reader = topology.queue_reader(&topology.ports()[port])?;
                watched.push(Watched { path, port, reader });
            }
        }
        let paths = spec.flows.iter().map(|flow| spec.paths_of(flow)).collect();
        let samples = Samples {
            queues: vec![Vec::new(); spec.paths.len()],
            classes: vec![BTreeMap::new(); spec.paths.len()],
            ..Samples::default()
        };
        let (senders, receivers) = (senders?, receivers?);
        Ok(Self {
            topology,
            senders,
            sender_of,
            receivers,
            streams: streams::Reader::open(topology, spec)?,
            listener: fates::Listener::open(topology),
            // A kernel without that iterator leaves alpha untold.
            states: if tells_alpha(spec) { States::open().ok() } else { None },
            ports,
            watched,
            paths,
            spec,
            known: BTreeMap::new(),
            samples,
        })
    }

    /// From now on a vNIC's subflows are on another path.
    pub(crate) fn remap(&mut self, remap: &Remap) {
        if !matches!(self.spec.layout, Layout::VirtualHost(_)) {
            return;
        }
        for (flow, paths) in self.spec.flows.iter().zip(&mut self.paths) {
            if flow.from == remap.vm || flow.to == remap.vm {
                paths[remap.vnic] = remap.nic;
            }
        }
    }

    /// Takes one sample of everything.
    pub(crate) fn take(&mut self, t_us: u64) -> Result<(), Error> {
        for watched in &mut self.watched {
            let stats = watched.reader.read()?;
            self.samples.queues[watched.path].push(QueuePoint { t_us, stats });
            let classes = &mut self.samples.classes[watched.path];
            for class in self.ports.stats(watched.port)?.classes {
                let (backlog_bytes, threshold_bytes) = (class.backlog_bytes, class.threshold_bytes);
                let point = ClassPoint { t_us, backlog_bytes, threshold_bytes };
                classes.entry(class.name).or_default().push(point);
            }
        }
        for number in 0..self.senders.len() {
            let subflows = self.senders[number].subflows_with_memory().map_err(|e| Error::diag(&e))?;
            let alphas = self.alphas(number)?;
            for subflow in subflows {
                let alpha = alphas.get(&subflow.cookie).copied();
                let known = (&mut self.known, &mut self.samples);
                record(known, (&self.sender_of, number), &self.paths, t_us, (&subflow, alpha));
            }
        }
        self.listener.take(self.spec, t_us);
        self.streams.deliveries(self.spec, t_us)
    }

    /// Estimates of a sender's algorithms, by the cookies of the sockets. A socket has a cookie once it has been listed.
    fn alphas(&self, sender: usize) -> Result<BTreeMap<[u8; 8], f64>, Error> {
        let Some(states) = self.states.clone() else { return Ok(BTreeMap::new()) };
        let namespace = self.topology.senders_and_receivers().0[sender];
        let states = namespace.run(move || states.read());
        let states = states.map_err(|e| Error::reading("sampling the algorithms' state", &e))?;
        Ok(states.iter().filter_map(|one| Some((one.cookie, one.algorithm.alpha(&one.path)?))).collect())
    }

    /// Asks what need not be asked at every sample, but often enough to have the last word before sockets close, and whenever a
    /// subflow moves: the senders, what was sent again; the receivers, which subflows belong together, which does not change,
    /// and what has arrived with congestion experienced.
    pub(crate) fn ask_now_and_then(&mut self) -> Result<(), Error> {
        self.streams.reinjections();
        for end in &mut self.receivers {
            for subflow in end.subflows().map_err(|e| Error::diag(&e))? {
                let token = subflow.mptcp.map(|mptcp| mptcp.token_local).filter(|token| *token != 0);
                let arrived = Arrived { token, ce_pkt: subflow.received_ce_pkt };
                // The sender sees the same socket pair the other way round.
                let ends = (plain(subflow.remote), plain(subflow.local));
                match self.known.get(&ends) {
                    Some(index) => self.samples.tracks[*index].arrived(arrived),
                    None => drop(self.samples.unmatched.insert(ends, arrived)),
                }
            }
        }
        Ok(())
    }

    /// The run begins, and time at zero again: of what was sampled before counts only how far sockets were at the end.
    pub(crate) fn begin(&mut self) {
        self.samples.begin();
    }

    /// Samples taken so far.
    pub(crate) fn samples(&self) -> &Samples {
        &self.samples
    }

    pub(crate) fn finish(self) -> Samples {
        Samples { streams: self.streams.finish(), fates: self.listener.finish(), ..self.samples }
    }
}

/// True if some flow's algorithm estimates the marked fraction as DCTCP does.
fn tells_alpha(spec: &LabSpec) -> bool {
    let tells = |cc: &Cc| matches!(cc, Cc::Registry(params) if params.algorithm().info().alpha);
    spec.flows.iter().any(|flow| tells(&flow.cc))
}

/// The address of IPv4 that a socket of IPv6 may have.
fn plain(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

/// Records a socket of a sender, unless it is the receiving end of another sender's flow.
fn record(
    (known, samples): (&mut BTreeMap<(SocketAddr, SocketAddr), usize>, &mut Samples),
    (sender_of, sender): (&[usize], usize),
    paths: &[Vec<usize>],
    t_us: u64,
    (subflow, alpha): (&Subflow, Option<f64>),
) {
    let key = (plain(subflow.local), plain(subflow.remote));
    let IpAddr::V4(local) = key.0.ip() else { return };
    let flow = |port: u16| flow_of(port).filter(|flow| *flow < paths.len());
    // Where data are fetched it is the sender that listens.
    let (connected, fetched) = (flow(subflow.remote.port()), flow(subflow.local.port()));
    let (Some(flow), Some(subnet)) = (connected.or(fetched), subnet_of(local)) else { return };
    if sender_of.get(flow) != Some(&sender) {
        return;
    }
    let Some(&path) = paths[flow].get(subnet) else { return };
    if samples.points >= MAX_POINTS {
        return;
    }
    samples.points += 1;
    let before = known.get(&key).copied();
    let index = match before.filter(|index| samples.tracks[*index].path == path) {
        Some(index) => index,
        None => {
            let continued = before.map(|index| &samples.tracks[index]);
            let arrived_ce = |track: &Track| track.base.arrived_ce + track.arrived_ce.unwrap_or(0);
            samples.tracks.push(Track {
                flow,
                path,
                ends: Some(key),
                socket: continued.map_or(samples.tracks.len(), |track| track.socket),
                multipath: false,
                // Whose connections it accepted, its own token tells apart.
                token: match connected {
                    Some(_) => continued.and_then(|track| track.token),
                    None => subflow.mptcp.map(|mptcp| mptcp.token_local).filter(|token| *token != 0),
                },
                port: if connected.is_some() { subflow.local.port() } else { subflow.remote.port() },
                algorithm: subflow.algorithm.clone(),
                points: Vec::new(),
                timeouts: None,
                arrived_ce: None,
                limits: Some(Limits::begin(t_us, subflow, continued.is_some())),
                reductions: Vec::new(),
                closed: None,
                base: continued.map_or_else(Counters::default, |track| Counters {
                    arrived_ce: arrived_ce(track),
                    ..Counters::of(subflow)
                }),
            });
            known.insert(key, samples.tracks.len() - 1);
            samples.tracks.len() - 1
        }
    };
    let track = &mut samples.tracks[index];
    track.multipath |= subflow.mptcp.is_some();
    // The program selects its algorithm after connecting; the last word counts.
    if track.algorithm != subflow.algorithm {
        track.algorithm.clone_from(&subflow.algorithm);
    }
    track.timeouts = subflow.timeouts.map(|all| all.saturating_sub(track.base.timeouts));
    if let Some(limits) = &mut track.limits {
        limits.take(t_us, subflow);
    }
    track.points.push(Point {
        t_us,
        srtt_us: subflow.srtt_us,
        cwnd_pkt: subflow.cwnd_pkt,
        alpha,
        bytes_acked: subflow.bytes_acked.saturating_sub(track.base.bytes_acked),
        retransmits: subflow.retransmitted_pkt.saturating_sub(track.base.retransmits),
        echoed_ce: subflow.delivered_ce_pkt.saturating_sub(track.base.echoed_ce),
    });
}

impl Counters {
    fn of(subflow: &Subflow) -> Self {
        Self {
            bytes_acked: subflow.bytes_acked,
            retransmits: subflow.retransmitted_pkt,
            echoed_ce: subflow.delivered_ce_pkt,
            timeouts: subflow.timeouts.unwrap_or(0),
            arrived_ce: 0,
        }
    }
}

impl Samples {
    fn begin(&mut self) {
        for track in &mut self.tracks {
            track.points = track.points.last().map(|last| Point { t_us: 0, ..*last }).into_iter().collect();
            track.limits.iter_mut().for_each(Limits::restart);
        }
    }

    /// Takes in what a flow's programs told of its paths.
    pub(crate) fn tell(&mut self, spec: &LabSpec, flow: usize, told: &[QuicPathReport], start_us: u64) {
        let (paths, algorithm) = (spec.paths_of(&spec.flows[flow]), spec.flows[flow].cc.kernel_name());
        for one in told {
            let Some(path) = paths.get(one.subnet) else { continue };
            let mut track = Track::told(flow, *path, algorithm.clone(), (one, start_us));
            track.socket = self.tracks.len();
            self.tracks.push(track);
        }
    }

    /// Takes in what was sampled where the senders are.
    pub(crate) fn join(&mut self, senders: Vec<Track>, reinjected: &[(usize, u16, u64)], fates: Fates) {
        let socket = self.tracks.iter().map(|track| track.socket + 1).max().unwrap_or(0);
        for mut track in senders {
            track.socket += socket;
            if let Some(arrived) = track.ends.and_then(|ends| self.unmatched.get(&ends)) {
                track.arrived(*arrived);
            }
            self.tracks.push(track);
        }
        for (flow, port, bytes) in reinjected {
            self.streams.entry((*flow, *port)).or_default().reinjected_bytes = Some(*bytes);
        }
        self.fates.join(fates);
    }
}

impl Track {
    /// Of a path that a program told of, whose flow's start was then.
    fn told(flow: usize, path: usize, algorithm: String, (told, start_us): (&QuicPathReport, u64)) -> Self {
        let last = told.points.last().copied().unwrap_or_default();
        let later = |point: &Point| Point { t_us: point.t_us + start_us, ..*point };
        Self {
            flow,
            path,
            port: told.connection,
            socket: 0,
            multipath: true,
            token: Some(told.connection.into()),
            algorithm,
            points: told.points.iter().map(later).collect(),
            timeouts: Some(told.timeouts),
            arrived_ce: Some(last.echoed_ce),
            reductions: told.reductions.iter().map(|at| at + start_us).collect(),
            closed: told.closed.map(|(at, why)| (at + start_us, why)),
            ..Self::default()
        }
    }

    fn arrived(&mut self, arrived: Arrived) {
        self.token = self.token.or(arrived.token);
        self.arrived_ce = arrived.ce_pkt.map(|all| all.saturating_sub(self.base.arrived_ce));
    }

    /// Bytes acknowledged until `t_us`, on the line between the samples around it.
    pub(crate) fn acked_at(&self, t_us: u64) -> f64 {
        let after = self.points.partition_point(|point| point.t_us < t_us);
        match (after.checked_sub(1).map(|i| self.points[i]), self.points.get(after)) {
            (None, Some(first)) if first.t_us > t_us => 0.0,
            (None, Some(first)) => first.bytes_acked as f64,
            (Some(last), None) => last.bytes_acked as f64,
            (Some(a), Some(b)) => {
                let share = (t_us - a.t_us) as f64 / (b.t_us - a.t_us) as f64;
                a.bytes_acked as f64 + share * (b.bytes_acked as f64 - a.bytes_acked as f64)
            }
            (None, None) => 0.0,
        }
    }

    /// Bytes acknowledged from `from_us` to `to_us`.
    pub(crate) fn acked_within(&self, from_us: u64, to_us: u64) -> f64 {
        (self.acked_at(to_us) - self.acked_at(from_us)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(points: &[(u64, u64)]) -> Track {
        let point = |&(t_us, bytes_acked): &(u64, u64)| Point {
            t_us,
            srtt_us: 100,
            cwnd_pkt: 10,
            bytes_acked,
            ..Point::default()
        };
        Track { points: points.iter().map(point).collect(), ..Track::default() }
    }

    #[test]
    fn acknowledged_bytes_are_interpolated_and_flat_outside() {
        let t = track(&[(100, 1000), (200, 3000), (300, 3000)]);
        assert_eq!(t.acked_at(50), 0.0);
        assert_eq!(t.acked_at(100), 1000.0);
        assert_eq!(t.acked_at(150), 2000.0);
        assert_eq!(t.acked_at(999), 3000.0);
        assert_eq!(t.acked_within(150, 250), 1000.0);
        assert_eq!(track(&[]).acked_within(0, 10), 0.0);
    }

    #[test]
    fn bytes_acknowledged_before_the_run_are_excluded() {
        let mut samples =
            Samples { tracks: vec![track(&[(100, 1000), (6_000_000, 9000)])], ..Samples::default() };
        samples.begin();
        samples.tracks[0].points.extend(track(&[(100, 9500)]).points);
        assert_eq!(samples.tracks[0].acked_within(0, 100), 500.0);
        assert_eq!(samples.tracks[0].acked_within(0, u64::MAX), 500.0);
    }
}
