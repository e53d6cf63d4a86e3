//! The transport against laws that were derived without a simulator.
//!
//! Each test names its law, where it comes from, and why its tolerance is what it is.

use vmcc_cc::{Algorithm, Params};
use vmcc_sim::engine::{Engine, Partition};
use vmcc_sim::hosts::Hosts;
use vmcc_sim::net::{LimitSpec, LinkSpec, LossSpec, NetSpec, NodeId, QueueSpec, RedSpec, ThresholdSpec};
use vmcc_sim::packet::LinkId;
use vmcc_sim::rng::Streams;
use vmcc_sim::tcp::{
    AckPath, App, ConnId, ConnRecord, ConnSpec, Directory, ReceiveBuffer, Scheduler, SubflowSpec, TcpConfig,
    World,
};
use vmcc_sim::time::{Span, Time};

const SEGMENT_BYTES: f64 = 1448.0;
const MULTIPATH_SEGMENT_BYTES: f64 = 1428.0;

/// Parallel two-way links between one pair of nodes.
struct Path {
    rate_bps: u64,
    one_way: Span,
    queue_pkt: u64,
    mark_pkt: Option<u64>,
    loss: f64,
    red: bool,
}

impl Path {
    /// Plenty of bandwidth, random loss: windows are what loss makes them.
    fn lossy(loss: f64) -> Path {
        Path {
            rate_bps: 10_000_000_000,
            one_way: Span::from_ms(5),
            queue_pkt: 10_000,
            mark_pkt: None,
            loss,
            red: false,
        }
    }

    /// A bottleneck with a tail-drop buffer.
    fn bottleneck(rate_bps: u64, queue_pkt: u64) -> Path {
        Path { rate_bps, one_way: Span::from_ms(5), queue_pkt, mark_pkt: None, loss: 0.0, red: false }
    }
}

/// A connection over some of the paths.
struct Flow {
    algorithm: &'static str,
    params: &'static [(&'static str, f64)],
    paths: Vec<usize>,
}

fn flow(algorithm: &'static str, paths: &[usize]) -> Flow {
    Flow { algorithm, params: &[], paths: paths.to_vec() }
}

struct Run {
    engine: Engine<Hosts>,
    directory: Directory,
    forward: Vec<LinkId>,
    flows: usize,
}

impl Run {
    fn new(paths: &[Path], flows: &[Flow], seed: u64) -> Run {
        let mut net = NetSpec::new();
        let (a, b) = (net.node(), net.node());
        let mut routes = Vec::new();
        let mut forward = Vec::new();
        for path in paths {
            let there = net.link(link(a, b, path)).expect("a valid link");
            let clean = Path { mark_pkt: None, loss: 0.0, queue_pkt: 100_000, red: false, ..*path };
            let back = net.link(link(b, a, &clean)).expect("a valid link");
            net.sample(there, Span::from_us(50)).expect("the link exists");
            forward.push(there);
            routes.push((net.route(&[there]).expect("a path"), net.route(&[back]).expect("a path")));
        }
        let partition = Partition::whole(&net);
        let mut world = World::new(partition.shard_of());
        let config = world.add_config(config()).expect("a valid configuration");
        for (i, flow) in flows.iter().enumerate() {
            let algorithm = Algorithm::by_name(flow.algorithm).expect("a registered algorithm");
            let mut params = Params::defaults(algorithm);
            for &(name, value) in flow.params {
                params.set(name, value).expect("a value in range");
            }
            let algorithm = world.add_algorithm(algorithm, params);
            let subflows = flow.paths.iter().map(|&p| SubflowSpec::new(routes[p].0, routes[p].1)).collect();
            world
                .add_connection(ConnSpec {
                    sender: a.0,
                    receiver: b.0,
                    start: Time::ZERO + Span::from_us(1_700 * i as u64),
                    stop: Time::NEVER,
                    app: App::Bulk,
                    algorithm,
                    config,
                    scheduler: Scheduler::LowestRtt,
                    ack_path: AckPath::Own,
                    subflows,
                    multipath: false,
                    read_rate_bps: None,
                    class: 0,
                    group: 0,
                    trace: false,
                })
                .expect("a valid connection");
        }
        let (hosts, directory) = world.build();
        let engine = Engine::new(&net, &partition, &Streams::new(seed), hosts).expect("one shard fits");
        Run { engine, directory, forward, flows: flows.len() }
    }

