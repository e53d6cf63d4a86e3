//! A shared run is the run of one thread, whole or in parts.

use super::{Bounds, Lookahead, least_delays};
use crate::build::{net_spec, partition};
use crate::engine::{Ctx, Endpoints, Engine, Partition, Timer, TimerId};
use crate::net::{
    ClassSpec, JitterSpec, LimitSpec, LinkChange, LinkSpec, LossSpec, MarkingSpec, NetSpec, QueueSpec,
    RedSpec, Scheduling, ShaperClass,
};
use crate::packet::{LinkId, Packet, RouteId, Sack};
use crate::rng::Streams;
use crate::time::{Span, Time};
use std::sync::atomic::AtomicBool;
use vmcc_network::{FatTree, HostId, Kind, Marking, Queue, Reroute, ThresholdRule, Tree};
use vmcc_units::{BitsPerSec, Bytes, Nanos};

/// Echoes with a window, retries by timer, and keeps a digest of everything it saw.
#[derive(Clone, Debug)]
struct Echo {
    route: RouteId,
    peer: u32,
    global: u32,
    window: u32,
    timer: Timer,
    digest: u64,
}

#[derive(Debug, Default)]
struct Echoes(Vec<Echo>);

impl Echo {
    fn send(&self, ctx: &mut Ctx, seq: u32, flags: u16, size_bytes: u16) {
        let (route, to) = (self.route, self.peer);
        let class = (self.global % 4) as u8;
        ctx.send(Packet { route, to, seq, flags, size_bytes, class, ..Packet::default() });
    }
}

impl Endpoints for Echoes {
    fn start(&mut self, ctx: &mut Ctx) {
        for echo in &mut self.0 {
            (0..echo.window).for_each(|seq| echo.send(ctx, seq, Packet::DATA | Packet::ECT, 1500));
            ctx.arm(&mut echo.timer, TimerId(echo.global), ctx.now() + Span::from_us(50));
        }
    }

    fn on_packet(&mut self, ctx: &mut Ctx, packet: &Packet, _sack: &Sack) {
        let echo = &mut self.0[packet.to as usize];
        let saw = ctx.now().ps() ^ u64::from(packet.seq) << 40 ^ u64::from(packet.flags) << 20;
        echo.digest = (echo.digest ^ saw).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        if packet.has(Packet::DATA) {
            echo.send(ctx, packet.seq, Packet::ACK, 64);
        } else {
            echo.send(ctx, packet.seq + 1, Packet::DATA | Packet::ECT, 1500);
        }
        ctx.arm(&mut echo.timer, TimerId(echo.global), ctx.now() + Span::from_us(50));
    }

    fn on_timer(&mut self, ctx: &mut Ctx, id: TimerId) {
        let echo = self.0.iter_mut().find(|e| e.global == id.0).unwrap();
        if ctx.expired(&mut echo.timer, id) {
            echo.digest = echo.digest.wrapping_add(ctx.now().ps());
            echo.send(ctx, 1 << 20, Packet::DATA, 700);
            ctx.arm(&mut echo.timer, id, ctx.now() + Span::from_us(50));
        }
    }
}

/// A fat tree with links of every kind, and its hosts.
fn engine(shards: u32) -> Engine<Echoes> {
    let kind = FatTree {
        k: 4,
        rate: BitsPerSec::new(10_000_000_000),
        delay: Nanos::from_micros(1),
        buffer: vmcc_units::Limit::Bytes(Bytes::new(30_000)),
        marking: Marking::Threshold(ThresholdRule { at: "9kB".parse().unwrap() }),
        queue: Queue::default(),
        reroute: Reroute::default(),
    };
    let (network, tree) = (kind.network(), kind.tree());
    let mut net = net_spec(&network, Bytes::new(1500)).unwrap();
    every_kind_of_link(&mut net);
    let partition = partition(&network, &net, &least_delays(&net), shards);
    let shard_of = partition.shard_of();
    let mut hosts: Vec<Echoes> = (0..shards).map(|_| Echoes::default()).collect();
    for flow in 0..64 {
        let (from, to) = (flow % 16, (flow * 5 + 3 + flow / 16) % 16);
        if from != to {
            let hosts_at = |host: u32| usize::from(shard_of[network.hosts[host as usize].node.index()]);
            add_flow(&mut net, &tree, hosts_at, &mut hosts, (flow, from, to));
        }
    }
    for link in [3, 40, 80] {
        net.sample(LinkId(link), Span::from_us(10)).unwrap();
    }
    Engine::new(&net, &partition, &Streams::new(5), hosts).unwrap()
}

