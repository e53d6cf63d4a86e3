//! The VM-scheduling paper's theorem 1 and corollary 1, on 10,000 random vectors each: what LIA's code does, and what its
//! equations say.

use proptest::collection::vec;
use proptest::prelude::*;
use vmcc_cc::{Algorithm, Event, EventFlags, Group, Host, Params, Path};

/// Packets per acknowledged packet that path 0 of these grows by, as LIA's code computes it.
fn increase(windows: &[u32], srtt_us: &[u32]) -> f64 {
    let algorithm = Algorithm::by_name("lia").expect("in the registry");
    let srtt_8us: Vec<u32> = srtt_us.iter().map(|us| us * 8).collect();
    let group: Group = windows.iter().zip(&srtt_8us).map(|(w, srtt)| Host::new(*w).slot(*srtt)).collect();
    let event = Event {
        now_us: 1,
        flags: EventFlags::CWND_LIMITED,
        cwnd_pkt: windows[0],
        ssthresh_pkt: windows[0],
        srtt_8us: srtt_8us[0],
        acked_pkt: 1,
        ..Event::default()
    };
    let mut path = Path::default();
    algorithm.on_grow(&event, &mut path, Some(&group), &Params::defaults(algorithm));
    path.credit_q40 as f64 / (1u64 << 40) as f64
}

/// Equation 2 over the sum of windows.
fn alpha_over_total(windows: &[f64], srtt_us: &[f64]) -> f64 {
    let paths = || windows.iter().zip(srtt_us);
    let best = paths().map(|(w, t)| w / (t * t)).fold(0.0, f64::max);
    let sum: f64 = paths().map(|(w, t)| w / t).sum();
    best / (sum * sum)
}

/// The windows at which growth and halving balance, path by path, at these loss probabilities: w = 2 c / p.
fn equilibrium(loss: &[f64], srtt_us: &[f64]) -> Vec<f64> {
    let mut windows: Vec<f64> = loss.iter().map(|p| (2.0 / p).sqrt()).collect();
    for _ in 0..200 {
        let c = alpha_over_total(&windows, srtt_us);
        windows.iter_mut().zip(loss).for_each(|(w, p)| *w = (*w * 2.0 * c / p).sqrt());
    }
    windows
}

fn rate(windows: &[f64], srtt_us: &[f64]) -> f64 {
    windows.iter().zip(srtt_us).map(|(w, t)| w / t).sum()
}

/// The theorem's condition is needed: with unequal windows a sleep may speed growth up.
#[test]
fn descheduling_can_speed_up_growth_of_unequal_windows() {
    let windows = [100, 1];
    assert!(increase(&windows, &[80_000, 40_000]) > 1.05 * increase(&windows, &[50_000, 10_000]));
}

/// Times from 100 us to 100 ms, evenly over the orders of magnitude.
fn delay_us() -> impl Strategy<Value = u32> {
    (2.0..5.0f64).prop_map(|digits| 10f64.powf(digits) as u32)
}

/// Immediate increase of an estimate by a sleep: an eighth of up to 300 ms.
fn inflation_us() -> impl Strategy<Value = u32> {
    (1.0..4.6f64).prop_map(|digits| 10f64.powf(digits) as u32)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Theorem 1. Equal windows, and a sleep that adds as much to each estimate: no path grows faster, and just as fast if all
    /// estimates were equal.
    #[test]
    fn descheduling_slows_growth_of_equal_windows(
        srtt_us in vec(delay_us(), 2..=8),
        w in 2..2_000u32,
        more_us in inflation_us(),
    ) {
        let windows = vec![w; srtt_us.len()];
        let both = |srtt_us: &[u32]| {
            let asleep: Vec<u32> = srtt_us.iter().map(|t| t + more_us).collect();
            (increase(&windows, srtt_us), increase(&windows, &asleep))
        };
        let (without, with) = both(&srtt_us);
        prop_assert!(with <= without * (1.0 + 1e-6), "{} above {}", with, without);
        let (without, with) = both(&vec![srtt_us[0]; srtt_us.len()]);
        prop_assert!((with / without - 1.0).abs() < 1e-6, "{} is not {}", with, without);
    }

    /// Corollary 1. Equal estimates: with sleep all paths together have less than TCP has on the best path without it, which is
    /// what they have without it.
    #[test]
    fn descheduled_total_is_below_tcp_on_the_best_path(
        loss in vec((-5.0..-1.5f64).prop_map(|digits| 10f64.powf(digits)), 2..=8),
        srtt_us in delay_us(),
        more_us in inflation_us(),
    ) {
        let least = loss.iter().copied().fold(f64::MAX, f64::min);
        let tcp = (2.0 / least).sqrt() / f64::from(srtt_us);
        let total = |t: u32| {
            let srtt_us = vec![f64::from(t); loss.len()];
            rate(&equilibrium(&loss, &srtt_us), &srtt_us)
        };
        let (without, with) = (total(srtt_us), total(srtt_us + more_us));
        prop_assert!((without / tcp - 1.0).abs() < 1e-6, "{} is not {}", without, tcp);
        prop_assert!(with < tcp, "{} is not below {}", with, tcp);
    }
}
