//! The body of the fuzz target on seeded traces, so that every test run has a bounded share of it.

use vmcc_cc::trace::{Bytes, Conduct, Seeded, Source, Walk, vary_params};
use vmcc_cc::{Algorithm, MAX_PATHS, Params};

include!("../../../../../fuzz/body.rs");

/// Steps per algorithm, number of paths and conduct; `VMCC_TEST_SCALE` multiplies it.
const STEPS: usize = 12_000;

fn scale() -> usize {
    std::env::var("VMCC_TEST_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

fn walk(algorithm: Algorithm, paths: usize, conduct: Conduct) {
    let seed = paths as u64 ^ (conduct as u64) << 8;
    let mut numbers = Seeded(seed);
    for round in 0..8 * scale() {
        let mut params = Params::defaults(algorithm);
        if round % 2 == 1 {
            vary_params(&mut params, &mut numbers).expect("endless");
        }
        let source = Seeded(numbers.next().expect("endless"));
        let mut walk = Walk::new(algorithm, params, paths, conduct, source).expect("endless");
        for n in 0..STEPS / 8 {
            let step = walk.advance().expect("endless");
            if let Err(e) = step.check() {
                panic!("{algorithm}, {paths} paths, {conduct:?}, round {round}, step {n}: {e}");
            }
        }
    }
}

#[test]
fn valid_traces_keep_the_invariants() {
    for algorithm in Algorithm::all() {
        (1..=MAX_PATHS).for_each(|paths| walk(algorithm, paths, Conduct::Lawful));
    }
}

#[test]
fn arbitrary_traces_keep_the_invariants() {
    for algorithm in Algorithm::all() {
        (1..=MAX_PATHS).for_each(|paths| walk(algorithm, paths, Conduct::Wild));
    }
}

#[test]
fn fuzz_target_accepts_any_bytes() {
    let mut numbers = Seeded(1);
    for length in (0..4000).step_by(37) {
        let data: Vec<u8> = (0..length).map(|_| numbers.next().expect("endless") as u8).collect();
        fuzz_events(&data);
    }
    fuzz_events(&[0; 4096]);
    fuzz_events(&[0xff; 4096]);
}

/// Equal seeds give equal traces, and different ones do not.
#[test]
fn traces_are_reproducible() {
    let lia = Algorithm::by_name("lia").expect("in the registry");
    let trace = |seed| {
        let params = Params::defaults(lia);
        let mut walk = Walk::new(lia, params, 3, Conduct::Lawful, Seeded(seed)).expect("endless");
        (0..100).map(|_| walk.advance().expect("endless")).collect::<Vec<_>>()
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

/// A trace that never grows, cuts or closes would prove nothing.
#[test]
fn traces_grow_reduce_and_close() {
    let vmcc = Algorithm::by_name("vmcc").expect("in the registry");
    let mut seen = vmcc_cc::DecisionFlags::NONE;
    let mut grown = 0;
    // A trace has the five hooks of every algorithm; this detector is in one of them.
    let mut params = Params::defaults(vmcc);
    params.set("detector", "counts").expect("a choice");
    for seed in 0..20 {
        let mut walk = Walk::new(vmcc, params, 4, Conduct::Lawful, Seeded(seed)).expect("endless");
        for _ in 0..2000 {
            let step = walk.advance().expect("endless");
            seen |= step.after.decision.set;
            grown += u32::from(step.after.cwnd_pkt > step.before.cwnd_pkt);
        }
    }
    assert!(grown > 1000, "{grown}");
    let wanted = vmcc_cc::DecisionFlags::SSTHRESH | vmcc_cc::DecisionFlags::CLOSE_PATH;
    assert!(seen.has(wanted), "{seen:?}");
}