    fn records(&self) -> Vec<ConnRecord> {
        let hosts: Vec<&Hosts> = self.engine.hosts().collect();
        (0..self.flows).map(|i| self.directory.flow(ConnId(i as u32), &hosts)).collect()
    }

    /// Records at `warmup_ms` and at `end_ms`.
    fn measure(&mut self, warmup_ms: u64, end_ms: u64) -> (Vec<ConnRecord>, Vec<ConnRecord>) {
        self.engine.run_until(Time::ZERO + Span::from_ms(warmup_ms));
        self.engine.take_samples();
        let before = self.records();
        self.engine.run_until(Time::ZERO + Span::from_ms(end_ms));
        (before, self.records())
    }

    /// Goodput of each flow between the two instants, in bits per second.
    fn goodputs(&mut self, warmup_ms: u64, end_ms: u64) -> Vec<f64> {
        let (before, after) = self.measure(warmup_ms, end_ms);
        let bits = |(a, b): (&ConnRecord, &ConnRecord)| (b.delivered_bytes - a.delivered_bytes) as f64 * 8.0;
        let seconds = (end_ms - warmup_ms) as f64 / 1e3;
        before.iter().zip(&after).map(|pair| bits(pair) / seconds).collect()
    }
}

fn config() -> TcpConfig {
    TcpConfig {
        receive_buffer: ReceiveBuffer::Fixed { bytes: 64 << 20 },
        // Every segment is acknowledged: the laws know no delayed ACKs.
        delayed_ack: Span::ZERO,
        ..TcpConfig::default()
    }
}

fn link(from: NodeId, to: NodeId, path: &Path) -> LinkSpec {
    let queue = QueueSpec::Fifo {
        limit: LimitSpec::Bytes(path.queue_pkt * 1500),
        mark: path.mark_pkt.map(|pkt| ThresholdSpec::Bytes(pkt * 1500)),
    };
    let queue = if path.red { red(path.queue_pkt) } else { queue };
    let mut link = LinkSpec::new(from, to, path.rate_bps, path.one_way, queue);
    link.loss = (path.loss > 0.0).then_some(LossSpec::Bernoulli(path.loss));
    link
}

/// Drops at random as the queue grows: every packet meets the same probability, as fluid models assume.
fn red(queue_pkt: u64) -> QueueSpec {
    QueueSpec::Red(RedSpec {
        limit: LimitSpec::Bytes(queue_pkt * 1500),
        min_bytes: queue_pkt * 1500 / 10,
        max_bytes: queue_pkt * 1500 * 9 / 10,
        max_probability: 0.02,
        weight: 0.002,
        ecn: false,
    })
}

/// Mean window in segments of each subflow, from what it delivered per round trip of 10 ms.
fn windows(paths: &[Path], algorithm: &'static str, end_ms: u64) -> Vec<f64> {
    let all: Vec<usize> = (0..paths.len()).collect();
    let mut run = Run::new(paths, &[flow(algorithm, &all)], 7);
    let (before, after) = run.measure(1_000, end_ms);
    let segment = if paths.len() > 1 { MULTIPATH_SEGMENT_BYTES } else { SEGMENT_BYTES };
    let rounds = (end_ms - 1_000) as f64 / 10.0;
    let delivered =
        |i: usize| after[0].subflows[i].receiver.bytes as f64 - before[0].subflows[i].receiver.bytes as f64;
    (0..paths.len()).map(|i| delivered(i) / segment / rounds).collect()
}

