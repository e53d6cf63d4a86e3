//! Transfers over shaped paths on this machine's kernel.

mod common;

use common::{alone, native, registry, run, two_paths};

#[test]
fn root_mptcp_fills_both_paths() {
    let _alone = alone();
    let output = run(&two_paths(native("reno"), 5)).unwrap();
    let metrics = &output.metrics;
    println!("{}", serde_json::to_string_pretty(metrics).unwrap());
    println!("{:?} {:?}", output.flows, output.warnings);
    assert!(metrics.goodput_bps.unwrap() > 150e6);
    for path in &metrics.paths {
        let goodput = path.goodput_bps.unwrap();
        assert!((75e6..100e6).contains(&goodput), "{path:?}");
        assert!(path.drops.unwrap() > 0, "reno fills the buffer: {path:?}");
    }
    assert!(output.series.len() > 100);
}

#[test]
fn root_vmcc_on_marking_ports_keeps_the_queues_short() {
    let _alone = alone();
    let mut spec = two_paths(registry("vmcc"), 5);
    for path in &mut spec.paths {
        path.marking = Some("30kB".parse().unwrap());
    }
    let out = run(&spec).unwrap();
    for p in out.series.iter() {
        println!("S {} {} {} {:.0}", p.t_us, p.entity, p.metric, p.value);
    }
    let metrics = out.metrics;
    assert!(metrics.goodput_bps.unwrap() > 150e6);
    assert!(metrics.ce_marks.unwrap() > 100);
}
