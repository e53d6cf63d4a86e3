//! The arithmetic of `kernel/port/marking.h`: worked examples, through the native build and the BPF build of the same text.
//!
//! The examples are those of the MQ-ECN paper's authors' code (Bai et al., NSDI 2016) at 1 Gbit/s with a quantum of
//! 1538 bytes and a port threshold of 30,000 bytes.

use crate::shared::marking::*;
use crate::shared::{self, FIRST};
use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder, ProgramInput};
use proptest::prelude::*;

static BPF: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/marking.o"));

const GIGABIT: u64 = 125_000_000;
const K_PORT: u64 = 30_000;
/// 1538 bytes at 1 Gbit/s.
const QUANTUM_NS: u64 = 12_304;
/// Every function.
const ALL: [u32; 15] = [
    MARKING_PORT_THRESHOLD,
    MARKING_ROUND_SMOOTH,
    MARKING_ROUND_IDLE,
    MARKING_QUEUE_THRESHOLD,
    MARKING_SHARE,
    MARKING_DRAIN,
    MARKING_ROUND_LEFT,
    MARKING_ELAPSED,
    MARKING_FILL,
    MARKING_REPRICED,
    MARKING_RTT_BUCKET,
    MARKING_RTT_QUANTILE,
    MARKING_FLOW_RECENT,
    MARKING_OVERLOAD,
    MARKING_FLOOD,
];
const LAMBDA_ONE: u64 = 65_536;

unsafe extern "C" {
    fn vmcc_marking_native(step: *mut Step);
}

fn step(function: u32, arguments: [u64; 4], table: &Table) -> Step {
    Step { function: function.into(), input: arguments, table: *table, out: 0 }
}

fn native(function: u32, arguments: [u64; 4], table: &Table) -> u64 {
    let mut step = step(function, arguments, table);
    // SAFETY: the function reads and writes the structure alone, whose layout is the same.
    unsafe { vmcc_marking_native(&raw mut step) };
    step.out
}

/// The BPF build, loaded.
struct Bpf {
    object: Object,
    step: MapHandle,
}

impl Bpf {
    fn load() -> Self {
        let object = ObjectBuilder::default().open_memory(BPF).unwrap().load().expect("needs root");
        let map = object.maps().find(|map| map.name() == ".data.step").unwrap();
        let step = MapHandle::try_from(&map).unwrap();
        Self { object, step }
    }

    fn call(&self, function: u32, arguments: [u64; 4], table: &Table) -> u64 {
        shared::write(&self.step, FIRST, &step(function, arguments, table)).unwrap();
        let program = self.object.progs_mut().find(|program| program.name() == "marking_run").unwrap();
        program.test_run(ProgramInput::default()).unwrap();
        shared::read::<Step>(&self.step, FIRST).unwrap().unwrap().out
    }
}

type Call<'a> = &'a dyn Fn(u32, [u64; 4], &Table) -> u64;

const NONE: Table = [0; 96];

fn port_thresholds(call: Call<'_>) {
    let k = |rate, rtt_ns, lambda_q16| call(MARKING_PORT_THRESHOLD, [rate, rtt_ns, lambda_q16, 0], &NONE);
    assert_eq!(k(GIGABIT, 250_000, LAMBDA_ONE), 31_250);
    assert_eq!(k(10 * GIGABIT, 100_000, LAMBDA_ONE), 125_000);
    assert!(k(10 * GIGABIT, 100_000, (0.17 * 65_536.0_f64).round() as u64).abs_diff(21_250) <= 1);
}

/// K for a queue in a round of `round_ns`.
fn queue(call: Call<'_>, quantum_ns: u64, round_ns: f64) -> f64 {
    call(MARKING_QUEUE_THRESHOLD, [K_PORT, quantum_ns, (round_ns * 256.0) as u64, 0], &NONE) as f64
}

fn shares_of_a_round(call: Call<'_>) {
    for (backlogged, k) in [(1.0, 30_000.0), (2.0, 15_000.0), (8.0, 3_750.0)] {
        let found = queue(call, QUANTUM_NS, backlogged * QUANTUM_NS as f64);
        assert!((found - k).abs() <= 1.0, "{backlogged} queues: {found} instead of {k}");
    }
    let round = 4.0 * QUANTUM_NS as f64;
    for (weight, k) in [(3, 22_500.0), (1, 7_500.0)] {
        let found = queue(call, weight * QUANTUM_NS, round);
        assert!((found - k).abs() <= 1.0, "weight {weight}: {found} instead of {k}");
    }
    assert_eq!(queue(call, QUANTUM_NS, 0.0), 30_000.0, "idle");
}