/// Mathis et al., CCR 27(3), 1997: w = C / sqrt(p), C = sqrt(3/2) = 1.22 for periodic loss; Ott et al. give
/// 1.31 for independent loss. Tolerance: 1.05 to 1.45, since recovery takes a round trip or so at the lower
/// window and the run sees a few hundred losses (standard error of the rate about 3 %).
#[test]
fn reno_follows_the_inverse_square_root_of_loss() {
    let mut constants = Vec::new();
    for (p, end_ms) in [(0.01, 30_000), (0.0025, 40_000)] {
        let w = windows(&[Path::lossy(p)], "reno", end_ms)[0];
        constants.push(w * p.sqrt());
    }
    println!("w sqrt(p): {constants:?}");
    assert!(constants.iter().all(|c| (1.05..1.45).contains(c)), "{constants:?}");
    let ratio = constants[1] / constants[0];
    assert!((0.87..1.15).contains(&ratio), "a constant should not depend on p: {constants:?}");
}

/// RFC 6356's fluid equilibrium with equal round trips: w_r proportional to 1/p_r, and in total what Reno
/// has on the best path. Tolerance: 25 % on the total and a factor 1.6 on the share, because windows of a
/// few packets cannot follow the fluid (a floor of two on the worse path raises its share).
#[test]
fn lia_gets_the_share_of_reno_on_the_best_path_and_prefers_it() {
    let (good, bad) = (0.0025, 0.01);
    let reno = windows(&[Path::lossy(good)], "reno", 40_000)[0];
    let lia = windows(&[Path::lossy(good), Path::lossy(bad)], "lia", 40_000);
    let total = lia[0] + lia[1];
    println!("reno {reno:.2}, lia {lia:?}");
    assert!((0.75..1.25).contains(&(total / reno)), "total {total:.2}, Reno alone {reno:.2}");
    let share = lia[0] / lia[1];
    assert!((2.5..6.4).contains(&share), "the fluid says {}, got {share:.2}", bad / good);
}

/// Twice Reno's windows on two paths of the same loss, without coupling.
#[test]
fn uncoupled_subflows_add_up() {
    let p = 0.0025;
    let alone = windows(&[Path::lossy(p)], "reno", 40_000)[0];
    let both = windows(&[Path::lossy(p), Path::lossy(p)], "reno", 40_000);
    let ratio = (both[0] + both[1]) / alone;
    assert!((1.8..2.2).contains(&ratio), "{both:?} against {alone:.2}");
}

/// RFC 6356 section 2, goal 2, for LIA, OLIA and BALIA: on a shared bottleneck two subflows take no more
/// than one TCP. Random early drops, because the goal is derived from equal loss probabilities; windows of
/// 40 packets. Tolerance: 10 % above the mean of four competing TCPs over 60 s, in the mean of three runs.
#[test]
fn coupled_algorithms_take_one_share_of_a_shared_bottleneck() {
    let shares = |algorithm| {
        let mut flows = vec![flow(algorithm, &[0, 0])];
        flows.extend((0..4).map(|_| flow("reno", &[0])));
        let of_seed = |seed| {
            let shared = Path { red: true, ..Path::bottleneck(200_000_000, 300) };
            let goodputs = Run::new(&[shared], &flows, seed).goodputs(10_000, 70_000);
            goodputs[0] / (goodputs[1..].iter().sum::<f64>() / 4.0)
        };
        let shares = [1, 2, 3].map(of_seed);
        println!("{algorithm}: {shares:.2?} of a TCP's share");
        shares.iter().sum::<f64>() / 3.0
    };
    for algorithm in ["lia", "olia", "balia"] {
        let share = shares(algorithm);
        assert!((0.5..=1.1).contains(&share), "{algorithm}: {share:.2}");
    }
    // The test can fail: two uncoupled subflows take two shares.
    assert!(shares("reno") > 1.6);
}

