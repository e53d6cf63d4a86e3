//! The two builds of each algorithm, native and BPF, on the same events. Needs root, like everything that loads BPF.

mod common;

use common::alone;
use vmcc_cc::{
    Algorithm, Cause, Event, EventFlags, Group, Host, MAX_CWND_PKT, MAX_PATHS, MAX_SRTT_8US, ParamInfo,
    Params, SSTHRESH_INFINITE, Slot, SlotFlags,
};
use vmcc_host::replay::Replayer;

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
            bpf.begin(&event, &mut kernel, group, &params).unwrap();
        } else {
            algorithm.step(&event, &mut native, group, &params);
            bpf.step(&event, &mut kernel, group, &params).unwrap();
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
