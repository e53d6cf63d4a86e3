//! Queues of every kind inside the engine: laws, rates, marks, changes, conservation.

use rand_xoshiro::rand_core::Rng;

use super::*;
use crate::engine::{Ctx, Endpoints, Engine, Partition, Timer, TimerId};
use crate::packet::{LinkId, Packet, RouteId, Sack};
use crate::rng::{Stream, Streams};
use crate::time::{Span, Time};

const GBIT: u64 = 1_000_000_000;

/// Sends packets at given times and notes what arrives.
#[derive(Debug, Default)]
struct Script {
    sends: Vec<(Time, Packet)>,
    next: usize,
    timer: Timer,
    arrived: Vec<(Time, Packet)>,
}

impl Endpoints for Script {
    fn start(&mut self, ctx: &mut Ctx) {
        self.sends.sort_by_key(|(at, _)| *at);
        self.go_on(ctx);
    }

    fn on_packet(&mut self, ctx: &mut Ctx, packet: &Packet, _sack: &Sack) {
        self.arrived.push((ctx.now(), *packet));
    }

    fn on_timer(&mut self, ctx: &mut Ctx, id: TimerId) {
        if ctx.expired(&mut self.timer, id) {
            self.go_on(ctx);
        }
    }
}

impl Script {
    fn go_on(&mut self, ctx: &mut Ctx) {
        while let Some((at, packet)) = self.sends.get(self.next) {
            if *at > ctx.now() {
                return ctx.arm(&mut self.timer, TimerId(0), *at);
            }
            ctx.send(*packet);
            self.next += 1;
        }
    }
}

/// One link under test, from a sender to a receiver.
struct Bed {
    net: NetSpec,
    link: LinkId,
    route: RouteId,
    sends: Vec<(Time, Packet)>,
}

impl Bed {
    fn new(rate_bps: u64, delay: Span, queue: QueueSpec) -> Bed {
        Bed::with(|from, to| LinkSpec::new(from, to, rate_bps, delay, queue))
    }

    fn with(link: impl FnOnce(NodeId, NodeId) -> LinkSpec) -> Bed {
        let mut net = NetSpec::new();
        let (from, to) = (net.node(), net.node());
        let link = net.link(link(from, to)).unwrap();
        let route = net.route(&[link]).unwrap();
        Bed { net, link, route, sends: Vec::new() }
    }

    fn send(&mut self, at: Time, packet: Packet) {
        let seq = self.sends.len() as u32;
        self.sends.push((at, Packet { route: self.route, seq, sent: at, ..packet }));
    }

    /// `n` packets back to back from `at`, all at once.
    fn burst(&mut self, at: Time, n: u32, packet: Packet) {
        (0..n).for_each(|_| self.send(at, packet));
    }

    /// Packets of one class at `rate_bps` from 0 to `until`.
    fn stream(&mut self, rate_bps: u64, until: Time, packet: Packet) {
        let gap = rate::wire_time(packet.size_bytes.into(), rate_bps);
        let mut at = Time::ZERO;
        while at < until {
            self.send(at, packet);
            at += gap;
        }
    }

    fn run(self, until: Time) -> Outcome {
        let hosts = vec![Script { sends: self.sends, ..Script::default() }];
        let whole = Partition::whole(&self.net);
        let mut engine = Engine::new(&self.net, &whole, &Streams::new(1), hosts).unwrap();
        engine.run_until(until);
        let samples = engine.take_samples();
        let counters = engine.counters(self.link);
        let totals = engine.totals();
        let arrived = engine.hosts().next().unwrap().arrived.clone();
        Outcome { arrived, counters, totals, samples }
    }
}

struct Outcome {
    arrived: Vec<(Time, Packet)>,
    counters: LinkCounters,
    totals: Totals,
    samples: Vec<crate::engine::QueueSample>,
}

impl Outcome {
    fn seqs(&self) -> Vec<u32> {
        self.arrived.iter().map(|(_, p)| p.seq).collect()
    }

    fn marked(&self) -> Vec<u32> {
        self.arrived.iter().filter(|(_, p)| p.has(Packet::CE)).map(|(_, p)| p.seq).collect()
    }

