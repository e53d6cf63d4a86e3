//! One scenario on this machine's kernel and on the simulator: a figure means the same on both, by what it counts.
//!
//! Background traffic is planted that is marked, dropped and sent again, and must not be counted.

use super::workloads::judged;
use crate::common::alone;
use vmcc_lab::LabSpec;
use vmcc_results::{FlowRecord, RunOutput};
use vmcc_scenario::{Document, Overrides};

const SCENARIO: &str = "
title = 'Marks and losses of two, of which one is measured'
duration = '5s'
warmup = '1s'
[topology]
kind = 'parallel-paths'
paths = [{ name = 'a' }, { name = 'b' }]
rate = '50mbit'
delay = '50us'
buffer = '60kB'
[[traffic]]
name = 'ours'
kind = 'bulk'
[[traffic]]
name = 'theirs'
kind = 'bulk'
protocol = 'tcp'
path = 'b'
competing = true
";
/// A port's marks are counted when they are made, a receiver's when it is asked for the last time before its socket closes,
/// a quarter of a second of the six where the machine is busy. Who counted something else would be off by half.
const UNSEEN_MARKS: f64 = 0.1;

/// A figure that the run has.
fn figure(engine: &str, output: &RunOutput, name: &str) -> f64 {
    output.metrics.get(name).unwrap_or_else(|| panic!("{engine}: no {name}"))
}

fn on_both_engines(settings: &[&str], check: impl Fn(&str, &RunOutput)) {
    on_both_engines_of(SCENARIO, settings, check);
}

fn on_both_engines_of(scenario: &str, settings: &[&str], check: impl Fn(&str, &RunOutput)) {
    let _alone = alone();
    let set = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let overrides = Overrides { set, ..Overrides::default() };
    let plan = Document::parse("both", scenario).unwrap().plan(&overrides).unwrap();
    let simulated = vmcc_sim::run_case(&plan.cases[0], 1, &vmcc_sim::Options::default()).unwrap();
    check("simulator", &simulated);
    judged(&LabSpec::try_from(&plan.cases[0]).unwrap(), |output| check("kernel", output));
}

fn flow<'a>(output: &'a RunOutput, traffic: &str) -> &'a FlowRecord {
    let mut all = output.flows.iter().filter(|flow| &*flow.traffic == traffic);
    let only = all.next().unwrap();
    assert!(all.next().is_none(), "{traffic} is one connection");
    only
}

/// `part` of `whole`, give or take `by` of it.
fn nearly(part: f64, whole: f64, by: f64) -> bool {
    (part - whole).abs() <= by * whole.abs()
}

#[test]
fn root_marks_count_measured_traffic_only() {
    let marking = ["cc=dctcp", "marking={ rule = 'threshold', at = '15kB' }"];
    on_both_engines(&marking, |engine, output| {
        let m = &output.metrics;
        let (ours, theirs) = (flow(output, "ours").ce_marks, flow(output, "theirs").ce_marks);
        let (Some(ours), Some(theirs)) = (ours, theirs) else {
            // Before Linux 6.18 a socket does not say what arrived marked: then nobody guesses.
            assert_eq!((engine, ours, theirs, m.ce_marks), ("kernel", None, None, None));
            return;
        };
        assert!(theirs > 100 && ours > 100, "{engine}: nothing to tell apart: {ours}, {theirs}");
        assert_eq!(m.ce_marks, Some(ours), "{engine}: of the measured traffic alone");
        let paths: Vec<u64> = m.paths.iter().map(|path| path.ce_marks.unwrap()).collect();
        assert_eq!(paths.iter().sum::<u64>(), ours, "{engine}: {paths:?}");
        let marked = |path: &str| m.get(&format!("paths.{path}.marked_pkt")).unwrap();
        for (path, arrived) in [("a", paths[0]), ("b", paths[1] + theirs)] {
            let (arrived, marked) = (arrived as f64, marked(path));
            let seen = (1.0 - UNSEEN_MARKS) * marked..=marked;
            assert!(seen.contains(&arrived), "{engine}: {arrived} arrived of {marked} on path {path}");
        }
        // Of each mark an echo, where the receiver echoes as DCTCP asks for.
        let echoed = m.get("echoed_ce_pkt").unwrap_or(ours as f64);
        assert!(nearly(echoed, ours as f64, 0.2), "{engine}: {echoed} echoes of {ours}");
    });
}

