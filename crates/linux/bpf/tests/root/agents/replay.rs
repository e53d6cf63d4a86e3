//! The two builds of each algorithm, native and BPF, on the same events. Needs root, like everything that loads BPF.

use vmcc_bpf::bench::Statistics;
use vmcc_bpf::replay::Replayer;
use vmcc_cc::{
    Algorithm, Cause, Event, EventFlags, Group, Host, MAX_CWND_PKT, MAX_PATHS, MAX_SRTT_8US, ParamInfo,
    Params, SSTHRESH_INFINITE, Slot, SlotFlags,
};
use vmcc_testkit::paths::alone;

const STEPS: u32 = 6000;

/// SplitMix64: seeded, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u32) -> u32 {
        u32::try_from(self.next() % u64::from(n)).expect("below n")
    }

    /// Up to `max`, every order of magnitude as likely as any other.
    fn wide(&mut self, max: u32) -> u32 {
        let bits = self.below(33 - max.leading_zeros());
        let ceiling = (1_u64 << bits) - 1;
        u32::try_from(self.next() & ceiling | (ceiling + 1) >> 1).expect("at most 32 bits").min(max)
    }
}

/// A parameter at a bound, at its default or in between.
fn vary(params: &mut Params, info: &ParamInfo, random: &mut Random) {
    let share = f64::from(random.below(5)) / 4.0;
    let value = if info.choices.is_empty() {
        info.min + (info.max - info.min) * share
    } else {
        f64::from(random.below(info.choices.len() as u32))
    };
    params.set(info.name, value).unwrap_or_else(|e| panic!("{e}"));
}

struct Trace {
    random: Random,
    hosts: Vec<Host>,
    group: Group,
    now_us: u64,
    sequence: Vec<u32>,
}

impl Trace {
    fn new(seed: u64, paths: usize) -> Self {
        let mut random = Random(seed);
        let sequence = (0..paths).map(|_| random.wide(u32::MAX)).collect();
        let hosts = vec![Host::new(10); paths];
        Self { random, hosts, group: Group::default(), now_us: 1, sequence }
    }

    fn event(&mut self, path: usize) -> Event {
        let r = &mut self.random;
        self.now_us += u64::from(r.wide(200_000)) + 1;
        let acked = if r.below(8) == 0 { 0 } else { r.wide(64) };
        let sent = self.sequence[path].wrapping_add(acked);
        self.sequence[path] = sent;
        let cause = match r.below(200) {
            0 => Cause::Rto,
            1..=3 => Cause::Loss,
            _ => Cause::None,
        };
        let host = &self.hosts[path];
        Event {
            now_us: self.now_us,
            flags: EventFlags::NONE
                .with(EventFlags::ECE, r.below(6) == 0)
                .with(EventFlags::CWND_LIMITED, r.below(5) != 0)
                .with(EventFlags::PEER_US, path % 2 == 1),
            state: host.state,
            cause,
            self_index: path as u32,
            cwnd_pkt: host.cwnd_pkt,
            ssthresh_pkt: host.ssthresh_pkt,
            srtt_8us: if r.below(50) == 0 { 0 } else { r.wide(MAX_SRTT_8US) },
            min_rtt_us: r.wide(1_000_000),
            rtt_us: r.wide(10_000_000),
            acked_pkt: acked,
            in_flight_pkt: r.wide(host.cwnd_pkt.max(1)),
            snd_una: sent,
            snd_nxt: sent.wrapping_add(r.wide(1000)),
            peer_ts: if r.below(8) == 0 { 0 } else { (self.now_us / 1000) as u32 / (1 + r.below(3)) },
        }
    }

    /// Now and then something that no real host would do.
    fn disturb(&mut self, path: usize) {
        let r = &mut self.random;
        match r.below(40) {
            0 => self.hosts[path].cwnd_pkt = r.wide(MAX_CWND_PKT).max(1),
            1 => self.hosts[path].ssthresh_pkt = SSTHRESH_INFINITE,
            2 => {
                let slot = r.below(MAX_PATHS as u32) as usize;
                let other = Slot {
                    flags: SlotFlags(r.below(16)),
                    cwnd_pkt: r.wide(u32::MAX),
                    ssthresh_pkt: r.wide(u32::MAX),
                    srtt_8us: r.wide(u32::MAX),
                    pub_words: [r.next(), r.next()],
                };
                self.group.publish(slot, other);
            }
            3 => {
                let word = r.below(7) as usize;
                self.hosts[path].path.priv_words[word] = r.next();
                self.hosts[path].path.credit_q40 = r.next().cast_signed();
            }
            4 => self.group.end = r.wide(u32::MAX),
            _ => {}
        }
    }
}