    /// Goodput of a class in bits per second between two instants.
    fn rate(&self, class: u8, from: Time, to: Time) -> f64 {
        let within = |t: Time| from < t && t <= to;
        let of_class = self.arrived.iter().filter(|(t, p)| p.class == class && within(*t));
        of_class.map(|(_, p)| f64::from(p.size_bytes) * 8.0).sum::<f64>() / to.since(from).secs_f64()
    }
}

fn packet(size_bytes: u16) -> Packet {
    Packet { size_bytes, flags: Packet::DATA | Packet::ECT, ..Packet::default() }
}

fn of_class(class: u8, size_bytes: u16) -> Packet {
    Packet { class, ..packet(size_bytes) }
}

fn at_us(us: u64) -> Time {
    Time::ZERO + Span::from_us(us)
}

fn fifo(limit: LimitSpec, mark: Option<ThresholdSpec>) -> QueueSpec {
    QueueSpec::Fifo { limit, mark }
}

fn class(quantum_bytes: u32, limit: LimitSpec) -> ClassSpec {
    ClassSpec { quantum_bytes, limit, mark: None }
}

fn classes(scheduling: Scheduling, marking: MarkingSpec, classes: Vec<ClassSpec>) -> QueueSpec {
    QueueSpec::Classes { scheduling, marking, classes }
}

#[test]
fn fifo_departure_times_are_exact() {
    let mut bed = Bed::new(GBIT, Span::from_us(5), fifo(LimitSpec::Unlimited, None));
    bed.burst(at_us(1), 3, packet(1500));
    let times: Vec<u64> = bed.run(at_us(100)).arrived.iter().map(|(t, _)| t.ps() / 1000).collect();
    assert_eq!(times, [18_000, 30_000, 42_000]);
}

/// One packet is being sent; the limit is what may wait behind it, in bytes as in packets.
#[test]
fn tail_drop_limits_bytes_and_packets() {
    let accepted = |limit, n| {
        let mut bed = Bed::new(GBIT, Span::ZERO, fifo(limit, None));
        bed.burst(at_us(1), n + 10, packet(1500));
        let out = bed.run(at_us(10_000));
        assert_eq!(out.counters.drops[DropReason::Tail as usize] + out.counters.packets, u64::from(n) + 10);
        out.seqs()
    };
    for n in [1, 2, 10, 100] {
        let expected: Vec<u32> = (0..=n).collect();
        assert_eq!(accepted(LimitSpec::Bytes(1500 * u64::from(n)), n), expected);
        assert_eq!(accepted(LimitSpec::Packets(n), n), expected);
    }
}

#[test]
fn ecn_threshold_marks_by_bytes_and_by_time() {
    let marked = |mark, flags| {
        let mut bed = Bed::new(GBIT, Span::ZERO, fifo(LimitSpec::Unlimited, Some(mark)));
        bed.burst(at_us(1), 20, Packet { flags, ..packet(1500) });
        bed.run(at_us(1000)).marked()
    };
    // One is in service and ten wait when the twelfth comes: 15,000 B are not above the threshold.
    let expected: Vec<u32> = (12..20).collect();
    let ect = Packet::DATA | Packet::ECT;
    assert_eq!(marked(ThresholdSpec::Bytes(15_000), ect), expected);
    assert_eq!(marked(ThresholdSpec::Time(Span::from_us(120)), ect), expected);
    assert!(marked(ThresholdSpec::Bytes(15_000), Packet::DATA).is_empty());
}

/// Two sizes are kept as bits, more apart; of one there are never two to tell apart.
const MIXES: [[u16; 5]; 4] =
    [[64, 64, 704, 1500, 1500], [64, 64, 1500, 1500, 1500], [1500; 5], [64, 64, 64, 64, 128]];

const LIMITS: [u64; 7] = [64, 1_500, 3_000, 4_567, 15_000, 100_000, 400_000];

/// Below, at and above the number of packets that have a bit each.
const PACKET_LIMITS: [u32; 8] = [0, 1, 2, 10, 62, 63, 64, 150];

