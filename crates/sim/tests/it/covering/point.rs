//! One setting of everything, and what a run with it gives.

use std::fmt;

use vmcc_cc::{Algorithm, Params};
use vmcc_sim::engine::{Engine, Partition};
use vmcc_sim::hosts::Hosts;
use vmcc_sim::net::{LimitSpec, LinkSpec, NetSpec, NodeId, QueueSpec, ThresholdSpec, Totals};
use vmcc_sim::packet::{LinkId, RouteId};
use vmcc_sim::rng::Streams;
use vmcc_sim::tcp::{
    AckPath, App, ConnId, ConnRecord, ConnSpec, Directory, EcnMode, Scheduler, SubflowSpec, TcpConfig, World,
};
use vmcc_sim::time::{Span, Time};

const MTU_BYTES: [u16; 7] = [256, 576, 1500, 4000, 6000, 6100, 9000];
const RATE_BPS: [u64; 7] =
    [1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000, 100_000_000_000, 400_000_000_000];
const RTT: [Span; 6] = [
    Span::from_us(10),
    Span::from_us(100),
    Span::from_ms(1),
    Span::from_ms(10),
    Span::from_ms(100),
    Span::from_ms(500),
];
const BUFFER: [Buffer; 6] = [
    Buffer::Packets(1),
    Buffer::Packets(3),
    Buffer::Packets(20),
    Buffer::Pipes(0.25, 1),
    Buffer::Pipes(1.0, 20),
    Buffer::Pipes(4.0, 80),
];
const DELAYED_ACK: [Span; 2] = [Span::ZERO, Span::from_ms(40)];
const FLOWS: [usize; 3] = [1, 3, 20];
/// Packets that a path may carry while senders have data: what a point costs.
const PACKETS: u64 = 10_000;
/// Longer than any timeout that a burst of losses leads to.
const TAIL: Span = Span::from_secs(4_000);

/// Bandwidth-delay products that a few thousand packets fill often enough, in packets.
const PIPE_PKT: [u64; 3] = [2, 30, 150];

/// Levels of what both designs have: packet size, rate, algorithm, unit of the buffer, delayed ACKs, connections, paths,
/// marks.
const COMMON: [usize; 8] = [MTU_BYTES.len(), RATE_BPS.len(), 12, 2, DELAYED_ACK.len(), FLOWS.len(), 2, 2];

/// Every round trip with every buffer. Many of these paths hold more than a point may cost.
pub(crate) const WIDE: [usize; 10] = axes([RTT.len(), BUFFER.len()]);
/// Every bandwidth-delay product with the buffers that it can be used with.
pub(crate) const FILLED: [usize; 10] = axes([PIPE_PKT.len(), 2]);

const fn axes(own: [usize; 2]) -> [usize; 10] {
    let c = COMMON;
    [c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], own[0], own[1]]
}

#[derive(Clone, Copy, Debug)]
enum Buffer {
    Packets(u64),
    /// Bandwidth-delay products, and at least this many packets.
    Pipes(f64, u64),
}

/// One setting of everything.
#[derive(Clone)]
pub(crate) struct Point {
    pub(crate) mtu_bytes: u16,
    pub(crate) rate_bps: u64,
    pub(crate) rtt: Span,
    pub(crate) buffer_pkt: u64,
    pub(crate) in_packets: bool,
    pub(crate) algorithm: Algorithm,
    pub(crate) delayed_ack: Span,
    pub(crate) flows: usize,
    pub(crate) paths: usize,
    pub(crate) marks: bool,
}

/// Results of a run.
#[derive(Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) senders_stop: Span,
    /// In order at the receiver when senders stopped, and half that time before; per connection.
    pub(crate) delivered_bytes: Vec<u64>,
    pub(crate) delivered_half_bytes: Vec<u64>,
    /// True if a second run had the same results until senders stopped.
    pub(crate) repeatable: bool,
    /// Each connection when everything had been said.
    pub(crate) finished: Vec<ConnRecord>,
    /// Packets and drops of the paths' links, in the end.
    pub(crate) carried: u64,
    pub(crate) dropped: u64,
    pub(crate) totals_stopped: Totals,
    pub(crate) totals: Totals,
    /// Shortest and longest round trip that a sender measured; to 1 %.
    pub(crate) rtt: Option<(Span, Span)>,
    /// Longest queue seen.
    pub(crate) queue_bytes: u64,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} mtu {} rate {:e} rtt {:?} us buffer {} {} delayed {} ms, {} flows on {} paths, marks {}",
            self.algorithm.name(),
            self.mtu_bytes,
            self.rate_bps as f64,
            self.rtt.us(),
            self.buffer_pkt,
            if self.in_packets { "packets" } else { "packets in bytes" },
            self.delayed_ack.us() / 1000,
            self.flows,
            self.paths,
            self.marks,
        )
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |counter: fn(&ConnRecord) -> u64| self.finished.iter().map(counter).sum::<u64>();
        write!(
            f,
            "stop at {} us, delivered {:?}, dropped {}, retransmits {}, timeouts {}, rtt {:?} us, queue {} B",
            self.senders_stop.us(),
            self.delivered_bytes,
            self.dropped,
            sum(ConnRecord::retransmits),
            sum(ConnRecord::timeouts),
            self.rtt.map(|(least, most)| (least.us(), most.us())),
            self.queue_bytes,
        )
    }
}