/// Every subflow that a connection can have is coupled: uncoupled ones would each take a share. LIA takes more than one share with
/// many, in part by its law, whose increase goes by the largest window; the rest is not explained (docs/evidence/kernels.md). Tolerance: two
/// shares, over 40 s.
#[test]
fn lia_couples_any_number_of_subflows() {
    let share = |count| {
        let mut flows = vec![flow("lia", &vec![0; count])];
        flows.extend((0..4).map(|_| flow("reno", &[0])));
        let shared = Path { red: true, ..Path::bottleneck(1_000_000_000, 3_000) };
        let goodputs = Run::new(&[shared], &flows, 1).goodputs(10_000, 50_000);
        goodputs[0] / (goodputs[1..].iter().sum::<f64>() / 4.0)
    };
    let shares = [2, 8, 9, 16, vmcc_cc::MAX_PATHS].map(share);
    println!("{shares:.2?} of a TCP's share with 2, 8, 9, 16, 32 subflows");
    assert!(shares.iter().all(|share| *share < 2.0), "{shares:.2?}");
    assert!(shares[2] < 1.2 * shares[1], "the ninth is coupled: {shares:.2?}");
}

const RANDOM_LOSS: f64 = 1e-4;

/// Goodput of a connection beside one TCP that meets the same random loss. The warm-up of 60 s outlasts slow start: a window above its
/// equilibrium falls by its own losses only, as 2/(p t) after t round trips.
fn share_at_random_loss(algorithm: &'static str, count: usize) -> f64 {
    let flows = [flow(algorithm, &vec![0; count]), flow("reno", &[0])];
    let goodputs = Run::new(&[Path::lossy(RANDOM_LOSS)], &flows, 1).goodputs(60_000, 160_000);
    goodputs[0] / goodputs[1]
}

fn share_by_law(algorithm: &str, count: usize) -> f64 {
    let tcp = crate::coupling::mean_window("lia", 1, RANDOM_LOSS, 100_000);
    crate::coupling::mean_window(algorithm, count, RANDOM_LOSS, 20_000) / tcp
}

/// LIA (RFC 6356 section 3) and OLIA with two and nine subflows have the window that their law gives them, computed without
/// packets. Nine uncoupled subflows would have nine. Tolerance: 15 %, since a TCP sees some 150 losses in 100 s.
#[test]
fn coupled_algorithms_follow_their_law_with_nine_subflows() {
    for (algorithm, count) in [2, 9].into_iter().flat_map(|n| [("lia", n), ("olia", n)]) {
        let (share, law) = (share_at_random_loss(algorithm, count), share_by_law(algorithm, count));
        println!("{algorithm}: {share:.2} of a TCP with {count} subflows; by its law {law:.2}");
        assert!(
            (0.85..=1.15).contains(&(share / law)),
            "{algorithm}, {count}: {share:.2}, by its law {law:.2}"
        );
    }
}

#[test]
#[ignore = "on demand: a quarter of an hour, for the table of docs/evidence/kernels.md"]
fn shares_of_many_subflows_at_random_loss_follow_the_law() {
    for algorithm in ["lia", "olia", "balia"] {
        for count in [2, 8, 9, 16, vmcc_cc::MAX_PATHS] {
            let share = share_at_random_loss(algorithm, count);
            println!("{algorithm}, {count}: {share:.2}, by its law {:.2}", share_by_law(algorithm, count));
        }
    }
}

/// vMCC beside four DCTCP connections, all over one queue that marks above 60 packets.
struct MarkedShare {
    /// Goodput relative to the mean of the four.
    share: f64,
    closed: usize,
    /// DCTCP's cut of a mean window by the mean marked fraction, in packets.
    mean_cut_pkt: f64,
}

fn marked_share(params: &'static [(&'static str, f64)], count: usize) -> MarkedShare {
    const MEASURED_US: f64 = 20e6;
    let mut flows = vec![Flow { params, ..flow("vmcc", &vec![0; count]) }];
    flows.extend((0..4).map(|_| flow("dctcp", &[0])));
    let shared = Path { mark_pkt: Some(60), ..Path::bottleneck(400_000_000, 1_000) };
    let mut run = Run::new(&[shared], &flows, 1);
    let (before, after) = run.measure(5_000, 25_000);
    let bytes = |i: usize| (after[i].delivered_bytes - before[i].delivered_bytes) as f64;
    let mut cuts = Vec::new();
    for (b, a) in before[0].subflows.iter().zip(&after[0].subflows).filter(|(_, a)| a.closed.is_none()) {
        let packets = (a.receiver.packets - b.receiver.packets) as f64;
        let marked = (a.sender.ece_acks - b.sender.ece_acks) as f64 / packets;
        let rounds = MEASURED_US / (f64::from(a.srtt_8us) / 8.0);
        cuts.push(packets / rounds * marked / 2.0);
    }
    MarkedShare {
        share: bytes(0) / ((1..5).map(bytes).sum::<f64>() / 4.0),
        closed: count - cuts.len(),
        mean_cut_pkt: cuts.iter().sum::<f64>() / cuts.len() as f64,
    }
}