/// Arrivals with their marks; what waits and what was sent, over time.
type Fate = (Vec<(Time, u32, bool)>, Vec<(u64, u64)>);

/// Fate of 3,000 packets of mixed sizes that arrive in bursts, many at the instant at which another departs.
fn fate_of(mix: [u16; 5], queue: QueueSpec, changes: &[LinkChange]) -> Fate {
    let mut bed = Bed::new(GBIT, Span::from_us(5), queue);
    let mut rng = Streams::new(5).stream("mixed");
    let mut at = at_us(1);
    for _ in 0..3_000 {
        let draw = rng.next_u64();
        bed.send(at, packet(mix[(draw % 5) as usize]));
        // Multiples of the time that 64 bytes take, at 97 % load by the first mix; two hundred at once now and then.
        if draw >> 32 & 1023 == 0 {
            bed.burst(at, 200, packet(mix[(draw >> 16) as usize % 5]));
        }
        at += Span::from_ns(512).times([0, 0, 12, 12, 38][(draw >> 8) as usize % 5]);
    }
    for change in changes {
        bed.net.change(at_us(10_000), bed.link, *change).unwrap();
    }
    bed.net.sample(bed.link, Span::from_ns(5_120)).unwrap();
    let out = bed.run(at_us(40_000));
    let backlog = out.samples.iter().map(|s| (s.backlog_bytes, s.counters.packets)).collect();
    (out.arrived.iter().map(|(at, p)| (*at, p.seq, p.has(Packet::CE))).collect(), backlog)
}

/// An event that changes nothing, and a scheduler with one queue to choose from.
#[test]
fn queue_settings_are_independent_of_the_scheduler() {
    let nothing = [
        LinkChange::Rate { rate_bps: GBIT },
        LinkChange::Delay(Span::from_us(5)),
        LinkChange::Loss(None),
        LinkChange::Up,
    ];
    let limits = || LIMITS.map(LimitSpec::Bytes).into_iter().chain(PACKET_LIMITS.map(LimitSpec::Packets));
    for (mix, limit) in MIXES.iter().flat_map(|&mix| limits().map(move |limit| (mix, limit))) {
        let fate_of_mixed_sizes = |queue, changes: &[LinkChange]| fate_of(mix, queue, changes);
        for mark in [
            None,
            Some(ThresholdSpec::Bytes(0)),
            Some(ThresholdSpec::Bytes(3_000)),
            Some(ThresholdSpec::Time(Span::from_us(20))),
        ] {
            let plain = fate_of_mixed_sizes(fifo(limit, mark), &[]);
            for change in nothing {
                assert_eq!(
                    fate_of_mixed_sizes(fifo(limit, mark), &[change]),
                    plain,
                    "{limit:?} {mark:?} {change:?}"
                );
            }
            for scheduling in [Scheduling::StrictPriority, Scheduling::DeficitRoundRobin] {
                let one = vec![ClassSpec { quantum_bytes: 1500, limit, mark }];
                let served = fate_of_mixed_sizes(classes(scheduling, MarkingSpec::None, one), &[]);
                assert_eq!(served, plain, "{limit:?} {mark:?} {scheduling:?}");
            }
        }
        let red = QueueSpec::Red(RedSpec {
            limit,
            min_bytes: 1_000,
            max_bytes: 12_000,
            max_probability: 0.2,
            weight: 0.1,
            ecn: true,
        });
        let plain = fate_of_mixed_sizes(red.clone(), &[]);
        for change in nothing {
            assert_eq!(fate_of_mixed_sizes(red.clone(), &[change]), plain, "RED {limit:?} {change:?}");
        }
    }
}

/// An event per packet-hop: the arrival at the far end. What still waits has not been sent.
#[test]
fn fifos_need_one_event_per_hop_with_either_limit() {
    for (limit, mark) in [
        (LimitSpec::Bytes(150_000), None),
        (LimitSpec::Packets(100), None),
        (LimitSpec::Packets(100), Some(ThresholdSpec::Bytes(97_500))),
        (LimitSpec::Packets(10), None),
    ] {
        let run = |until| {
            let mut bed = Bed::new(GBIT, Span::from_us(5), fifo(limit, mark));
            bed.stream(2 * GBIT, at_us(2_000), packet(1500));
            bed.run(until)
        };
        let out = run(at_us(20_000));
        assert!(out.counters.drops[DropReason::Tail as usize] > 20, "the limit is reached");
        assert_eq!(out.totals.events - out.totals.timer_events, out.totals.packet_hops, "{limit:?} {mark:?}");
        // 12 us each: at 1,000 us the 84th is in service.
        let half = run(at_us(1_000));
        assert_eq!((half.counters.packets, half.totals.packet_hops), (84, 84), "{limit:?}");
    }
}

