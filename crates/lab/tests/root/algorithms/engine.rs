//! The lab as an engine beside the simulator: one loop runs a case on either.
use std::sync::atomic::{AtomicBool, Ordering};
use vmcc_engine::{Engine, ErrorKind};
use vmcc_lab::Error;
use vmcc_lab::engine::Kernel;
use vmcc_scenario::{Document, Overrides, Plan};
use vmcc_sim::Simulator;

const SCENARIO: &str = r#"
title = "One connection over two paths"
duration = "2s"
warmup = "1s"
[topology]
kind = "parallel-paths"
paths = 2
rate = "20mbit"
delay = "50us"
buffer = "100kB"
[[traffic]]
kind = "bulk"
[host]
cc = "lia"
"#;

fn plan(set: &[&str]) -> Plan {
    let overrides = Overrides { set: set.iter().map(|&s| s.to_owned()).collect(), ..Overrides::default() };
    Document::parse("two", SCENARIO).unwrap().plan(&overrides).unwrap()
}

#[test]
fn root_one_case_runs_on_every_engine_through_the_trait() {
    let plan = plan(&[]);
    let engines: [Box<dyn Engine>; 2] =
        [Box::new(Simulator::default()), Box::new(Kernel::for_plan(&plan, None).unwrap())];
    for engine in engines {
        let name = engine.name();
        let output = engine.run(&plan.cases[0], 1, &AtomicBool::new(false), &|_| {}).unwrap();
        let flow = &output.flows[0];
        assert_eq!((output.flows.len(), &*flow.cc, flow.subflows), (1, "lia", 2), "{name}");
        assert!(flow.delivered_bytes > 100_000, "{name}: {flow:?}");

        let error = engine.run(&plan.cases[0], 1, &AtomicBool::new(true), &|_| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{name}: {error}");
    }
}

#[test]
fn root_stopped_run_leaves_no_namespace() {
    let plan = plan(&["duration=30s"]);
    let engine = Kernel::for_plan(&plan, None).unwrap();
    let stop = AtomicBool::new(false);
    // As soon as anything was carried.
    let report = |fraction: f64| stop.store(fraction > 0.0, Ordering::SeqCst);
    let error = engine.run(&plan.cases[0], 1, &stop, &report).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    let own = format!("vmcc-{}", std::process::id());
    let left = std::fs::read_dir("/run/netns").unwrap().map(|e| e.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with(&own)));
}

#[test]
fn root_unsupported_case_is_a_typed_error() {
    let Err(error) = Kernel::for_plan(&plan(&["topology.jitter=1ms"]), None) else {
        panic!("it has no jitter")
    };
    assert_eq!(error.kind(), ErrorKind::BadInput);
    let Some(Error::NotExpressible { key, .. }) = error.cause().downcast_ref() else { panic!("{error:?}") };
    assert_eq!(key, "topology.jitter");
}
