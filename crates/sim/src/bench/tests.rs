//! Every case builds, does its work and is the same on two threads. Shortened: speed is for `vmcc bench sim`.

use super::*;
use crate::time::Span;

fn short(name: &str, us: u64, threads: u32) -> Measurement {
    let case = Case::by_name(name).unwrap();
    run(&Case { duration: Span::from_us(us), ..case }, threads).unwrap()
}

#[test]
fn bench_cases_complete_their_work() {
    for case in CASES.iter().filter(|c| !c.name.ends_with("k32")) {
        let m = short(case.name, 200, 1);
        assert!(m.totals.packet_hops > 1000, "{}: {:?}", case.name, m.totals);
        assert_eq!(m.totals.sent, m.totals.delivered + m.totals.dropped + m.totals.in_flight);
        assert!(m.cpu_s > 0.0 && m.peak_rss_bytes > 0, "{m:?}");
    }
}

/// Transports included: every counter of the network and every byte delivered.
#[test]
fn two_threads_give_identical_work() {
    for (name, us) in [("dctcp-k8", 1500), ("mptcp-k8", 800), ("dctcp-dumbbell", 3000)] {
        let (one, two) = (short(name, us, 1), short(name, us, 2));
        assert_eq!(one.totals, two.totals, "{name}");
        assert_eq!(one.utilization, two.utilization, "{name}");
    }
}

/// All flows of the dumbbell share one 10 Gbit/s link, so together they fill it: 1/20 each, less headers
/// and slow start.
#[test]
fn dumbbell_is_full() {
    let each = short("dctcp-dumbbell", 20_000, 1).utilization.unwrap();
    assert!((0.9..=1448.0 / 1500.0).contains(&(each * 20.0)), "{each}");
}

#[test]
fn unknown_names_and_thread_counts_are_refused() {
    let error = Case::by_name("dctcp-k9").unwrap_err().to_string();
    assert!(error.contains("dctcp-k9") && error.contains("dctcp-k8"), "{error}");
    assert!(matches!(run(&CASES[0], 0), Err(BenchError::Threads(0))));
}