fn poisson_gap(rng: &mut Stream, mean: Span) -> Span {
    let uniform = ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    Span::from_ps((-uniform.ln() * mean.ps() as f64) as u64)
}

/// M/D/1: mean wait = rho / (2 (1 - rho)) service times (Pollaczek and Khinchine). At rho = 0.7 with
/// 400,000 arrivals the standard error is about 0.7 %; tolerance 3 %. For the one-event and the
/// two-event implementation, which must agree to the picosecond.
#[test]
fn poisson_arrivals_wait_as_in_m_d_1() {
    let wait = |queue| {
        let mut bed = Bed::new(GBIT, Span::ZERO, queue);
        let mut rng = Streams::new(3).stream("md1");
        let service = Span::from_us(12);
        let mut now = Time::ZERO;
        for _ in 0..400_000 {
            now += poisson_gap(&mut rng, Span::from_ps(service.ps() * 10 / 7));
            bed.send(now, packet(1500));
        }
        let out = bed.run(Time::NEVER);
        let waits = out.arrived.iter().map(|(t, p)| t.since(p.sent).ps() - service.ps());
        waits.sum::<u64>() as f64 / out.arrived.len() as f64 / service.ps() as f64
    };
    let one_event = wait(fifo(LimitSpec::Packets(u32::MAX), None));
    assert!((one_event / (0.7 / 0.6) - 1.0).abs() < 0.03, "{one_event}");
    let one = vec![class(1500, LimitSpec::Unlimited)];
    assert_eq!(one_event, wait(classes(Scheduling::StrictPriority, MarkingSpec::None, one)));
}

/// Three classes 4:2:1 at 1 Gbit/s, all overloaded: shares within 1 % over 20 ms, and work conserving.
#[test]
fn drr_shares_the_link() {
    let quanta = [6000, 3000, 1500].map(|q| class(q, LimitSpec::Packets(50))).to_vec();
    let mut bed =
        Bed::new(GBIT, Span::ZERO, classes(Scheduling::DeficitRoundRobin, MarkingSpec::None, quanta));
    for (class, size) in [(0, 1500), (1, 700), (2, 1500)] {
        bed.stream(GBIT, at_us(21_000), of_class(class, size));
    }
    let out = bed.run(at_us(21_000));
    let rates = [0, 1, 2].map(|c| out.rate(c, at_us(1000), at_us(21_000)) / GBIT as f64);
    for (rate, share) in rates.iter().zip([4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0]) {
        assert!((rate / share - 1.0).abs() < 0.01, "{rates:?}");
    }
    assert!((rates.iter().sum::<f64>() - 1.0).abs() < 0.002, "{rates:?}");
}

/// An idle class's share goes to the others.
#[test]
fn drr_is_work_conserving() {
    let quanta = [6000, 1500].map(|q| class(q, LimitSpec::Packets(50))).to_vec();
    let mut bed =
        Bed::new(GBIT, Span::ZERO, classes(Scheduling::DeficitRoundRobin, MarkingSpec::None, quanta));
    bed.stream(GBIT / 10, at_us(11_000), of_class(0, 1500));
    bed.stream(GBIT, at_us(11_000), of_class(1, 1500));
    let out = bed.run(at_us(11_000));
    let rates = [0, 1].map(|c| out.rate(c, at_us(1000), at_us(11_000)) / GBIT as f64);
    assert!((rates[0] - 0.1).abs() < 0.002 && (rates[1] - 0.9).abs() < 0.002, "{rates:?}");
}