/// vMCC's share with many subflows on one bottleneck. The detector compares the first eight and leaves one of them; the others stay,
/// and what the connection takes is what as many undetected subflows take (9 after 16, 25 after 32). From nine subflows on DCTCP's
/// cut is less than a packet, and rounded to none until marks are more frequent: more than a share. Tolerances: 15 % between a
/// run and one of as many undetected subflows; the shares themselves are bounds of what docs/evidence/kernels.md records.
#[test]
fn vmcc_share_counts_subflows_without_a_verdict() {
    const UNDETECTED: &[(&str, f64)] = &[("trigger", 0.0)];
    let eight = marked_share(&[], 8);
    assert_eq!(eight.closed, 7);
    assert!((0.85..=1.15).contains(&eight.share), "{:.2}", eight.share);
    for (count, most) in [(16, 1.4), (vmcc_cc::MAX_PATHS, 2.4)] {
        let (detected, left) = (marked_share(&[], count), marked_share(UNDETECTED, count - 7));
        println!(
            "{count}: {:.2}, {} undetected: {:.2}; cut of {:.2} packets",
            detected.share,
            count - 7,
            left.share,
            detected.mean_cut_pkt
        );
        assert_eq!(detected.closed, 7);
        assert!((0.85..=1.15).contains(&(detected.share / left.share)));
        assert!(detected.share < most, "{:.2}", detected.share);
        assert!(detected.mean_cut_pkt < 1.0, "{:.2} packets", detected.mean_cut_pkt);
    }
}

/// RFC 6356 section 2, goal 1, for LIA, OLIA and BALIA: alone on two disjoint paths, both are used, and the
/// sum is nearly both capacities. Tolerance: 85 % of the sum, since a window saws between half and full.
#[test]
fn coupled_algorithms_use_disjoint_paths() {
    for algorithm in ["lia", "olia", "balia"] {
        let paths = [Path::bottleneck(50_000_000, 60), Path::bottleneck(50_000_000, 60)];
        let mut run = Run::new(&paths, &[flow(algorithm, &[0, 1])], 3);
        let goodput = run.goodputs(4_000, 24_000)[0];
        let share: Vec<u64> = run.records()[0].subflows.iter().map(|s| s.receiver.bytes).collect();
        println!("{algorithm}: {:.1} Mbit/s, {share:?}", goodput / 1e6);
        assert!(goodput >= 0.85 * 1e8 * 0.952, "{algorithm}: {goodput:.3e}");
        assert!(share.iter().all(|&b| b > share[0].max(share[1]) / 3), "{algorithm}: {share:?}");
    }
}

/// RFC 6356 section 2, goal 3: with three TCPs on one path and one on the other, the connection moves to the
/// less congested path and does at least about as well as a TCP there would.
#[test]
fn coupled_algorithms_move_away_from_congestion() {
    for algorithm in ["lia", "olia", "balia"] {
        let paths = [Path::bottleneck(50_000_000, 60), Path::bottleneck(50_000_000, 60)];
        let flows = [
            flow(algorithm, &[0, 1]),
            flow("reno", &[0]),
            flow("reno", &[0]),
            flow("reno", &[0]),
            flow("reno", &[1]),
        ];
        let mut run = Run::new(&paths, &flows, 5);
        let goodputs = run.goodputs(5_000, 45_000);
        let sub: Vec<u64> = run.records()[0].subflows.iter().map(|s| s.receiver.bytes).collect();
        println!("{algorithm}: {:.1} Mbit/s, subflows {sub:?}, TCPs {:?}", goodputs[0] / 1e6, &goodputs[1..]);
        assert!(sub[1] > sub[0], "{algorithm} stays on the congested path: {sub:?}");
        let crowded = goodputs[1..4].iter().sum::<f64>() / 3.0;
        assert!(
            goodputs[0] >= crowded,
            "{algorithm}: {:.3e} below a crowded TCP's {crowded:.3e}",
            goodputs[0]
        );
    }
}