fn smoothing(call: Call<'_>) {
    let mut round = 0;
    let expected = [(6_152.0, 30_000.0), (10_766.0, 30_000.0), (14_226.5, 25_945.9), (16_821.875, 21_942.9)];
    for (t, k) in expected {
        round = call(MARKING_ROUND_SMOOTH, [round, 24_608, 0, 0], &NONE);
        let found = round as f64 / 256.0;
        assert!((found - t).abs() < 0.01, "{found} instead of {t}");
        let threshold = queue(call, QUANTUM_NS, found);
        assert!((threshold - k).abs() <= 1.0, "{threshold} instead of {k}");
    }
    let slot = 12_000;
    let idle = call(MARKING_ROUND_IDLE, [round, 10 * slot, slot, 0], &NONE) as f64 / 256.0;
    assert!((idle - 947.3).abs() < 0.1, "{idle}");
    assert_eq!(call(MARKING_ROUND_IDLE, [round, 11 * slot, slot, 0], &NONE), 0);
    assert_eq!(call(MARKING_ROUND_IDLE, [round, slot - 1, slot, 0], &NONE), round);
}

fn all_thresholds_together_are_the_ports(call: Call<'_>) {
    let weights = [1, 2, 4, 8, 3, 5, 7, 6];
    let round = weights.iter().sum::<u64>() * QUANTUM_NS;
    let sum: f64 = weights.iter().map(|weight| queue(call, weight * QUANTUM_NS, round as f64)).sum();
    assert!((sum - 30_000.0).abs() <= 8.0, "{sum}");
}

fn virtual_queues(call: Call<'_>) {
    // A third of 1 Gbit/s; all of it alone.
    assert!(call(MARKING_SHARE, [GIGABIT, 1_000, 3_000, 0], &NONE).abs_diff(GIGABIT / 3) <= GIGABIT >> 19);
    assert_eq!(call(MARKING_SHARE, [GIGABIT, 1_000, 1_000, 0], &NONE), GIGABIT);
    assert_eq!(call(MARKING_SHARE, [GIGABIT, 1_000, 0, 0], &NONE), GIGABIT);
    // 10 us at 1 Gbit/s are 1250 bytes, at 0.9 of it 1125.
    assert_eq!(call(MARKING_DRAIN, [30_000 << 8, GIGABIT, 65_536, 10_000], &NONE), 28_750 << 8);
    let left = call(MARKING_DRAIN, [30_000 << 8, GIGABIT, 58_982, 10_000], &NONE);
    assert!(left.abs_diff(28_875 << 8) <= 8, "{left}");
    assert_eq!(call(MARKING_DRAIN, [30_000 << 8, GIGABIT, 65_536, 1_000_000], &NONE), 0);
}

/// Rate of a class of quantum `own` beside `others` at 100 Mbit/s (12.5 MB/s): its share of the round.
fn beside(call: Call<'_>, own: u64, others: &[(u64, u64)]) -> u64 {
    const RATE: u64 = 12_500_000;
    let mut table = NONE;
    let all = others.iter().copied().chain([(own, RATE)]);
    for (slot, (quantum, ceiling)) in table.chunks_mut(2).zip(all) {
        slot.copy_from_slice(&[quantum, ceiling]);
    }
    let round = call(MARKING_ROUND_LEFT, [RATE, 0, 0, 0], &table);
    call(MARKING_SHARE, [RATE, own, round, 0], &NONE)
}