#[test]
fn strict_priority_serves_low_classes_first() {
    let two = vec![class(1, LimitSpec::Unlimited); 2];
    let mut bed = Bed::new(GBIT, Span::ZERO, classes(Scheduling::StrictPriority, MarkingSpec::None, two));
    bed.burst(at_us(1), 5, of_class(1, 1500));
    bed.burst(at_us(2), 5, of_class(0, 1500));
    // The first packet of class 1 was already in service.
    assert_eq!(bed.run(at_us(1000)).seqs(), [0, 5, 6, 7, 8, 9, 1, 2, 3, 4]);
}

/// MQ-ECN at a port of two equal, overloaded classes: each marks above half the port's threshold, a lone
/// class above all of it.
#[test]
fn mq_ecn_splits_the_port_threshold() {
    let smallest_marked_wait = |active: u8| {
        let two = vec![class(1500, LimitSpec::Packets(100)); 2];
        let marking = MarkingSpec::MqEcn { port_threshold_bytes: 60_000 };
        let mut bed = Bed::new(GBIT, Span::ZERO, classes(Scheduling::DeficitRoundRobin, marking, two));
        for c in 0..active {
            // 10 % overload per active class: queues grow slowly.
            bed.stream(GBIT / u64::from(active) * 11 / 10, at_us(20_000), of_class(c, 1500));
        }
        let out = bed.run(at_us(40_000));
        let (at, first) = out.arrived.iter().find(|(_, p)| p.has(Packet::CE)).unwrap();
        at.since(first.sent).ps() as f64 / 1e6
    };
    // 60,000 B alone drain in 480 us; 30,000 B at half rate as well. One packet of slack per class.
    for active in [1, 2] {
        let wait = smallest_marked_wait(active);
        assert!((wait - 480.0).abs() < 40.0, "{active} classes: {wait} us");
    }
}

/// TCN marks by sojourn; at a constant drain rate r this is a length threshold r x sojourn.
#[test]
fn tcn_equals_a_length_threshold_at_constant_rate() {
    let marked = |queue| {
        let mut bed = Bed::new(GBIT, Span::ZERO, queue);
        bed.burst(at_us(1), 60, packet(1500));
        bed.run(at_us(10_000)).marked()
    };
    let one = || vec![class(1500, LimitSpec::Unlimited)];
    let tcn = MarkingSpec::Tcn { sojourn: Span::from_us(240) };
    let by_time = marked(classes(Scheduling::DeficitRoundRobin, tcn, one()));
    // 240 us at 1 Gbit/s: 30,000 B ahead of the packet, of which 1,500 are in service.
    assert_eq!(by_time, marked(fifo(LimitSpec::Unlimited, Some(ThresholdSpec::Bytes(28_500)))));
    assert_eq!(by_time, (21..60).collect::<Vec<_>>());
}

fn shaper_class(parent: Option<usize>, guarantee_mbit: u64, ceiling_mbit: u64) -> ShaperClass {
    ShaperClass {
        parent,
        guarantee_bps: guarantee_mbit * 1_000_000,
        ceiling_bps: ceiling_mbit * 1_000_000,
        burst_bytes: 3_000,
        limit: LimitSpec::Packets(100),
        mark: None,
    }
}

/// Rates of leaf classes offered `offered_mbit`, over 200 ms, in Mbit/s.
fn shaped(tree: Vec<ShaperClass>, offered_mbit: &[u64]) -> Vec<f64> {
    let mut bed = Bed::new(10 * GBIT, Span::ZERO, QueueSpec::Shaper { classes: tree });
    for (c, &mbit) in offered_mbit.iter().enumerate().filter(|(_, m)| **m > 0) {
        bed.stream(mbit * 1_000_000, at_us(220_000), of_class(c as u8, 1500));
    }
    let out = bed.run(at_us(220_000));
    let rate = |c| out.rate(c as u8, at_us(20_000), at_us(220_000)) / 1e6;
    (0..offered_mbit.len()).map(rate).collect()
}

fn assert_rates(got: &[f64], want: &[f64]) {
    for (g, w) in got.iter().zip(want) {
        assert!((g / w - 1.0).abs() < 0.01, "got {got:?}, want {want:?}");
    }
}

