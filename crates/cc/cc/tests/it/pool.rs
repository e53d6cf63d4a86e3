//! Pools of connections: a bin's votes against exact numbers, and whole pools on made-up queues.

use std::array;
use std::collections::VecDeque;

use num_bigint::BigUint;
use proptest::prelude::*;
use vmcc_cc::trace::{Seeded, Source};
use vmcc_cc::{
    Algorithm, Event, EventFlags, Group, Params, Pool, PoolMember, SHARING_PATHS, Sharing, Slot, SlotFlags,
};

/// The largest integer whose product with `count` is not above the sum: the mean, rounded down.
fn mean(values: &[u16]) -> BigUint {
    let sum: BigUint = values.iter().map(|value| BigUint::from(*value)).sum();
    let all = (0..=2048u32).map(BigUint::from);
    all.take_while(|mean| mean * values.len() <= sum).last().expect("0 is not above")
}

/// Delay and share of marks of a bin, as the comment in `pool.h` has them.
fn exact(votes: &[u16]) -> Option<(BigUint, BigUint)> {
    let known: Vec<u16> = votes.iter().copied().filter(|vote| *vote != 0).collect();
    if known.len() < 3 {
        return None;
    }
    let mut delays: Vec<u16> = known.iter().map(|vote| vote >> 5).collect();
    delays.sort_unstable();
    let quarter = delays.len() / 4;
    let marks: Vec<u16> = known.iter().map(|vote| vote & 31).collect();
    let delay = mean(&delays[quarter..delays.len() - quarter]);
    Some((delay.max(BigUint::from(1u32)), mean(&marks)))
}

fn delay_of(value: u16) -> u16 {
    value >> 5
}

proptest! {
    #[test]
    fn vote_equals_the_exact_model(votes in prop::collection::vec(prop_oneof![Just(0u16), any::<u16>()], 0..200)) {
        let found = Pool::vote(&votes);
        let found = (found != 0).then(|| (BigUint::from(delay_of(found)), BigUint::from(found & 31)));
        prop_assert_eq!(found, exact(&votes));
    }

    /// A quarter of the votes may be anything: the delay stays among those of the others.
    #[test]
    fn forged_quarter_does_not_move_the_delay_beyond_honest_votes(
        honest in prop::collection::vec((100u16..300, 0u16..32), 3..60),
        forged in prop::collection::vec(any::<u16>(), 0..20),
    ) {
        let forged = &forged[..forged.len().min(honest.len() / 3)];
        let honest: Vec<u16> = honest.iter().map(|(delay, marks)| delay << 5 | marks).collect();
        let all: Vec<u16> = honest.iter().chain(forged).copied().collect();
        let delays = || honest.iter().map(|vote| delay_of(*vote));
        let found = delay_of(Pool::vote(&all));
        prop_assert!(delays().min().is_some_and(|least| least <= found), "{found}");
        prop_assert!(delays().max().is_some_and(|most| found <= most), "{found}");
    }
}

#[test]
fn votes_beyond_the_limit_are_ignored() {
    let votes: Vec<u16> = [100 << 5; 1024].into_iter().chain([2000 << 5; 1024]).collect();
    assert_eq!(Pool::vote(&votes), 100 << 5);
}

const BASE_US: u32 = 500;
const ACKS_PER_ROUND: usize = 10;
const SRTT_US: u32 = BASE_US + 500;

/// Connections with two routes each.
#[derive(Clone, Debug)]
struct Setting {
    /// The queue of each route, by connection.
    queues: Vec<[usize; 2]>,
    window_pkt: u32,
    /// All queues move by one cause.
    in_step: bool,
    /// Connections whose second route shows whatever their first does.
    forged: usize,
}

impl Setting {
    fn new(connections: usize, queues: [usize; 2], window_pkt: u32) -> Self {
        Self { queues: vec![queues; connections], window_pkt, in_step: false, forged: 0 }
    }
}

/// Queues that wander between nothing and a millisecond, and follow the windows of a round trip ago.
struct Net {
    setting: Setting,
    delay_us: [u32; 3],
    draws: Seeded,
    windows: VecDeque<Vec<[u32; 2]>>,
    /// Paths through each queue, and packets in it beyond the usual.
    there: [(i64, i64); 3],
}