/// Digests of all ends, counters of all links, of a run in parts of at most this many events per shard; and how many.
fn outcome(shards: u32, most: u64) -> (String, usize) {
    outcome_of(engine(shards), most)
}

fn outcome_of(mut engine: Engine<Echoes>, most: u64) -> (String, usize) {
    let mut parts = 0;
    for end in [700, 1500].map(|us| Time::ZERO + Span::from_us(us)) {
        while !engine.run_part(end, Bounds { most, cancel: None }) {
            parts += 1;
        }
    }
    let totals = engine.totals();
    assert!(totals.marks > 100 && totals.dropped > 100 && totals.timer_events > 100, "{totals:?}");
    let mut ends: Vec<(u32, u64)> = engine.hosts().flat_map(|h| &h.0).map(|e| (e.global, e.digest)).collect();
    ends.sort_unstable();
    let links: Vec<_> = (0..96).map(|l| engine.counters(LinkId(l))).collect();
    let samples = engine.take_samples();
    (format!("{ends:?}\n{links:?}\n{totals:?}\n{samples:?}"), parts)
}

/// Every queue, impairment and change somewhere in the tree.
fn every_kind_of_link(net: &mut NetSpec) {
    let class = |quantum_bytes| ClassSpec { quantum_bytes, limit: LimitSpec::Bytes(15_000), mark: None };
    let classes = |scheduling, marking| QueueSpec::Classes {
        scheduling,
        marking,
        classes: vec![class(1500), class(3000), class(1500)],
    };
    let shaper = ShaperClass {
        parent: None,
        guarantee_bps: 4_000_000_000,
        ceiling_bps: 4_000_000_000,
        burst_bytes: 3000,
        limit: LimitSpec::Packets(20),
        mark: None,
    };
    let kinds = [
        classes(Scheduling::DeficitRoundRobin, MarkingSpec::MqEcn { port_threshold_bytes: 9_000 }),
        classes(Scheduling::StrictPriority, MarkingSpec::Tcn { sojourn: Span::from_us(5) }),
        QueueSpec::Shaper { classes: vec![shaper] },
        QueueSpec::Red(RedSpec {
            limit: LimitSpec::Bytes(30_000),
            min_bytes: 3_000,
            max_bytes: 15_000,
            max_probability: 0.1,
            weight: 0.1,
            ecn: true,
        }),
    ];
    for (i, link) in (0..96).step_by(5).enumerate() {
        net.links[link].queue = kinds[i % kinds.len()].clone();
    }
    for link in (0..96).step_by(7) {
        net.links[link].loss = Some(LossSpec::Bernoulli(0.01));
        net.links[link].jitter = Some(JitterSpec { max: Span::from_us(3), keep_order: false });
    }
    let changes = [
        (300, LinkChange::Down),
        (350, LinkChange::Pause),
        (400, LinkChange::Up),
        (500, LinkChange::Rate { rate_bps: 1_000_000_000 }),
        (600, LinkChange::Delay(Span::from_ns(900))),
        (900, LinkChange::Loss(Some(LossSpec::Bernoulli(0.1)))),
    ];
    for link in [9, 33, 65] {
        for (us, change) in changes {
            net.change(Time::ZERO + Span::from_us(us), LinkId(link), change).unwrap();
        }
    }
}

fn add_flow(
    net: &mut NetSpec,
    tree: &Tree,
    shard: impl Fn(u32) -> usize,
    hosts: &mut [Echoes],
    (flow, from, to): (u32, u32, u32),
) {
    let (a, b) = (shard(from), shard(to));
    let index_a = hosts[a].0.len() as u32;
    let index_b = if a == b { index_a + 1 } else { hosts[b].0.len() as u32 };
    let end =
        |route, peer, global, window| Echo { route, peer, global, window, timer: Timer::new(), digest: 0 };
    let mut route = |from, to| {
        let links = tree.path(HostId(from), HostId(to), flow);
        net.route(&links).unwrap()
    };
    let (there, back) = (route(from, to), route(to, from));
    hosts[a].0.push(end(there, index_b, 2 * flow, 12));
    hosts[b].0.push(end(back, index_a, 2 * flow + 1, 0));
}