struct Net {
    engine: Engine<Hosts>,
    directory: Directory,
    forward: Vec<LinkId>,
    flows: usize,
}

impl Point {
    pub(crate) fn wide(row: &[usize]) -> Point {
        Point::of(row, RTT[row[8]], BUFFER[row[9]])
    }

    pub(crate) fn filled(row: &[usize]) -> Point {
        let wire_ps = u64::from(MTU_BYTES[row[0]]) * 8_000_000_000_000 / RATE_BPS[row[1]];
        let rtt = Span::from_ps((wire_ps * PIPE_PKT[row[8]]).clamp(RTT[0].ps(), RTT[RTT.len() - 1].ps()));
        Point::of(row, rtt, BUFFER[BUFFER.len() - 2 + row[9]])
    }

    fn of(row: &[usize], rtt: Span, buffer: Buffer) -> Point {
        let (mtu_bytes, rate_bps) = (MTU_BYTES[row[0]], RATE_BPS[row[1]]);
        let pipe_pkt = rate_bps as f64 * rtt.secs_f64() / 8.0 / f64::from(mtu_bytes);
        let buffer_pkt = match buffer {
            Buffer::Packets(packets) => packets,
            Buffer::Pipes(pipes, least_pkt) => ((pipes * pipe_pkt).ceil() as u64).max(least_pkt),
        };
        Point {
            mtu_bytes,
            rate_bps,
            rtt,
            // What a buffer in bytes can say.
            buffer_pkt: buffer_pkt.min(u64::from(u32::MAX) / u64::from(mtu_bytes)),
            algorithm: Algorithm::all().nth(row[2]).expect("as many as the axis has levels"),
            in_packets: row[3] == 1,
            delayed_ack: DELAYED_ACK[row[4]],
            flows: FLOWS[row[5]],
            paths: row[6] + 1,
            marks: row[7] == 1,
        }
    }

    /// Time on the wire of a full packet.
    pub(crate) fn wire(&self) -> Span {
        Span::from_ps(u64::from(self.mtu_bytes) * 8_000_000_000_000 / self.rate_bps)
    }

    /// A round trip without a queue: a full packet there, an ACK back.
    pub(crate) fn base_rtt(&self) -> Span {
        Span::from_ps(
            2 * (self.rtt.ps() / 2)
                + self.wire().ps() * u64::from(self.mtu_bytes + 64) / u64::from(self.mtu_bytes),
        )
    }

    /// A round trip behind a full queue.
    pub(crate) fn longest_rtt(&self) -> Span {
        self.base_rtt() + self.wire().times(self.buffer_pkt + 1)
    }

    /// A bandwidth-delay product, in packets.
    pub(crate) fn pipe_pkt(&self) -> f64 {
        self.base_rtt().secs_f64() / self.wire().secs_f64()
    }

    pub(crate) fn header_bytes(&self) -> u16 {
        let config = TcpConfig::default();
        config.header_bytes + if self.paths > 1 { config.multipath_header_bytes } else { 0 }
    }

    /// Ten round trips even if a path could carry more in that time: slow start does not send it then.
    fn senders_stop(&self, scale: u64) -> Span {
        self.wire().times(PACKETS * scale).max(self.rtt.times(10))
    }

    pub(crate) fn run(&self, scale: u64) -> Measured {
        let stop = self.senders_stop(scale);
        let mut net = self.build(stop, None);
        net.engine.run_until(Time::ZERO + Span::from_ps(stop.ps() / 2));
        let delivered_half_bytes = net.delivered();
        net.engine.run_until(Time::ZERO + stop);
        let (delivered_bytes, totals_stopped, stopped) =
            (net.delivered(), net.engine.totals(), net.records());
        net.engine.run_until(Time::ZERO + stop + TAIL);
        let counters: Vec<_> = net.forward.iter().map(|link| net.engine.counters(*link)).collect();
        let (watched, queue_bytes) = self.watch(stop);
        Measured {
            senders_stop: stop,
            delivered_bytes,
            delivered_half_bytes,
            repeatable: watched == stopped,
            finished: net.records(),
            carried: counters.iter().map(|c| c.packets).sum(),
            dropped: counters.iter().flat_map(|c| c.drops).sum(),
            totals_stopped,
            totals: net.engine.totals(),
            rtt: net.round_trips(),
            queue_bytes,
        }
    }