impl Net {
    fn new(setting: &Setting, seed: u64) -> Self {
        let usual = vec![[setting.window_pkt; 2]; setting.queues.len()];
        let windows = VecDeque::from(vec![usual; ACKS_PER_ROUND]);
        Self {
            setting: setting.clone(),
            delay_us: [500; 3],
            draws: Seeded(seed),
            windows,
            there: [(0, 0); 3],
        }
    }

    fn draw(&mut self, below: u32) -> i64 {
        i64::from(self.draws.below(below).expect("endless"))
    }

    fn wander(&mut self) {
        for queue in 0..3 {
            let step = self.draw(401) - 200;
            self.delay_us[queue] = (i64::from(self.delay_us[queue]) + step).clamp(0, 1000) as u32;
        }
    }

    /// Counts the packets that the windows of a round trip ago put into the queues.
    fn fill(&mut self) {
        self.there = [(0, 0); 3];
        for (queues, windows) in self.setting.queues.iter().zip(&self.windows[0]) {
            for (queue, window) in queues.iter().zip(windows) {
                let (count, more) = &mut self.there[*queue];
                *count += 1;
                *more += i64::from(*window) - i64::from(self.setting.window_pkt);
            }
        }
    }

    /// Waiting time in a queue; an ACK's own place in it adds up to a tenth of a millisecond.
    fn waits_us(&mut self, queue: usize) -> u32 {
        let usual = i64::from(self.setting.window_pkt);
        let (count, more) = self.there[queue];
        let own = i64::from(self.delay_us[if self.setting.in_step { 0 } else { queue }]);
        let place = self.draw(100);
        (own + more * 1000 / (usual * count) + place).max(0) as u32
    }
}

/// A pool and its connections.
struct Host {
    pool: Pool,
    sharing: Vec<Sharing>,
    windows: Vec<[u32; 2]>,
    /// Connections that closed the second route by themselves.
    closed: Vec<bool>,
}

fn slot() -> Slot {
    Slot {
        flags: SlotFlags::ESTABLISHED,
        cwnd_pkt: 20,
        ssthresh_pkt: 20,
        srtt_8us: 8 * SRTT_US,
        pub_words: [0; 2],
    }
}

impl Host {
    fn new(setting: &Setting, seed: u64) -> Self {
        let count = setting.queues.len();
        Self {
            pool: Pool::new(seed),
            sharing: vec![Sharing::default(); count],
            windows: vec![[setting.window_pkt; 2]; count],
            closed: vec![false; count],
        }
    }

    fn turn(&mut self, group: &Group, now_us: u64) {
        if !self.pool.is_due(now_us) {
            return;
        }
        let path: [_; SHARING_PATHS] = array::from_fn(|route| u8::try_from(route).ok().filter(|r| *r < 2));
        let members: Vec<_> = self.sharing.iter().map(|sharing| PoolMember::new(sharing, path)).collect();
        self.pool.turn(group, &members, now_us);
    }

    fn ack(&mut self, algorithm: Algorithm, group: &Group, (member, path): (usize, usize), event: &Event) {
        let params = Params::defaults(algorithm);
        let sharing = &mut self.sharing[member];
        self.pool.lead(sharing);
        let mut decision = algorithm.detect(event, group, sharing, &params);
        let window = &mut self.windows[member][path];
        *window = decision.cwnd().unwrap_or(*window);
        self.pool.on_ack(event, group, path, sharing, &mut decision);
        self.closed[member] |= decision.close_in_favor_of().is_some();
    }
}

/// Runs a pool; the round trips after which it closed the second route, and the host at the end.
fn run(setting: &Setting, seed: u64, rounds: u64) -> (Option<u64>, Host) {
    let algorithm = Algorithm::by_name("vmcc").expect("in the registry");
    let (mut net, mut host) = (Net::new(setting, seed), Host::new(setting, seed));
    let group: Group = [slot(); 2].into_iter().collect();
    for ack in 0..rounds * ACKS_PER_ROUND as u64 {
        if ack.is_multiple_of(ACKS_PER_ROUND as u64) {
            net.wander();
        }
        net.fill();
        let at_us = 1_000_000 + ack * u64::from(SRTT_US) / ACKS_PER_ROUND as u64;
        for (member, queues) in setting.queues.iter().enumerate() {
            for path in 0..2 {
                let seen = if member < setting.forged { queues[0] } else { queues[path] };
                let delay_us = net.waits_us(seen);
                let event = Event {
                    now_us: at_us + member as u64,
                    flags: EventFlags::CWND_LIMITED,
                    self_index: path as u32,
                    cwnd_pkt: host.windows[member][path],
                    ssthresh_pkt: setting.window_pkt,
                    srtt_8us: 8 * SRTT_US,
                    min_rtt_us: BASE_US,
                    rtt_us: BASE_US + delay_us,
                    acked_pkt: 2,
                    in_flight_pkt: host.windows[member][path],
                    snd_una: ack as u32 * 2,
                    snd_nxt: ack as u32 * 2 + 20,
                    ..Event::default()
                };
                host.ack(algorithm, &group, (member, path), &event);
            }
        }
        host.turn(&group, at_us);
        net.windows.pop_front();
        net.windows.push_back(host.windows.clone());
        if host.pool.kept(1).is_some() {
            return (Some(ack / ACKS_PER_ROUND as u64), host);
        }
    }
    (None, host)
}

