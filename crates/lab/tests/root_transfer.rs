//! Transfers over shaped paths on this machine's kernel.

mod common;

use common::{alone, native, registry, run_until, two_paths};
use vmcc_lab::Job;
use vmcc_results::Metrics;
use vmcc_scenario::model::{Marking, ThresholdRule};

/// More than one path can carry.
fn uses_both(metrics: &Metrics) -> bool {
    metrics.goodput_bps.unwrap() > 150e6
}

#[test]
fn root_mptcp_fills_both_paths() {
    let _alone = alone();
    let output = run_until(&two_paths(native("reno"), 5), uses_both);
    let metrics = &output.metrics;
    assert!(uses_both(metrics), "{metrics:?}");
    for path in &metrics.paths {
        let goodput = path.goodput_bps.unwrap();
        assert!((60e6..100e6).contains(&goodput), "{path:?}");
        assert!(path.drops.unwrap() > 0, "reno fills the buffer: {path:?}");
        assert!(path.queue_bytes.unwrap().max.unwrap() <= 150_000.0, "{path:?}");
    }
    assert_eq!(output.flows[0].subflows, 2);
    assert!(output.series.len() > 100);
    assert!(output.warnings.iter().all(|warning| warning == vmcc_lab::TOO_BUSY), "{:?}", output.warnings);
}

#[test]
fn root_vmcc_on_marking_ports_keeps_the_queues_short() {
    let _alone = alone();
    let mut spec = two_paths(registry("vmcc"), 5);
    for path in &mut spec.paths {
        let shape = path.out.shape.as_mut().unwrap();
        shape.marking = Marking::Threshold(ThresholdRule { at: "30kB".parse().unwrap() });
    }
    let metrics = run_until(&spec, |m| m.goodput_bps.unwrap() > 130e6).metrics;
    println!(
        "{:.1} Mbit/s, {} retransmits",
        metrics.goodput_bps.unwrap() / 1e6,
        metrics.retransmits.unwrap()
    );
    assert!(metrics.goodput_bps.unwrap() > 130e6, "{metrics:?}");
    assert!(metrics.get("paths.a.marked_pkt").unwrap() > 100.0, "{metrics:?}");
    // A full buffer is 12 ms, the marking threshold 2.4 ms.
    assert!(metrics.rtt_us.unwrap().p50 < 4_000.0, "{metrics:?}");
}

/// As iperf3 does, each connection writes at the rate on its own.
#[test]
fn root_programs_write_at_their_rate() {
    let _alone = alone();
    let mut spec = two_paths(native("reno"), 4);
    let flow = &mut spec.flows[0];
    flow.connections = 2;
    let writes_at = Some(("10mbit".parse().unwrap(), "10kB".parse().unwrap()));
    flow.job = Job::Bulk { writes_at };
    let near = |goodput_bps: f64| (18e6..22e6).contains(&goodput_bps);
    let metrics = run_until(&spec, |m| near(m.goodput_bps.unwrap())).metrics;
    assert!(near(metrics.goodput_bps.unwrap()), "{metrics:?}");
}