fn rounds_beside_ceilings(call: Call<'_>) {
    let near = |found: u64, mbit: f64| {
        let ideal = mbit * 125_000.0;
        assert!((found as f64 / ideal - 1.0).abs() < 1e-4, "{found} instead of {ideal}");
    };
    let quantum = 121_120;
    let mbit = |rate: u64| rate * 125_000;
    near(beside(call, quantum, &[]), 100.0);
    near(beside(call, quantum, &[(quantum, mbit(100))]), 50.0);
    // At 10 Mbit/s it leaves 90; a ceiling above its share changes nothing.
    near(beside(call, quantum, &[(quantum, mbit(10))]), 90.0);
    near(beside(call, quantum, &[(quantum, mbit(60))]), 50.0);
    // Two at their ceilings and one in turns: (100 - 10 - 30) / 2.
    near(beside(call, quantum, &[(quantum, mbit(10)), (quantum, mbit(28)), (quantum, mbit(100))]), 31.0);
    // One of weight 4 at 10 Mbit/s: 90 for the other.
    near(beside(call, quantum, &[(4 * quantum, mbit(10))]), 90.0);
}

fn virtual_queues_reach_their_threshold(call: Call<'_>) {
    let ten_megabit = GIGABIT / 100;
    // 120 ms at 10 Mbit/s, and a flood: 100 ms beyond the threshold and no more.
    let mut length = 0;
    for _ in 0..1_000 {
        length = call(MARKING_FILL, [length, 1514, ten_megabit, 150_000], &NONE);
    }
    assert_eq!(length, (150_000 + 125_000) << 8);
    assert_eq!(call(MARKING_FILL, [0, 1514, ten_megabit, 150_000], &NONE), 1514 << 8);
    // A threshold that fell takes what is too long with it; a class without one has no more than the 100 ms.
    assert_eq!(call(MARKING_FILL, [length, 1514, ten_megabit, 10_000], &NONE), 135_000 << 8);
    assert_eq!(call(MARKING_FILL, [length, 1514, ten_megabit, u64::MAX], &NONE), 125_000 << 8);
}

fn time_does_not_run_backwards(call: Call<'_>) {
    assert_eq!(call(MARKING_ELAPSED, [7_000, 5_000, 0, 0], &NONE), 2_000);
    assert_eq!(call(MARKING_ELAPSED, [5_000, 5_000, 0, 0], &NONE), 0);
    assert_eq!(
        call(MARKING_ELAPSED, [4_999, 5_000, 0, 0], &NONE),
        0,
        "another CPU was here a nanosecond later"
    );
}

fn what_is_owed_follows_the_rate(call: Call<'_>) {
    // 64 kB at 8 kbit/s, a millisecond per byte, are 64 s; at 100 Mbit/s (80 ns) 5.12 ms.
    let (now, slow, fast) = (1_000_000_000_000, 1_000_000 << 20, 80 << 20);
    let owed = |free_at, from, to| call(MARKING_REPRICED, [free_at, now, from, to], &NONE) - now;
    assert_eq!(owed(now + 64_000_000_000, slow, fast), 5_120_000);
    assert_eq!(owed(now + 5_120_000, fast, slow), 64_000_000_000);
    assert_eq!(owed(now + 5_120_000, fast, fast), 5_120_000);
    // No rate, then one, or the reverse.
    assert_eq!((owed(now + 5_120_000, 0, fast), owed(now + 5_120_000, fast, 0)), (0, 0));
    assert_eq!(
        call(MARKING_REPRICED, [now - 7, now, slow, fast], &NONE),
        now - 7,
        "nothing is owed, a burst is left"
    );
}

/// The percentile of connections of this many bytes at such RTTs (ns).
fn percentile(call: Call<'_>, connections: &[(u64, u64)]) -> f64 {
    let mut table = NONE;
    for (bytes, rtt) in connections {
        table[call(MARKING_RTT_BUCKET, [*rtt, 0, 0, 0], &NONE) as usize] += bytes;
    }
    call(MARKING_RTT_QUANTILE, [0; 4], &table) as f64
}

/// A forger of RTTs needs over a quarter of the bytes to lower the result, and three quarters to raise it.
fn rtts_of_a_minority(call: Call<'_>) {
    let honest = 10e6;
    let near = |found: f64, ideal: f64| (found / ideal - 1.0).abs() < 0.25;
    for share in 0..100 {
        for (forged, lower) in [(1_000, true), (9_000_000_000, false)] {
            let found = percentile(call, &[(100 - share, honest as u64), (share, forged)]);
            let held = if lower { share <= 25 } else { share < 75 };
            assert_eq!(near(found, honest), held, "{share} % at {forged} ns: {found}");
        }
    }
    assert_eq!(percentile(call, &[]), 0.0);
    // Every RTT is found again, a bucket's width apart.
    for rtt in [1_000, 1_024, 3_000, 77_777, 250_000, 10_000_000, 999_999_999, 15_000_000_000] {
        assert!(near(percentile(call, &[(1500, rtt)]), rtt as f64), "{rtt}");
    }
}