#[test]
fn pool_closes_one_of_two_routes_through_one_queue() {
    for connections in [3, 10, 30] {
        for window_pkt in [2, 20] {
            for seed in 0..6 {
                let (after, host) = run(&Setting::new(connections, [0, 0], window_pkt), seed, 300);
                let case = format!("{connections} connections, {window_pkt} packets, seed {seed}");
                let rounds = after.unwrap_or_else(|| panic!("{case}: nothing closed"));
                assert!(rounds < 200, "{case}: {rounds} round trips");
                assert_eq!(host.pool.kept(1), Some(0), "{case}");
            }
        }
    }
}

#[test]
fn pool_never_closes_one_of_two_routes_through_two_queues() {
    for connections in [3, 10, 30] {
        for (window_pkt, in_step) in [(2, false), (2, true), (20, false), (20, true)] {
            for seed in 0..6 {
                let twins = Setting { in_step, ..Setting::new(connections, [0, 1], window_pkt) };
                let (after, host) = run(&twins, seed, 400);
                let case = format!("{connections} connections, {window_pkt} packets, seed {seed}, {in_step}");
                assert_eq!(after, None, "{case}");
                assert!(!host.closed.contains(&true), "{case}");
            }
        }
    }
}

/// A network that spreads connections: half of them have both routes through one queue. The test of homogeneity recognizes most
/// mixtures, not all.
#[test]
fn mixture_is_left_to_each_connection() {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..10 {
        let mut setting = Setting::new(10, [0, 0], 20);
        setting.queues[5..].fill([0, 1]);
        let (after, host) = run(&setting, seed, 1000);
        wrong += if after.is_some() { 5 } else { 0 };
        let closed = |members: &[bool]| members.iter().filter(|closed| **closed).count();
        wrong += closed(&host.closed[5..]);
        right += closed(&host.closed[..5]);
    }
    assert!(right >= 15, "{right} of 50 closed by themselves");
    assert!(wrong <= 15, "{wrong} of 50 closed wrongly");
}

/// Members that report their first route's delays on both are a quarter: they decide nothing.
#[test]
fn forging_members_close_nothing() {
    for seed in 0..10 {
        let setting = Setting { forged: 2, ..Setting::new(8, [0, 1], 20) };
        let (after, host) = run(&setting, seed, 1000);
        assert_eq!(after, None, "seed {seed}");
        assert!(!host.closed[2..].contains(&true), "seed {seed}: {:?}", host.closed);
    }
}

/// Two connections decide alone, as without a pool.
#[test]
fn two_connections_are_no_pool() {
    let (after, host) = run(&Setting::new(2, [0, 0], 20), 1, 500);
    assert_eq!((after, host.closed), (None, vec![true, true]));
}

#[test]
fn verdict_ends_when_it_is_old() {
    let (after, mut host) = run(&Setting::new(4, [0, 0], 20), 1, 300);
    let group: Group = [slot()].into_iter().collect();
    let bin_us = 1u64 << (host.pool.evidence().shift & 31);
    let mut now_us = 1_000_000 + after.expect("closed") * u64::from(SRTT_US);
    for _ in 0..8000 {
        now_us += bin_us;
        host.turn(&group, now_us);
    }
    assert_eq!(host.pool.kept(1), Some(0), "still young");
    for _ in 0..300 {
        now_us += bin_us;
        host.turn(&group, now_us);
    }
    assert_eq!(host.pool.kept(1), None);
    assert_eq!((host.pool.evidence().evidence[0], host.pool.evidence().alone[0]), (0, 0));
}
