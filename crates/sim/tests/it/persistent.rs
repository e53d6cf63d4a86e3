//! Objects on connections that stay open.

use crate::common::{figures, near, plan, run, run_threads, two_paths};
use std::collections::BTreeMap;
use vmcc_results::{FlowRecord, RunOutput};
use vmcc_scenario::{Document, Overrides};
use vmcc_sim::{Options, run_case};

const KEPT: &str = "kept_connections=3";

/// Objects of 30.5 kB on average, at 0.6 of what both paths carry.
fn cache() -> String {
    let objects = "[[traffic]]\nkind = 'poisson'\nload = 0.6\n\
                   sizes = [{ size = '1kB', cdf = 0.0 }, { size = '60kB', cdf = 1.0 }]\n";
    two_paths("4s", "10mbit", "2ms") + objects
}

/// Objects, by when they were wanted.
fn objects(output: &RunOutput) -> Vec<&FlowRecord> {
    let mut objects: Vec<&FlowRecord> =
        output.flows.iter().filter(|flow| flow.size_bytes.is_some()).collect();
    objects.sort_by_key(|object| object.start_us);
    objects
}

#[test]
fn every_object_is_counted_and_connections_alternate() {
    let output = run(&cache(), &[KEPT]);
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
fn connection_serves_one_object_at_a_time_in_arrival_order() {
    // Loss makes some slow.
    let output = run(&cache(), &[KEPT, "loss=0.02", "load=0.8"]);
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
fn objects_equal_those_on_separate_connections() {
    let (kept, own) = (run(&cache(), &[KEPT]), run(&cache(), &[]));
    let arrived = |output: &RunOutput| -> Vec<(u64, Option<u64>)> {
        objects(output).iter().map(|object| (object.start_us, object.size_bytes)).collect()
    };
    assert_eq!(arrived(&kept), arrived(&own));
    assert!(own.metrics.established > Some(200) && kept.metrics.established == Some(3));
    let limited = run(&cache(), &[KEPT, "limit=7"]);
    assert_eq!(arrived(&limited), arrived(&own)[..7]);
}

#[test]
fn objects_requested_before_the_stop_are_fetched() {
    let output = run(&cache(), &[KEPT, "stop=2s", "load=0.9"]);
    let objects = objects(&output);
    assert!(objects.iter().all(|object| object.start_us < 2_000_000 && object.completed), "{objects:?}");
    assert_eq!(figures(&output)["unfinished"], 0.0);
}

/// Every host of a tree asks every other: what a run gives does not depend on threads.
#[test]
fn persistent_results_do_not_depend_on_threads() {
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
fn persistent_connections_are_refused_over_quic() {
    let plan = plan(&cache(), &[KEPT, "protocol=quic"]);
    let error = run_case(&plan.cases[0], 1, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("`poisson`") && error.contains("kept_connections"), "{error}");
}

/// One connection that takes turns with nobody, on a link that nobody shares: a queue with one server. Objects fit into the first
/// window, so that a fetch takes two crossings, a request of 15 bytes and the object, each with its headers of 52.
const RATE_BPS: f64 = 100e6;
const CROSSING_US: f64 = 1000.0;
const PER_SECOND: f64 = 200.0;
const SIZES_BYTES: (f64, f64) = (1e3, 7e3);

fn service_us(bytes: f64) -> f64 {
    let wire_bytes = (15.0 + 52.0) + bytes + 52.0 * (bytes / 1448.0).ceil();
    2.0 * CROSSING_US + wire_bytes * 8.0 / RATE_BPS * 1e6
}

fn one_server() -> RunOutput {
    let objects = format!(
        "[[traffic]]\nkind = 'poisson'\nprotocol = 'tcp'\npath = 'a'\nkept_connections = 1\nper_second = {PER_SECOND}\n\
         sizes = [{{ size = '1kB', cdf = 0.0 }}, {{ size = '7kB', cdf = 1.0 }}]\n"
    );
    run(&(two_paths("90s", "100mbit", "1ms") + &objects), &[])
}

/// Kolmogorov and Smirnov: how far what was seen is from a distribution, over what one draw in a hundred exceeds.
fn distance(mut seen: Vec<f64>, cdf: impl Fn(f64) -> f64) -> f64 {
    seen.sort_by(f64::total_cmp);
    let count = seen.len() as f64;
    let off = |(rank, value): (usize, &f64)| {
        let expected = cdf(*value);
        (expected - rank as f64 / count).abs().max((expected - (rank + 1) as f64 / count).abs())
    };
    seen.iter().enumerate().map(off).fold(0.0, f64::max) * count.sqrt() / 1.63
}

#[test]
fn arrivals_are_poisson_and_waiting_matches_one_server() {
    let output = one_server();
    let objects = objects(&output);
    let starts: Vec<f64> = objects.iter().map(|object| object.start_us as f64).collect();
    let bytes: Vec<f64> = objects.iter().map(|object| object.size_bytes.unwrap() as f64).collect();
    let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let count = objects.len() as f64;
    // A Poisson count deviates by its root.
    assert!((count - 90.0 * PER_SECOND).abs() < 3.0 * (90.0 * PER_SECOND).sqrt(), "{count}");
    let off = distance(gaps.clone(), |gap_us| 1.0 - (-gap_us * PER_SECOND / 1e6).exp());
    assert!(off < 1.0, "gaps: {off}");
    let (least, most) = SIZES_BYTES;
    let off = distance(bytes.clone(), |size| ((size - least) / (most - least)).clamp(0.0, 1.0));
    assert!(off < 1.0, "sizes: {off}");

    // Lindley's recursion, object by object.
    let took: Vec<f64> = objects.iter().map_while(|object| object.fct_us).collect();
    assert!(took.len() + 5 > objects.len(), "all but the last ones are there: {}", took.len());
    // The first waits for the connection.
    let mut free = starts[0] + took[0];
    for (number, took) in took.iter().enumerate().skip(1) {
        let end = free.max(starts[number]) + service_us(bytes[number]);
        let seen = starts[number] + took;
        // Starts are whole microseconds, and before a request acknowledgments of what came last may leave: 5 us each.
        assert!((-2.0..13.0).contains(&(seen - end)), "object {number}: {seen} us, expected {end}");
        free = seen;
    }

    // Pollaczek and Khinchine: the mean wait of a Poisson stream before one server.
    let service: Vec<f64> = bytes.iter().map(|size| service_us(*size) / 1e6).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (first, second) = (mean(&service), mean(&service.iter().map(|s| s * s).collect::<Vec<_>>()));
    let expected_us = PER_SECOND * second / (2.0 * (1.0 - PER_SECOND * first)) * 1e6;
    let waits: Vec<f64> = took.iter().zip(&bytes).map(|(took, size)| took - service_us(*size)).collect();
    near("mean wait", mean(&waits), expected_us, 0.08);
}

#[test]
fn excess_connections_stay_idle_and_zero_is_refused() {
    let output = run(&cache(), &["kept_connections=40", "limit=2"]);
    assert_eq!((output.metrics.established, output.metrics.completed), (Some(40), Some(2)));
    assert_eq!(output.metrics.unfinished, Some(0));
    for (set, cause) in [("kept_connections=0", "at least one connection"), ("load=0", "above 0")] {
        let overrides = Overrides { set: vec![set.to_owned()], ..Overrides::default() };
        let refused = Document::parse("test", &cache()).and_then(|document| document.plan(&overrides));
        let error = refused.expect_err(set).to_string();
        assert!(error.contains(cause), "{set}: {error}");
    }
}

/// Above capacity, waiting times grow without bound and objects are reported as unfinished; goodput is the paths' capacity.
#[test]
fn objects_queue_above_the_path_capacity() {
    let output = run(&cache(), &[KEPT, "load=1.5"]);
    let (done, late) = (output.metrics.completed.unwrap(), output.metrics.unfinished.unwrap());
    assert!(late > done / 5, "{late} of {done}");
    // But for a round trip after each, in which the next one is asked for.
    near("goodput", output.metrics.goodput_bps.unwrap(), 20e6 * 1428.0 / 1500.0, 0.2);
    for connection in 0..3 {
        let waits = objects(&output).into_iter().filter(|object| object.flow == connection);
        let ends: Vec<Option<u64>> = waits.map(|object| object.end_us).collect();
        let done = ends.iter().take_while(|end| end.is_some()).count();
        assert!(done > 0 && ends[done..].iter().all(Option::is_none), "{connection}: in order");
    }
}