#[test]
fn any_number_of_threads_gives_identical_results() {
    let (one, _) = outcome(1, u64::MAX);
    for shards in [2, 3, 4] {
        assert!(outcome(shards, u64::MAX).0 == one, "{shards} threads differ from one");
    }
}

#[test]
fn event_limits_hold_on_any_number_of_threads() {
    let (one, _) = outcome(1, u64::MAX);
    for shards in [1, 2, 4] {
        let (same, parts) = outcome(shards, 1000);
        assert!(parts > 10, "{shards} threads: {parts} parts");
        assert!(same == one, "{shards} threads in parts differ from one");
    }
}

#[test]
fn waiting_threads_observe_cancellation() {
    let (mut engine, cancel) = (engine(2), AtomicBool::new(true));
    let end = Time::ZERO + Span::from_us(700);
    assert!(!engine.run_part(end, Bounds { most: u64::MAX, cancel: Some(&cancel) }));
    assert_eq!(engine.totals().events, 0);
}

#[test]
fn shard_advances_by_its_own_delays() {
    let spans = [(0, 1, 5), (1, 0, 3), (1, 2, 900), (2, 1, 700)];
    let mut lookahead = Lookahead { shards: 3, spans: vec![Span::MAX; 9] };
    for (from, to, us) in spans {
        lookahead.spans[from * 3 + to] = Span::from_us(us);
    }
    let shortest = [0, 1, 2].map(|me| lookahead.shortest_of(me));
    assert_eq!(shortest, [3, 3, 700].map(Span::from_us));
}

/// Two hosts that send one packet to and fro: each shard waits for the other all the time.
fn ping_pong(shards: u8) -> Engine<Echoes> {
    let mut net = NetSpec::new();
    let (a, b) = (net.node(), net.node());
    let queue = QueueSpec::Fifo { limit: LimitSpec::Packets(10), mark: None };
    let mut route = |from, to| {
        let link =
            net.link(LinkSpec::new(from, to, 10_000_000_000, Span::from_us(2), queue.clone())).unwrap();
        net.route(&[link]).unwrap()
    };
    let (there, back) = (route(a, b), route(b, a));
    let echo =
        |route, peer, global, window| Echo { route, peer, global, window, timer: Timer::new(), digest: 0 };
    let partition = Partition::new(vec![0, shards - 1]);
    let hosts = match shards {
        1 => vec![Echoes(vec![echo(there, 1, 0, 1), echo(back, 0, 1, 0)])],
        _ => vec![Echoes(vec![echo(there, 0, 0, 1)]), Echoes(vec![echo(back, 0, 1, 0)])],
    };
    Engine::new(&net, &partition, &Streams::new(1), hosts).unwrap()
}

#[test]
fn threads_with_little_work_fall_back_to_one() {
    let end = Time::ZERO + Span::from_ms(400);
    let digests = |engine: &Engine<Echoes>| {
        let mut all: Vec<(u32, u64)> =
            engine.hosts().flat_map(|h| &h.0).map(|e| (e.global, e.digest)).collect();
        all.sort_unstable();
        (all, engine.totals())
    };
    let (mut one, mut two) = (ping_pong(1), ping_pong(2));
    one.run_until(end);
    two.run_until(end);
    assert!(two.is_alone() && !one.is_alone());
    assert!(one.totals().events > 100_000, "{:?}", one.totals());
    assert_eq!(digests(&one), digests(&two));
    // In parts that end within a window.
    let mut parts = ping_pong(2);
    while !parts.run_part(end, Bounds { most: 10_001, cancel: None }) {}
    assert_eq!(digests(&one), digests(&parts));
}

/// The fallback through every kind of link.
#[test]
fn shards_on_one_thread_give_identical_results() {
    let (one, _) = outcome(1, u64::MAX);
    for shards in [2, 4] {
        let mut engine = engine(shards);
        engine.fall_back();
        assert!(outcome_of(engine, u64::MAX).0 == one, "{shards} shards on one thread differ from one");
        let mut engine = self::engine(shards);
        engine.fall_back();
        assert!(outcome_of(engine, 1_000).0 == one, "{shards} shards in parts differ from one");
    }
}