    /// The same again, with an eye on the queues: connections when senders stop, and the longest queue.
    fn watch(&self, stop: Span) -> (Vec<ConnRecord>, u64) {
        let mut net = self.build(stop, Some(Span::from_ps(stop.ps() / 50)));
        net.engine.run_until(Time::ZERO + stop);
        let queues = net.engine.take_samples();
        (net.records(), queues.iter().map(|sample| sample.backlog_bytes).max().unwrap_or(0))
    }

    fn link(&self, from: NodeId, to: NodeId) -> LinkSpec {
        let bytes = self.buffer_pkt * u64::from(self.mtu_bytes);
        let limit = if self.in_packets {
            LimitSpec::Packets(self.buffer_pkt as u32)
        } else {
            LimitSpec::Bytes(bytes)
        };
        let mark = self.marks.then_some(ThresholdSpec::Bytes(bytes / 4));
        LinkSpec::new(
            from,
            to,
            self.rate_bps,
            Span::from_ps(self.rtt.ps() / 2),
            QueueSpec::Fifo { limit, mark },
        )
    }

    fn build(&self, stop: Span, sample_every: Option<Span>) -> Net {
        let mut net = NetSpec::new();
        let (a, b) = (net.node(), net.node());
        let mut forward = Vec::new();
        let mut routes = Vec::new();
        for _ in 0..self.paths {
            let there = net.link(self.link(a, b)).expect("a valid link");
            let clean = QueueSpec::Fifo { limit: LimitSpec::Unlimited, mark: None };
            let back = LinkSpec::new(b, a, self.rate_bps, Span::from_ps(self.rtt.ps() / 2), clean);
            let back = net.link(back).expect("a valid link");
            if let Some(every) = sample_every {
                net.sample(there, every).expect("the link exists");
            }
            routes.push((net.route(&[there]).expect("a path"), net.route(&[back]).expect("a path")));
            forward.push(there);
        }
        let partition = Partition::whole(&net);
        let mut world = World::new(partition.shard_of());
        let config = TcpConfig {
            mtu_bytes: self.mtu_bytes,
            delayed_ack: self.delayed_ack,
            ecn: if self.marks { EcnMode::Classic } else { EcnMode::Off },
            ..TcpConfig::default()
        };
        let config = world.add_config(config).expect("a valid configuration");
        let algorithm = world.add_algorithm(self.algorithm, Params::defaults(self.algorithm));
        for flow in 0..self.flows {
            let spec = ConnSpec {
                sender: a.0,
                receiver: b.0,
                start: Time::ZERO + self.start(flow),
                stop: Time::ZERO + stop,
                app: App::Bulk,
                algorithm,
                config,
                scheduler: Scheduler::LowestRtt,
                ack_path: AckPath::Own,
                subflows: routes
                    .iter()
                    .map(|&(there, back): &(RouteId, RouteId)| SubflowSpec::new(there, back))
                    .collect(),
                multipath: false,
                read_rate_bps: None,
                class: 0,
                group: 0,
                trace: false,
            };
            world.add_connection(spec).expect("a valid connection");
        }
        let (hosts, directory) = world.build();
        let engine = Engine::new(&net, &partition, &Streams::new(1), hosts).expect("one shard fits");
        Net { engine, directory, forward, flows: self.flows }
    }

    /// Connections begin one after another within a round trip.
    fn start(&self, flow: usize) -> Span {
        Span::from_ps(1 + self.base_rtt().ps() * flow as u64 / self.flows as u64)
    }
}

impl Net {
    fn records(&self) -> Vec<ConnRecord> {
        let hosts: Vec<&Hosts> = self.engine.hosts().collect();
        (0..self.flows).map(|i| self.directory.flow(ConnId(i as u32), &hosts)).collect()
    }

    fn round_trips(&self) -> Option<(Span, Span)> {
        let rtts = self.directory.rtts(self.engine.hosts());
        let rtts = rtts.group(0).filter(|rtts| !rtts.is_empty())?;
        let span = |ns: u64| Span::from_ps(ns * 1000);
        Some((span(rtts.min()), span(rtts.max())))
    }

    fn delivered(&self) -> Vec<u64> {
        self.records().iter().map(|record| record.delivered_bytes).collect()
    }
}