fn compare(algorithm: Algorithm, seed: u64) {
    let bpf = Replayer::load(algorithm).unwrap_or_else(|e| panic!("{e}"));
    let mut params = Params::defaults(algorithm);
    let paths = 1 + (seed % MAX_PATHS as u64) as usize;
    let mut trace = Trace::new(seed, paths);
    for step in 0..STEPS {
        let path = trace.random.below(paths as u32) as usize;
        if step % 500 == 499 {
            for info in algorithm.info().params {
                vary(&mut params, info, &mut trace.random);
            }
        }
        trace.disturb(path);
        let event = trace.event(path);
        let group = (paths > 1).then_some(&trace.group);
        let (mut native, mut kernel) = (trace.hosts[path], trace.hosts[path]);
        if step % 1000 < paths as u32 {
            algorithm.begin(&event, &mut native, group, &params);
            bpf.run(true, &event, &mut kernel, group, &params).unwrap();
        } else {
            algorithm.step(&event, &mut native, group, &params);
            bpf.run(false, &event, &mut kernel, group, &params).unwrap();
        }
        assert_eq!(native, kernel, "{algorithm}, seed {seed}, step {step}, {event:?}");
        trace.group.publish(path, native.slot(event.srtt_8us));
        trace.hosts[path] = native;
    }
}

#[test]
fn root_native_and_bpf_builds_agree_bit_for_bit() {
    let _alone = alone();
    for algorithm in Algorithm::all() {
        for seed in 0..MAX_PATHS as u64 {
            compare(algorithm, seed);
        }
        println!("{algorithm}: {} steps, equal", STEPS as usize * MAX_PATHS);
    }
}

/// Paths in congestion avoidance, their windows and round-trip times unlike.
fn steady(algorithm: Algorithm, paths: usize) -> (Event, Host, Group) {
    let host = |i: usize| Host { ssthresh_pkt: 10, ..Host::new(20 + 13 * i as u32) };
    let mut group = Group::default();
    for i in 0..paths {
        let slot = host(i).slot(8 * (200 + 37 * i as u32));
        group.publish(i, Slot { pub_words: [0, 1000 + 10 * i as u64], ..slot });
    }
    let event = Event {
        now_us: 1,
        flags: EventFlags::CWND_LIMITED,
        cwnd_pkt: 20,
        ssthresh_pkt: 10,
        srtt_8us: 1600,
        min_rtt_us: 180,
        rtt_us: 200,
        acked_pkt: 1,
        in_flight_pkt: 20,
        snd_una: 1,
        snd_nxt: 21,
        ..Event::default()
    };
    let mut first = host(0);
    algorithm.begin(&event, &mut first, Some(&group), &Params::defaults(algorithm));
    (event, Host { cwnd_pkt: 20, ssthresh_pkt: 10, ..first }, group)
}

/// The table of docs/evidence/kernels.md. OLIA finds two more maxima than LIA in the same loop over paths. Tolerance: twice LIA's cost,
/// less the cost of an empty program, the best of seven of each in turns.
#[test]
fn root_cost_of_an_ack_grows_with_its_siblings() {
    const RUNS: usize = 7;
    const CALLS: u32 = 20_000;
    let _alone = alone();
    let statistics = Statistics::enable().unwrap();
    let overhead_ns = statistics.overhead_ns().unwrap();
    let algorithms = ["reno", "lia", "balia", "vmcc", "olia"].map(|name| Algorithm::by_name(name).unwrap());
    let loaded = algorithms.map(|algorithm| (algorithm, Replayer::load(algorithm).unwrap()));
    let mut widest = Vec::new();
    for paths in [2, 8, 9, 16, MAX_PATHS] {
        let mut best = [f64::INFINITY; 5];
        for _ in 0..RUNS {
            for ((algorithm, replayer), best) in loaded.iter().zip(&mut best) {
                let (event, host, group) = steady(*algorithm, paths);
                let case = (&event, &host, Some(&group));
                let params = Params::defaults(*algorithm);
                *best = best.min(replayer.step_ns(&statistics, case, &params, CALLS).unwrap());
            }
        }
        widest = best.map(|ns| ns - overhead_ns).to_vec();
        println!("{paths} paths: {:?} {widest:.0?} ns", algorithms.map(|a| a.info().name));
    }
    let [_, lia, _, _, olia] = widest[..] else { unreachable!("five algorithms") };
    assert!(olia < 2.0 * lia, "OLIA {olia:.0} ns, LIA {lia:.0} ns");
}