#[test]
fn root_bytes_and_losses_count_measured_traffic_only() {
    on_both_engines(&["cc=reno"], |engine, output| {
        let m = &output.metrics;
        let (ours, theirs) = (flow(output, "ours"), flow(output, "theirs"));
        assert_eq!((ours.measured, theirs.measured, m.established), (true, false, Some(1)), "{engine}");
        assert_eq!((ours.subflows, theirs.subflows), (2, 1), "{engine}");
        assert!(theirs.retransmits > Some(20), "{engine}: nothing planted: {:?}", theirs.retransmits);
        assert_eq!(m.retransmits, ours.retransmits, "{engine}");
        let paths: u64 = m.paths.iter().map(|path| path.retransmits.unwrap()).sum();
        assert_eq!(Some(paths), m.retransmits, "{engine}");
        assert_eq!(m.timeouts, ours.timeouts, "{engine}");
        let goodput = m.goodput_bps.unwrap();
        assert_eq!(ours.goodput_bps, m.goodput_bps, "{engine}: endless, over the window");
        let carried: f64 = m.paths.iter().map(|path| path.goodput_bps.unwrap()).sum();
        assert!(nearly(carried, goodput, 0.05), "{engine}: {carried} on paths, {goodput} in order");
        let delivered = ours.delivered_bytes as f64 * 8.0 / 5.0;
        assert!(nearly(delivered, goodput, 0.25), "{engine}: {delivered} in all, {goodput} in the window");
        let both = goodput + m.competing_goodput_bps.unwrap();
        assert!((85e6..100e6).contains(&both) && goodput < 0.9 * both, "{engine}: {goodput} of {both}");
        assert!(m.drops >= m.retransmits.map(|n| n / 2), "{engine}: of all traffic: {:?}", m.drops);
    });
}

const PROBED: &str = "
title = 'Probes of an empty path and of one with a queue'
duration = '3s'
warmup = '1s'
[topology]
kind = 'parallel-paths'
paths = [{ name = 'empty' }, { name = 'full' }]
rate = '50mbit'
delay = '50us'
buffer = '60kB'
[[traffic]]
name = 'transfer'
kind = 'bulk'
protocol = 'tcp'
path = 'full'
cc = 'reno'
competing = true
[[traffic]]
name = 'ping'
kind = 'probe'
interval = '5ms'
timeout = '500ms'
";

#[test]
fn root_probes_see_the_queue_of_their_path() {
    on_both_engines_of(PROBED, &[], |engine, output| {
        assert_eq!(figure(engine, output, "paths.empty.probe_loss"), 0.0, "{engine}");
        let (empty, full) = (
            figure(engine, output, "paths.empty.probe_rtt_us.p50"),
            figure(engine, output, "paths.full.probe_rtt_us.p50"),
        );
        // Reno keeps a third of 60 kB at least in the queue, which takes 3 ms.
        assert!(full > 2_500.0 && full > 2.0 * empty, "{engine}: {empty} and {full} us");
        assert!(
            figure(engine, output, "probe_rtt_us.max") >= full
                && output.metrics.get("goodput_bps").is_none_or(|bps| bps == 0.0)
        );
        assert!(output.series.iter().any(|point| point.metric == "probe_rtt_us"), "{engine}: over time");
    });
}

const LIMITED: &str = "
title = 'A transfer that something limits'
duration = '4s'
warmup = '1s'
[host]
cc = 'reno'
protocol = 'tcp'
[topology]
kind = 'parallel-paths'
paths = 1
rate = '50mbit'
delay = '10ms'
buffer = '60kB'
[[traffic]]
kind = 'bulk'
";

/// `TCP_INFO` and samples account for a socket as the simulator does for its connections.
#[test]
fn root_limits_match_the_settings() {
    let limits = ["cwnd_limited", "rwnd_limited", "sndbuf_limited", "app_limited"];
    let cases: [(usize, &[&str]); 4] = [
        (0, &[]),
        (1, &["host.receive_buffer=64kB"]),
        (2, &["host.send_buffer=32kB"]),
        (3, &["write_rate=20mbit"]),
    ];
    for (which, settings) in cases {
        on_both_engines_of(LIMITED, settings, |engine, output| {
            let shares = limits.map(|limit| output.metrics.get(limit).expect("a share"));
            println!("{engine} {settings:?}: {shares:.3?}");
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{engine}: {shares:?}");
            // The kernel's path loses packets that the simulator's does not, and a reduced window limits as well.
            let least = if engine == "kernel" { 0.25 } else { 0.6 };
            assert!(shares[which] > least, "{engine} {settings:?}: {} of {shares:?}", limits[which]);
        });
    }
}

/// Answers of 1 MB at saturation, and a slow transfer the other way, so that each host sends and receives.
const ASKED: &str = "
title = 'Requests that saturate a path, and a transfer the other way'
duration = '4s'
warmup = '1s'
[host]
cc = 'reno'
protocol = 'tcp'
[topology]
kind = 'parallel-paths'
paths = 1
rate = '50mbit'
delay = '2ms'
buffer = '60kB'
[[traffic]]
name = 'asks'
kind = 'request-response'
program = 'nginx'
request = '100B'
response = '1MB'
connections = 4
[[traffic]]
name = 'slow'
kind = 'bulk'
write_rate = '1mbit'
";

/// Only the end that sends the payload is sampled: of answers, the server's.
#[test]
fn root_limits_of_requests_are_those_of_their_answers() {
    on_both_engines_of(ASKED, &[], |engine, output| {
        // wrk names no ports: the sampler may miss one of them, and counts none twice.
        let opened = figure(engine, output, "traffic.asks.subflows_opened");
        assert!((2.0..=4.0).contains(&opened), "{engine}: {opened} of 4 connections");
        assert_eq!(figure(engine, output, "traffic.slow.subflows_opened"), 1.0, "{engine}");
        let app_limited = figure(engine, output, "traffic.asks.app_limited");
        assert!(app_limited < 0.35, "{engine}: {app_limited} at saturation");
        assert!(figure(engine, output, "traffic.slow.app_limited") > 0.6, "{engine}");
    });
}