fn dctcp_path(mark_pkt: u64) -> Path {
    Path {
        rate_bps: 1_000_000_000,
        one_way: Span::from_us(100),
        queue_pkt: 300,
        mark_pkt: Some(mark_pkt),
        loss: 0.0,
        red: false,
    }
}

/// Alizadeh et al., SIGCOMM 2010, section 3.3: alpha = sqrt(2 / W*), W* = (C RTT + K) / N; the queue swings
/// below K + N with amplitude D = sqrt(N (C RTT + K) / 2) / 2 and never empties if K > (C RTT) / 7.
/// Tolerance: 35 % on alpha (the fluid ignores slow reactions of a few packets); queue mean within
/// K - 2 D .. K + 2 N packets.
#[test]
fn dctcp_marks_and_queue_follow_the_fluid_model() {
    let (n, k) = (2, 40);
    let flows: Vec<Flow> = (0..n).map(|_| flow("dctcp", &[0])).collect();
    let mut run = Run::new(&[dctcp_path(k)], &flows, 11);
    let (before, after) = run.measure(300, 1_300);
    let mut ece = 0.0;
    let mut acks = 0.0;
    for (a, b) in before.iter().zip(&after) {
        ece += (b.subflows[0].sender.ece_acks - a.subflows[0].sender.ece_acks) as f64;
        acks += (b.subflows[0].receiver.acks - a.subflows[0].receiver.acks) as f64;
    }
    let pipe = 1e9 * 200e-6 / 12_000.0 + k as f64;
    let alpha = (2.0 * n as f64 / pipe).sqrt();
    let marked = ece / acks;
    let queue = run.engine.take_samples();
    let queue: Vec<f64> =
        queue.iter().filter(|s| s.link == run.forward[0]).map(|s| s.backlog_bytes as f64 / 1500.0).collect();
    let mean = queue.iter().sum::<f64>() / queue.len() as f64;
    let empty = queue.iter().filter(|&&q| q < 1.0).count();
    let swing = (n as f64 * pipe / 2.0).sqrt() / 2.0;
    println!(
        "marked {marked:.3}, law {alpha:.3}; queue mean {mean:.1}, K {k}, swing {swing:.1}, empty {empty}"
    );
    assert!((0.65..1.35).contains(&(marked / alpha)), "marked {marked:.3}, law {alpha:.3}");
    assert!(mean > k as f64 - 2.0 * swing && mean < (k + 2 * n as u64) as f64, "mean queue {mean:.1}");
    assert_eq!(empty, 0, "the link is never idle");
    assert_eq!(
        after.iter().map(ConnRecord::retransmits).sum::<u64>(),
        before.iter().map(ConnRecord::retransmits).sum::<u64>()
    );
}

