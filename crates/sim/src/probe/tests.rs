//! Probes from a scenario to figures.

use crate::run::{Options, run_case};
use vmcc_results::RunOutput;
use vmcc_scenario::{Document, Overrides};

fn run_threads(text: &str, threads: u32) -> RunOutput {
    let plan = Document::parse("t", text).and_then(|d| d.plan(&Overrides::default()));
    let plan = plan.unwrap_or_else(|e| panic!("{e}"));
    run_case(&plan.cases[0], 1, &Options { threads, ..Options::default() }).unwrap_or_else(|e| panic!("{e}"))
}

fn get(output: &RunOutput, name: &str) -> f64 {
    output.metrics.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", output.metrics.figures()))
}

/// Two paths without other traffic; `more` is part of the entry.
fn idle(more: &str) -> String {
    format!(
        "
title = 't'
duration = '2s'
[topology]
kind = 'parallel-paths'
paths = [{{ name = 'a' }}, {{ name = 'b', delay = '20ms', loss = 0.25 }}]
rate = '10mbit'
delay = '5ms'
[[traffic]]
kind = 'probe'
interval = '1ms'
timeout = '100ms'
{more}
"
    )
}

#[test]
fn probes_measure_delay_and_loss_of_an_idle_path() {
    let output = run_threads(&idle(""), 1);
    // There and back 64 bytes at 10 Mbit/s: 51.2 us each, and the propagation delay.
    assert_eq!(get(&output, "paths.a.probe_rtt_us.min"), 10_102.4);
    assert_eq!(get(&output, "paths.a.probe_rtt_us.max"), 10_102.4);
    assert_eq!(get(&output, "paths.a.probe_loss"), 0.0);
    assert_eq!(get(&output, "paths.b.probe_rtt_us.p50"), 40_102.4);
    // The request or its answer is lost: 1 - 0.75^2 of 1900, within four standard deviations.
    let (loss, expected) = (get(&output, "paths.b.probe_loss"), 1.0 - 0.75 * 0.75);
    assert!((loss - expected).abs() < 4.0 * (expected * (1.0 - expected) / 1900.0_f64).sqrt(), "{loss}");
    assert_eq!(get(&output, "goodput_bps"), 0.0);
    assert!(output.series.iter().all(|point| point.metric != "goodput_bps"), "no line of zeros");
    assert!(output.series.len() > 20, "series of both paths");
}

#[test]
fn request_and_reply_sizes_are_independent() {
    let output = run_threads(&idle("packet = '1000B'\nreply = '100B'\npath = 'a'"), 1);
    // 800 us there, 80 us back.
    assert_eq!(get(&output, "probe_rtt_us.mean"), 10_880.0);
}

/// A queue that a bulk connection fills marks the probes that are ECN-capable, and only these.
#[test]
fn only_ecn_capable_probes_see_marks() {
    let text = |ecn| {
        format!(
            "
title = 't'
duration = '2s'
[topology]
kind = 'parallel-paths'
paths = 1
rate = '10mbit'
delay = '2ms'
buffer = '100pkt'
marking = {{ rule = 'threshold', at = '5pkt' }}
[[traffic]]
kind = 'bulk'
cc = 'dctcp'
[[traffic]]
kind = 'probe'
interval = '2ms'
random = true
ecn = {ecn}
"
        )
    };
    let (capable, not) = (run_threads(&text(true), 1), run_threads(&text(false), 1));
    assert!(get(&capable, "probe_marked") > 0.05, "{}", get(&capable, "probe_marked"));
    assert_eq!(get(&not, "probe_marked"), 0.0);
    assert!(get(&not, "probe_rtt_us.p50") > 5_000.0, "behind the queue: {}", get(&not, "probe_rtt_us.p50"));
}

/// The answering host is off half of the time: what arrives meanwhile is answered, late, when it is back.
#[test]
fn descheduled_host_replies_late() {
    let event = "[[event]]\nat = '500ms'\nkind = 'deschedule'\nhost = 'server'\noff = '50ms'\non = '50ms'\n";
    let output = run_threads(&idle(&format!("path = 'a'\n{event}")), 1);
    let (least, most) = (get(&output, "probe_rtt_us.min"), get(&output, "probe_rtt_us.max"));
    assert_eq!((least, get(&output, "probe_loss")), (10_102.4, 0.0));
    assert!((55_000.0..60_200.0).contains(&most), "{most}");
}

/// Requests and answers cross shards with their payloads, whatever their number.
#[test]
fn probe_results_do_not_depend_on_threads() {
    let text = "
title = 't'
duration = '20ms'
[topology]
kind = 'fat-tree'
k = 4
rate = '1gbit'
delay = '1us'
buffer = '20pkt'
[[traffic]]
kind = 'bulk'
pairing = 'permutation'
[[traffic]]
kind = 'probe'
interval = '100us'
timeout = '5ms'
random = true
pairing = 'permutation'
";
    let figures = |threads| run_threads(text, threads).metrics.figures();
    let one = figures(1);
    assert!(one.iter().any(|(name, value)| name == "probe_rtt_us.p99" && *value > 100.0), "{one:?}");
    assert_eq!(figures(3), one);
}

/// A vNIC that moves takes its probes along: from the middle of the run on, all are on the first NIC.
#[test]
fn probes_follow_a_moved_vnic() {
    let text = "
title = 't'
duration = '2s'
[topology]
kind = 'virtual-host'
vms = 1
nics = 2
vm_rate = '40mbit'
path_rate = '100mbit'
path_delay = '500us'
buffer = '50pkt'
[[traffic]]
kind = 'probe'
interval = '1ms'
[[event]]
at = '1s'
kind = 'remap'
vm = 'vm0'
vnic = 1
nic = 0
";
    let output = run_threads(text, 1);
    let sent = |path: &str| get(&output, &format!("paths.{path}.probe_rtt_us.samples"));
    assert!((2_990.0..=3_000.0).contains(&sent("a")), "{}", sent("a"));
    assert!((990.0..=1_001.0).contains(&sent("b")), "{}", sent("b"));
    let moved = output.series.iter().filter(|point| point.metric == "probe_rtt_us" && point.entity == "b");
    assert!(moved.map(|point| point.t_us).max().is_some_and(|last| last <= 1_100_000));
    assert_eq!(get(&output, "paths.b.goodput_bps"), 0.0);
}

#[test]
fn excess_probes_are_refused_with_a_remedy() {
    let text = idle("").replace("'1ms'", "'1us'");
    let plan = Document::parse("t", &text).and_then(|d| d.plan(&Overrides::default())).unwrap();
    let error = run_case(&plan.cases[0], 1, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("lengthen `interval`"), "{error}");
}
