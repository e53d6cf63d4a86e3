//! Cost of the figures of many connections and entries: memory that is asked for grows with the run, not with its square.

use vmcc_metrics::Metrics;
use vmcc_metrics::figures;
use vmcc_metrics::observed::{Connection, Entry, Job, Moment, Observed, Probe, Response, Subflow};
use vmcc_testkit::allocations::{Counting, asked_by};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// This many connections with a request and a probe each, spread over entries.
fn run(connections: usize, entries: usize) -> Observed {
    let end = Moment::from_us(1_000_000);
    let entry = |index: usize| Entry { label: format!("e{index}"), stop: end, ..Entry::default() };
    let connection = |index: usize| Connection {
        entry: index % entries,
        job: Job::Transfer(10_000),
        received: Some(Moment::from_us(500)),
        subflows: vec![Subflow { established: true, ..Subflow::default() }],
        ..Connection::default()
    };
    let response = |connection| Response { connection, asked: Moment(1), answered: Some(end), bytes: 1 };
    let probe = |index: usize| Probe {
        entry: index % entries,
        path: None,
        sent: Moment(1),
        answered: Some(end),
        marked: None,
        due: true,
    };
    Observed {
        window: (Moment::default(), end),
        interval_ps: end.0,
        entries: (0..entries).map(entry).collect(),
        connections: (0..connections).map(connection).collect(),
        responses: (0..connections).map(response).collect(),
        probes: (0..connections).map(probe).collect(),
        ..Observed::default()
    }
}

/// Bytes that the figures of a run ask for.
fn asked(connections: usize, entries: usize) -> f64 {
    let seen = run(connections, entries);
    let (made, asked) = asked_by(|| figures(&seen));
    assert_eq!(made.metrics.get("completed"), Some(2.0 * connections as f64));
    assert_eq!(made.metrics.get("traffic.e0.completed"), Some(2.0 * (connections / entries) as f64));
    asked as f64
}

#[test]
fn figures_of_connections_and_entries_cost_linear_memory() {
    let per_flow = asked(8_000, 1) / asked(1_000, 1);
    assert!(per_flow < 10.0, "eight times the connections ask for {per_flow} times the memory");
    let per_entry = asked(8_000, 4_000) / asked(1_000, 500);
    assert!(per_entry < 10.0, "eight times the entries ask for {per_entry} times the memory");
}

/// Bytes that a look-up asks for beside the figures of this many entries.
fn asked_by_get(entries: usize) -> u64 {
    let extra = |entry: usize| (format!("traffic.e{entry}.goodput_bps"), vmcc_metrics::Extra::Number(1.0));
    let metrics =
        Metrics { goodput_bps: Some(3.0), extra: (0..entries).map(extra).collect(), ..Metrics::default() };
    let (found, asked) = asked_by(|| (metrics.get("goodput_bps"), metrics.get("traffic.e7.goodput_bps")));
    assert_eq!(found, (Some(3.0), Some(1.0)));
    asked
}

#[test]
fn lookup_allocates_independently_of_entry_count() {
    assert_eq!(asked_by_get(100), asked_by_get(800));
}