/// Rates within 1 %.
#[test]
fn shaper_caps_guarantees_and_lends() {
    // A single class is a hard cap.
    assert_rates(&shaped(vec![shaper_class(None, 600, 600)], &[900]), &[600.0]);
    // Two VMs behind 600 Mbit/s, guaranteed 400 and 200, may borrow all.
    let tree = |ceiling| {
        vec![
            shaper_class(None, 600, 600),
            shaper_class(Some(0), 400, ceiling),
            shaper_class(Some(0), 200, ceiling),
        ]
    };
    assert_rates(&shaped(tree(600), &[900, 900]), &[400.0, 200.0]);
    assert_rates(&shaped(tree(600), &[100, 900]), &[100.0, 500.0]);
    // What a ceiling forbids stays unused.
    assert_rates(&shaped(tree(450), &[100, 900]), &[100.0, 450.0]);
    // Borrowed bandwidth is divided in proportion to the guarantees.
    let three = vec![
        shaper_class(None, 900, 900),
        shaper_class(Some(0), 300, 900),
        shaper_class(Some(0), 200, 900),
        shaper_class(Some(0), 100, 900),
    ];
    assert_rates(&shaped(three, &[0, 900, 900])[1..], &[600.0, 300.0]);
}

/// The burst goes out at wire speed, the rest at the shaped rate.
#[test]
fn shaper_passes_a_burst() {
    let tree = vec![ShaperClass { burst_bytes: 15_000, ..shaper_class(None, 100, 100) }];
    let mut bed = Bed::new(10 * GBIT, Span::ZERO, QueueSpec::Shaper { classes: tree });
    bed.burst(at_us(1), 30, packet(1500));
    let times: Vec<u64> = bed.run(at_us(10_000)).arrived.iter().map(|(t, _)| t.us()).collect();
    assert!(times[10] < 20, "{times:?}");
    assert!(times[11] > 100 && times[29] - times[11] == 18 * 120, "{times:?}");
}

#[test]
fn red_marks_or_drops_between_thresholds() {
    let spec = |ecn| RedSpec {
        limit: LimitSpec::Bytes(300_000),
        min_bytes: 30_000,
        max_bytes: 90_000,
        max_probability: 0.1,
        weight: 0.02,
        ecn,
    };
    let run = |ecn| {
        let mut bed = Bed::new(GBIT, Span::ZERO, QueueSpec::Red(spec(ecn)));
        bed.stream(GBIT * 102 / 100, at_us(30_000), packet(1500));
        bed.run(at_us(40_000)).counters
    };
    let (marking, dropping) = (run(true), run(false));
    assert!(marking.marks > 20 && marking.drops == [0; 4], "{marking:?}");
    assert!(dropping.marks == 0 && dropping.drops[DropReason::Early as usize] > 10, "{dropping:?}");
}

#[test]
fn links_apply_loss_and_jitter() {
    let mut bed = Bed::with(|from, to| LinkSpec {
        loss: Some(LossSpec::Bernoulli(0.1)),
        jitter: Some(JitterSpec { max: Span::from_us(50), keep_order: true }),
        ..LinkSpec::new(from, to, GBIT, Span::from_us(10), fifo(LimitSpec::Unlimited, None))
    });
    bed.stream(GBIT / 2, at_us(240_000), packet(1500));
    let out = bed.run(at_us(300_000));
    let lost = out.counters.drops[DropReason::Loss as usize] as f64 / out.counters.packets as f64;
    assert!((lost - 0.1).abs() < 0.015, "{lost}");
    assert!(out.seqs().is_sorted());
    assert_eq!(out.totals.in_flight, 0);
}

#[test]
fn rate_and_delay_changes_apply_from_the_next_packet() {
    let mut bed = Bed::new(GBIT, Span::ZERO, fifo(LimitSpec::Unlimited, None));
    bed.burst(at_us(0), 4, packet(1500));
    bed.net.change(at_us(20), bed.link, LinkChange::Rate { rate_bps: GBIT / 10 }).unwrap();
    bed.net.change(at_us(130), bed.link, LinkChange::Delay(Span::from_us(7))).unwrap();
    let times: Vec<u64> = bed.run(at_us(1000)).arrived.iter().map(|(t, _)| t.us()).collect();
    assert_eq!(times, [12, 24, 144, 264 + 7]);
}

