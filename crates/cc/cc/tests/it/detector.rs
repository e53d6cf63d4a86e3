//! The detector of shared bottlenecks on made-up queues: what it must close, and what it must never close.

use std::collections::VecDeque;

use vmcc_cc::trace::{Seeded, Source};
use vmcc_cc::{Algorithm, Event, EventFlags, Group, Params, Sharing, Slot, SlotFlags, State};

const BASE_US: u32 = 500;
const ACKS_PER_ROUND: usize = 10;
const WINDOW_PKT: u32 = 20;

/// Layout and state of paths and queues.
#[derive(Clone, Copy)]
struct Setting {
    /// The queue of each of two paths.
    queue: [usize; 2],
    state: State,
    flags: EventFlags,
    /// Both queues move by one cause, whichever path is in which.
    in_step: bool,
    /// Marks when the queue is longer than half of what it can be.
    marks: bool,
}

const BULK: Setting = Setting {
    queue: [0, 0],
    state: State::Open,
    flags: EventFlags::CWND_LIMITED,
    in_step: false,
    marks: false,
};

/// Two queues that wander between nothing and a millisecond; each ACK waits in that of its path. What a window is less or
/// more than usual is missing from its queue, or there besides, a round trip later.
struct Net {
    setting: Setting,
    delay_us: [u32; 2],
    draws: Seeded,
    /// The windows of the last round trip.
    windows: VecDeque<[u32; 2]>,
}

impl Net {
    fn new(setting: Setting, seed: u64) -> Self {
        let windows = VecDeque::from([[WINDOW_PKT; 2]; ACKS_PER_ROUND]);
        Self { setting, delay_us: [500; 2], draws: Seeded(seed), windows }
    }

    fn wander(&mut self) {
        for delay in &mut self.delay_us {
            let step = i64::from(self.draws.below(401).expect("endless")) - 200;
            *delay = (i64::from(*delay) + step).clamp(0, 1000) as u32;
        }
    }

    /// Waiting time of a packet on the path, with these windows.
    fn waits_us(&mut self, path: usize, windows: [u32; 2]) -> u32 {
        if path == 0 {
            self.windows.pop_front();
            self.windows.push_back(windows);
        }
        let queue = self.setting.queue;
        let there = (0..2).filter(|other| queue[*other] == queue[path]);
        let packets = there.clone().count() as i64;
        let more: i64 = there.map(|p| i64::from(self.windows[0][p]) - i64::from(WINDOW_PKT)).sum();
        let base = self.delay_us[if self.setting.in_step { 0 } else { queue[path] }];
        // A round trip of a millisecond carries the windows of all that are there.
        (i64::from(base) + more * 1000 / (i64::from(WINDOW_PKT) * packets)).max(0) as u32
    }
}

fn slot(srtt_us: u32) -> Slot {
    Slot {
        flags: SlotFlags::ESTABLISHED,
        cwnd_pkt: 20,
        ssthresh_pkt: 20,
        srtt_8us: 8 * srtt_us,
        pub_words: [0; 2],
    }
}

/// Round trips until a path asked to be closed, and which was to be kept.
fn closes(setting: Setting, seed: u64, rounds: u64) -> Option<(u64, usize, usize)> {
    closes_by("vmcc", setting, seed, rounds)
}

fn closes_by(name: &str, setting: Setting, seed: u64, rounds: u64) -> Option<(u64, usize, usize)> {
    let algorithm = Algorithm::by_name(name).expect("in the registry");
    let params = Params::defaults(algorithm);
    let mut sharing = Sharing::default();
    let mut net = Net::new(setting, seed);
    let mut windows = [WINDOW_PKT; 2];
    let srtt_us = BASE_US + 500;
    let group: Group = [slot(srtt_us); 2].into_iter().collect();
    let round_us = u64::from(srtt_us);
    for ack in 0..rounds * ACKS_PER_ROUND as u64 {
        if ack.is_multiple_of(ACKS_PER_ROUND as u64) {
            net.wander();
        }
        for path in 0..2 {
            let delay_us = net.waits_us(path, windows);
            let event = Event {
                now_us: 1_000_000 + ack * round_us / ACKS_PER_ROUND as u64 + path as u64 * 37,
                flags: setting.flags.with(EventFlags::ECE, setting.marks && delay_us > 500),
                state: setting.state,
                self_index: path as u32,
                cwnd_pkt: windows[path],
                ssthresh_pkt: WINDOW_PKT,
                srtt_8us: 8 * srtt_us,
                min_rtt_us: BASE_US,
                rtt_us: BASE_US + delay_us,
                acked_pkt: 2,
                in_flight_pkt: windows[path],
                snd_una: ack as u32 * 2,
                snd_nxt: ack as u32 * 2 + 20,
                ..Event::default()
            };
            let decision = algorithm.detect(&event, &group, &mut sharing, &params);
            windows[path] = decision.cwnd().unwrap_or(windows[path]);
            if let Some(kept) = decision.close_in_favor_of() {
                return Some((ack / ACKS_PER_ROUND as u64, path, kept));
            }
        }
    }
    None
}

#[test]
fn later_of_two_paths_through_one_queue_is_closed() {
    for seed in 0..50 {
        for marks in [false, true] {
            let closed = closes(Setting { marks, ..BULK }, seed, 1000);
            let (rounds, closed, kept) = closed.unwrap_or_else(|| panic!("seed {seed}: nothing closed"));
            assert_eq!((closed, kept), (1, 0), "seed {seed}");
            assert!(rounds < 200, "seed {seed}: {rounds} round trips");
        }
    }
}

#[test]
fn twins_with_separate_queues_are_never_closed() {
    for seed in 0..100 {
        for marks in [false, true] {
            let closed = closes(Setting { queue: [0, 1], marks, ..BULK }, seed, 3000);
            assert_eq!(closed, None, "seed {seed}, marks {marks}");
        }
    }
}

/// A common cause that moves both queues at the same moments is no shared queue: neither path answers the other's probes.
#[test]
fn twins_congested_in_step_are_never_closed() {
    for seed in 0..100 {
        for marks in [false, true] {
            let twins = Setting { queue: [0, 1], in_step: true, marks, ..BULK };
            assert_eq!(closes(twins, seed, 3000), None, "seed {seed}, marks {marks}");
        }
    }
}

#[test]
fn undecided_paths_are_not_closed() {
    // In recovery no path probes; without a probe it may be coincidence.
    let recovering = Setting { state: State::Recovery, ..BULK };
    // An application that is the limit makes all its paths busy and idle at once.
    let idle = Setting { flags: EventFlags::NONE, ..BULK };
    for seed in 0..20 {
        assert_eq!(closes(recovering, seed, 2000), None, "seed {seed}");
        assert_eq!(closes(idle, seed, 2000), None, "seed {seed}");
    }
}

#[test]
fn vmcc_awake_never_descheduled_closes_as_vmcc() {
    for seed in 0..50 {
        for queue in [[0, 0], [0, 1]] {
            let setting = Setting { queue, marks: seed % 2 == 0, ..BULK };
            let [vmcc, awake] = ["vmcc", "vmcc_awake"].map(|name| closes_by(name, setting, seed, 500));
            assert_eq!(vmcc, awake, "seed {seed}");
        }
    }
}