/// A window is 2^30 ns.
fn rates_of_flows(call: Call<'_>) {
    const WINDOW: u64 = 1 << 30;
    let recent = |at, before, blocks| call(MARKING_FLOW_RECENT, [7 * WINDOW + at, before, blocks, 0], &NONE);
    assert!(recent(0, 1000, 0).abs_diff(1000) <= 1);
    assert!(recent(WINDOW / 2, 1000, 500).abs_diff(1000) <= 1, "the same rate as before");
    assert_eq!(recent(WINDOW - 1, 1000, 1000), 1000);
    let most = u64::from(u32::MAX);
    assert_eq!(recent(WINDOW - 1, most, most), most);
}

/// From nothing at three quarters to everything at the buffer's end.
fn overload(call: Call<'_>) {
    let drops =
        |length, from, full| call(MARKING_OVERLOAD, [length, from, full, 0], &NONE) as f64 / 2_f64.powi(32);
    for (length, part) in [(0, 0.0), (750, 0.0), (800, 0.2), (1000, 1.0), (u64::MAX, 1.0)] {
        let found = drops(u64::saturating_mul(length, 1000), 750_000, 1_000_000);
        assert!((found - part).abs() < 1e-3, "{length}: {found} instead of {part}");
    }
    assert!((drops(7 << 58, 6 << 58, 8 << 58) - 0.5).abs() < 1e-3, "lengths of any size");
    assert_eq!(drops(u64::MAX, u64::MAX, 0), 0.0, "never");
}

/// A flood keeps its fair share.
fn floods(call: Call<'_>) {
    for (recent, fair, kept) in
        [(0, 0, 0), (100, 100, 100), (400, 100, 100), (1_000_000_000, 1000, 1000), (9, 0, 0)]
    {
        let drops = call(MARKING_FLOOD, [recent, fair, 0, 0], &NONE) as f64 / 2_f64.powi(32);
        let found = recent as f64 * (1.0 - drops);
        assert!((found - kept as f64).abs() <= 3.0, "{recent}: {found} instead of {kept}");
    }
}

fn examples(call: Call<'_>) {
    floods(call);
    rates_of_flows(call);
    overload(call);
    rtts_of_a_minority(call);
    rounds_beside_ceilings(call);
    port_thresholds(call);
    shares_of_a_round(call);
    smoothing(call);
    all_thresholds_together_are_the_ports(call);
    virtual_queues(call);
    virtual_queues_reach_their_threshold(call);
    time_does_not_run_backwards(call);
    what_is_owed_follows_the_rate(call);
}

#[test]
fn worked_examples_hold_in_the_native_build() {
    examples(&native);
}

#[test]
fn root_port_worked_examples_hold_in_the_bpf_build() {
    let bpf = Bpf::load();
    examples(&|function, arguments, table| bpf.call(function, arguments, table));
}

/// Any number, and small ones more often than chance would have it.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64_u32).prop_map(|(bits, shift)| bits >> shift)
}

#[test]
fn root_port_both_builds_agree_on_any_arguments() {
    let bpf = Bpf::load();
    let table = prop::collection::vec(prop_oneof![Just(0), number()], 96);
    let arguments = (0..ALL.len(), [number(), number(), number(), number()], table);
    let config = ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |((function, arguments, table) in arguments)| {
        let function = ALL[function];
        let table: Table = table.try_into().unwrap();
        prop_assert_eq!(native(function, arguments, &table), bpf.call(function, arguments, &table), "{:?}", function);
    });
}

proptest! {
    #[test]
    fn queue_thresholds_shares_and_drains_never_exceed_their_input(arguments in [number(), number(), number(), number()]) {
        prop_assert!(native(MARKING_QUEUE_THRESHOLD, arguments, &NONE) <= arguments[0]);
        prop_assert!(native(MARKING_SHARE, arguments, &NONE) <= arguments[0]);
        prop_assert!(native(MARKING_DRAIN, arguments, &NONE) <= arguments[0]);
    }
}