#[test]
fn down_link_drops_and_paused_link_holds_packets() {
    let run = |change| {
        let mut bed = Bed::new(GBIT, Span::ZERO, fifo(LimitSpec::Unlimited, None));
        bed.burst(at_us(0), 4, packet(1500));
        bed.burst(at_us(50), 1, packet(1500));
        bed.burst(at_us(120), 1, packet(1500));
        bed.net.change(at_us(15), bed.link, change).unwrap();
        bed.net.change(at_us(100), bed.link, LinkChange::Up).unwrap();
        let out = bed.run(at_us(1000));
        let times: Vec<(u32, u64)> = out.arrived.iter().map(|(t, p)| (p.seq, t.us())).collect();
        (times, out.counters.drops[DropReason::Down as usize])
    };
    assert_eq!(run(LinkChange::Down), (vec![(0, 12), (1, 24), (5, 132)], 3));
    let held = vec![(0, 12), (1, 24), (2, 112), (3, 124), (4, 136), (5, 148)];
    assert_eq!(run(LinkChange::Pause), (held, 0));
}

#[test]
fn loss_starts_and_ends_at_its_times() {
    let mut bed = Bed::new(GBIT, Span::ZERO, fifo(LimitSpec::Unlimited, None));
    bed.stream(GBIT, at_us(300), packet(1500));
    bed.net.change(at_us(100), bed.link, LinkChange::Loss(Some(LossSpec::Bernoulli(1.0)))).unwrap();
    bed.net.change(at_us(200), bed.link, LinkChange::Loss(None)).unwrap();
    let out = bed.run(at_us(1000));
    assert_eq!(out.seqs(), (0..9).chain(17..25).collect::<Vec<_>>());
}

#[test]
fn queue_samples_match_the_backlog() {
    for limit in [LimitSpec::Unlimited, LimitSpec::Packets(1000)] {
        let mut bed = Bed::new(GBIT, Span::ZERO, fifo(limit, None));
        bed.burst(at_us(10), 10, packet(1500));
        bed.net.sample(bed.link, Span::from_us(35)).unwrap();
        let out = bed.run(at_us(150));
        let backlog: Vec<u64> = out.samples.iter().map(|s| s.backlog_bytes).collect();
        // At 35 us the third packet is being sent. At 70 us the fifth is just about to end.
        let expected = [0, 10_500, 7_500, 3_000, 0];
        assert_eq!(backlog, expected);
        let packets: Vec<u64> = out.samples.iter().map(|s| s.counters.packets).collect();
        assert_eq!(packets.first(), Some(&0));
    }
}

#[test]
fn impossible_links_and_routes_are_refused() {
    let mut net = NetSpec::new();
    let [a, b, c] = [0; 3].map(|_| net.node());
    let queue = fifo(LimitSpec::Unlimited, None);
    let slow = LinkSpec::new(a, b, 0, Span::ZERO, queue.clone());
    assert!(matches!(net.link(slow), Err(NetError::Rate { rate_bps: 0, .. })));
    let mut join = |from, to| net.link(LinkSpec::new(from, to, GBIT, Span::ZERO, queue.clone())).unwrap();
    let (ab, bc, ca) = (join(a, b), join(b, c), join(c, a));
    assert!(net.route(&[ab, bc]).is_ok());
    assert_eq!(net.route(&[]), Err(NetError::EmptyRoute));
    assert!(matches!(net.route(&[ab, ca]), Err(NetError::Broken { .. })));
    assert_eq!(net.route(&[ab, bc, ca]), Err(NetError::Cycle { node: 0 }));
    assert!(matches!(net.route(&[LinkId(9)]), Err(NetError::UnknownLink { link: 9, .. })));
    let bad =
        LinkSpec { loss: Some(LossSpec::Bernoulli(1.5)), ..LinkSpec::new(a, b, GBIT, Span::ZERO, queue) };
    assert!(matches!(net.link(bad), Err(NetError::Queue { .. })));
}