/// XMP (CoNEXT 2013) rests where its windows together times the share of a subflow's rounds with a mark are one constant,
/// whatever the number of subflows (crates/cc/cc/tests/it/marked_rounds.rs): subflows that saw the same marked rounds as a single
/// one would have one share. At a threshold a smaller window meets the queue's peaks less often: the connection takes more
/// than one share, and less than the square root of its number, which marks that know no rounds would give. The constant is
/// beta = 4 where marks come at any window; here they come at its peak, and a reduction's rounds do not grow: less.
/// Tolerance: 15 % between the two, of some 300 reductions each.
#[test]
fn xmp_share_follows_its_marked_rounds() {
    for subflows in [2, 4, 8] {
        let path = Path { one_way: Span::from_us(500), ..dctcp_path(30) };
        let flows = [flow("xmp", &vec![0; subflows]), flow("xmp", &[0])];
        let mut run = Run::new(&[path], &flows, 1);
        let (before, after) = run.measure(2_000, 8_000);
        let law = |flow: usize| {
            let counted =
                |counter: fn(&ConnRecord) -> u64| (counter(&after[flow]) - counter(&before[flow])) as f64;
            let packets = counted(|r| r.subflows.iter().map(|s| s.receiver.packets).sum());
            let cuts = counted(|r| r.subflows.iter().map(|s| u64::from(s.sender.ecn_cuts)).sum());
            let srtt_8us: u64 = after[flow].subflows.iter().map(|s| u64::from(s.srtt_8us)).sum();
            let count = after[flow].subflows.len() as f64;
            let rounds = 6e6 / (srtt_8us as f64 / 8.0 / count);
            (packets / rounds, cuts / count / rounds)
        };
        let [(many, many_marked), (one, one_marked)] = [law(0), law(1)];
        println!(
            "{subflows} subflows: {many:.1} packets, {many_marked:.4} of the rounds marked; one: {one:.1}, {one_marked:.4}; \
             gain {:.2}, beta {:.2} and {:.2}",
            many / one,
            many * many_marked,
            one * one_marked
        );
        assert!((2.0..4.0).contains(&(one * one_marked)), "{one} packets, {one_marked} marked");
        assert!((0.85..1.15).contains(&(many * many_marked / (one * one_marked))), "not one constant");
        assert!((1.0..(subflows as f64).sqrt()).contains(&(many / one)), "{:.2} shares", many / one);
    }
}

/// Equal flows share equally: Jain's index of eight flows over 20 s (Reno) and 1 s (DCTCP), at least 0.95.
#[test]
fn equal_flows_share_equally() {
    let jain =
        |x: &[f64]| x.iter().sum::<f64>().powi(2) / (x.len() as f64 * x.iter().map(|v| v * v).sum::<f64>());
    let eight = |algorithm| (0..8).map(|_| flow(algorithm, &[0])).collect::<Vec<Flow>>();
    let mut reno = Run::new(&[Path::bottleneck(100_000_000, 100)], &eight("reno"), 1);
    let mut dctcp = Run::new(&[dctcp_path(60)], &eight("dctcp"), 1);
    let (reno, dctcp) = (reno.goodputs(5_000, 45_000), dctcp.goodputs(500, 1_500));
    println!("Jain: Reno {:.3}, DCTCP {:.3}", jain(&reno), jain(&dctcp));
    assert!(jain(&reno) > 0.95, "{reno:?}");
    assert!(jain(&dctcp) > 0.95, "{dctcp:?}");
    // And nothing is wasted: 1448 of 1500 bytes are payload.
    assert!(reno.iter().sum::<f64>() > 0.93 * 1e8 * 0.965, "{reno:?}");
    assert!(dctcp.iter().sum::<f64>() > 0.97 * 1e9 * 0.965, "{dctcp:?}");
}

/// A connection whose algorithm asks to close one of two subflows (vMCC, made sure that it does) goes on over
/// the other at full rate. A gap in the stream would fill the receive window of 64 MiB within the second.
#[test]
fn subflow_closed_by_its_algorithm_leaves_no_state() {
    let vmcc =
        Flow { params: &[("detector", 1.0), ("theta", 1000.0), ("phi", 1.0)], ..flow("vmcc", &[0, 0]) };
    let mut run = Run::new(&[dctcp_path(40)], &[vmcc], 2);
    let goodput = run.goodputs(500, 1_500)[0];
    let record = &run.records()[0];
    let closed = record.subflows.iter().filter(|s| s.closed.is_some()).count();
    println!("{:.1} Mbit/s, closed {closed}", goodput / 1e6);
    assert_eq!(closed, 1);
    assert!(goodput > 0.95 * 1e9 * MULTIPATH_SEGMENT_BYTES / 1500.0, "{goodput:.3e}");
}
