//! Transfers over shaped paths on this machine's kernel.

mod common;

use common::{alone, native, run, two_paths};

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
