//! Transfers over shaped paths on this machine's kernel.

use crate::common::{alone, judged, native, registry, two_paths};
use vmcc_lab::Job;
use vmcc_scenario::model::{Marking, ThresholdRule};

#[test]
fn root_mptcp_fills_both_paths() {
    let _alone = alone();
    judged(&two_paths(native("reno"), 5), |output| {
        let metrics = &output.metrics;
        assert!(metrics.goodput_bps.unwrap() > 150e6, "more than one path can carry: {metrics:?}");
        for path in &metrics.paths {
            let goodput = path.goodput_bps.unwrap();
            assert!((60e6..100e6).contains(&goodput), "{path:?}");
            assert!(path.drops.unwrap() > 0, "reno fills the buffer: {path:?}");
            assert!(path.queue_bytes.unwrap().max.unwrap() <= 150_000.0, "{path:?}");
        }
        assert_eq!(output.flows[0].subflows, 2);
        assert!(output.series.len() > 100);
        let other = |warning: &&String| *warning != vmcc_lab::TOO_BUSY;
        assert_eq!(output.warnings.iter().find(other), None);
    });
}

#[test]
fn root_vmcc_on_marking_ports_keeps_the_queues_short() {
    let _alone = alone();
    let mut spec = two_paths(registry("vmcc"), 5);
    for path in &mut spec.paths {
        let shape = path.out.shape.as_mut().unwrap();
        shape.marking = Marking::Threshold(ThresholdRule { at: "30kB".parse().unwrap() });
    }
    judged(&spec, |output| {
        let metrics = &output.metrics;
        let goodput_bps = metrics.goodput_bps.unwrap();
        println!("{:.1} Mbit/s, {} retransmits", goodput_bps / 1e6, metrics.retransmits.unwrap());
        assert!(goodput_bps > 130e6, "{metrics:?}");
        assert!(metrics.get("paths.a.marked_pkt").unwrap() > 100.0, "{metrics:?}");
        // A full buffer is 12 ms, the marking threshold 2.4 ms.
        assert!(metrics.rtt_us.unwrap().p50 < 4_000.0, "{metrics:?}");
    });
}

/// As iperf3 does, each connection writes at the rate on its own.
#[test]
fn root_programs_write_at_the_configured_rate() {
    let _alone = alone();
    let mut spec = two_paths(native("reno"), 4);
    let flow = &mut spec.flows[0];
    flow.connections = 2;
    let writes_at = Some(("10mbit".parse().unwrap(), "10kB".parse().unwrap()));
    flow.job = Job::Bulk { writes_at };
    judged(&spec, |output| {
        let goodput_bps = output.metrics.goodput_bps.unwrap();
        assert!((18e6..22e6).contains(&goodput_bps), "{goodput_bps}");
    });
}
