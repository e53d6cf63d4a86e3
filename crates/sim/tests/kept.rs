//! Objects on connections that stay open.
#![allow(missing_docs, unreachable_pub, dead_code)]

mod common;

use common::{figures, plan, run, run_threads};
use std::collections::BTreeMap;
use vmcc_results::{FlowRecord, RunOutput};
use vmcc_sim::{Options, run_case};

const CACHE: &str = "
title = 't'
duration = '4s'
warmup = '1s'
[host]
cc = 'lia'
[topology]
kind = 'parallel-paths'
paths = 2
rate = '10mbit'
delay = '2ms'
buffer = '50pkt'
[[traffic]]
kind = 'poisson'
sizes = [{ size = '1kB', cdf = 0.0 }, { size = '60kB', cdf = 1.0 }]
load = 0.6
";
const KEPT: &str = "kept_connections=3";

/// Objects, by when they were wanted.
fn objects(output: &RunOutput) -> Vec<&FlowRecord> {
    let mut objects: Vec<&FlowRecord> =
        output.flows.iter().filter(|flow| flow.size_bytes.is_some()).collect();
    objects.sort_by_key(|object| object.start_us);
    objects
}

#[test]
fn every_object_is_counted_and_connections_take_turns() {
    let output = run(CACHE, &[KEPT]);
    let connections: Vec<&FlowRecord> =
        output.flows.iter().filter(|flow| flow.size_bytes.is_none()).collect();
    assert_eq!((connections.len(), output.metrics.established), (3, Some(3)));
    // Opened within a round trip, not when something arrives.
    assert!(connections.iter().all(|connection| connection.start_us < 5_000 && connection.subflows == 2));
    let objects = objects(&output);
    assert!(objects.len() > 150, "{}", objects.len());
    let turns = objects.iter().enumerate().all(|(number, object)| object.flow == number as u64 % 3);
    assert!(turns, "{:?}", objects.iter().map(|object| object.flow).take(9).collect::<Vec<_>>());
    let done = objects.iter().filter(|object| object.completed).count() as u64;
    assert_eq!(output.metrics.completed, Some(done));
    let late = objects.iter().filter(|object| object.measured && !object.completed).count() as u64;
    assert_eq!(output.metrics.unfinished, Some(late));
    // What was delivered is objects, and no requests.
    for connection in connections {
        let own = objects.iter().filter(|object| object.flow == connection.flow && object.completed);
        let bytes: u64 = own.map(|object| object.delivered_bytes).sum();
        let rest = connection.delivered_bytes - bytes;
        assert!(rest < 60_000, "a part of one object more: {rest}");
    }
}

/// The `connection`'s objects in the order in which they were wanted, by when they came.
#[test]
fn a_connection_has_one_object_at_a_time_in_the_order_of_arrival() {
    // Loss makes some slow.
    let output = run(CACHE, &[KEPT, "loss=0.02", "load=0.8"]);
    let mut ends: BTreeMap<u64, Vec<Option<u64>>> = BTreeMap::new();
    for object in objects(&output) {
        ends.entry(object.flow).or_default().push(object.end_us);
    }
    let mut waited = 0;
    for ends in ends.values() {
        let done = ends.iter().take_while(|end| end.is_some()).count();
        assert!(ends[done..].iter().all(Option::is_none), "nobody is served before who waits: {ends:?}");
        // A request, and an answer, each cross 2 ms.
        assert!(ends[..done].windows(2).all(|pair| pair[1] >= pair[0].map(|end| end + 4_000)), "{ends:?}");
        waited += ends.len() - done;
    }
    let slowest = output.metrics.fct_us.unwrap().max.unwrap();
    assert!(slowest > 100e3, "some wait for others: {slowest} us, {waited} to the end");
}

/// So that the two ways can be compared.
#[test]
fn the_same_objects_arrive_as_on_connections_of_their_own() {
    let (kept, own) = (run(CACHE, &[KEPT]), run(CACHE, &[]));
    let arrived = |output: &RunOutput| -> Vec<(u64, Option<u64>)> {
        objects(output).iter().map(|object| (object.start_us, object.size_bytes)).collect()
    };
    assert_eq!(arrived(&kept), arrived(&own));
    assert!(own.metrics.established > Some(200) && kept.metrics.established == Some(3));
    let limited = run(CACHE, &[KEPT, "limit=7"]);
    assert_eq!(arrived(&limited), arrived(&own)[..7]);
}

#[test]
fn what_is_wanted_before_a_stop_is_fetched() {
    let output = run(CACHE, &[KEPT, "stop=2s", "load=0.9"]);
    let objects = objects(&output);
    assert!(objects.iter().all(|object| object.start_us < 2_000_000 && object.completed), "{objects:?}");
    assert_eq!(figures(&output)["unfinished"], 0.0);
}

/// Every host of a tree asks every other: what a run gives does not depend on threads.
#[test]
fn threads_change_nothing() {
    let text = "
title = 't'
duration = '20ms'
topology = { kind = 'fat-tree', k = 4, rate = '1gbit', delay = '5us', buffer = '100pkt' }
[host]
subflows = 2
[[traffic]]
kind = 'poisson'
sizes = '20kB'
load = 0.3
from = 'h*'
to = 'h*'
pairing = 'random'
kept_connections = 2
";
    let tree = plan(text, &[]);
    let bytes = |threads| serde_json::to_string(&run_threads(&tree, 0, 1, threads)).unwrap();
    assert_eq!(bytes(1), bytes(4));
    let output = run(text, &[]);
    // Two to each of 15 others.
    assert_eq!(output.metrics.established, Some(16 * 15 * 2));
    let used: std::collections::BTreeSet<u64> = objects(&output).iter().map(|object| object.flow).collect();
    assert!(used.len() > 200, "{}", used.len());
}

#[test]
fn quic_keeps_none() {
    let plan = plan(CACHE, &[KEPT, "protocol=quic"]);
    let error = run_case(&plan.cases[0], 1, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("`poisson`") && error.contains("kept_connections"), "{error}");
}
