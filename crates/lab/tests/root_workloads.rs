//! What programs other than bulk iperf3 do on this machine's kernel: files of a size, bursts of datagrams.

mod common;

use common::{alone, flow, native, registry, run_with, two_paths};
use std::path::Path;
use vmcc_lab::{Cc, Error, Flow, Job, LabSpec, Programs, Role, Transport};
use vmcc_results::RunOutput;
use vmcc_units::Nanos;

/// Set-up unpacks it beside the build, so that no service of it is started.
fn programs() -> Programs {
    let unpacked = |folder: &str, name: &str| {
        let place =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/usr").join(folder).join(name);
        if place.exists() { place.to_string_lossy().into_owned() } else { name.to_owned() }
    };
    Programs {
        nginx: unpacked("sbin", "nginx"),
        memcached: unpacked("bin", "memcached"),
        ..Programs::default()
    }
}

fn files(cc: Cc, connections: u32, size: &str) -> LabSpec {
    let mut spec = two_paths(cc, 5);
    spec.warmup = Nanos::ZERO;
    let files = &mut spec.flows[0];
    (files.connections, files.job) = (connections, Job::Sized { size: size.parse().unwrap(), rate: None });
    spec
}

fn of(output: &RunOutput, name: &str) -> f64 {
    output.metrics.get(name).unwrap_or_else(|| panic!("{name}: {:?}", output.metrics))
}

/// 20 MB through two paths of 100 Mbit/s.
#[test]
fn root_files_arrive_whole_over_both_paths() {
    let _alone = alone();
    let output = run_with(&files(registry("vmcc"), 10, "2MB"), programs()).unwrap();
    assert_eq!((of(&output, "completed"), of(&output, "unfinished")), (10.0, 0.0));
    let last_s = of(&output, "fct_us.max") / 1e6;
    // One path alone takes 1.68 s, both, with their headers, at least 0.83 s.
    assert!((0.8..1.6).contains(&last_s), "{last_s}");
    assert_eq!(output.flows.len(), 10);
    assert!(output.flows.iter().all(|flow| flow.subflows == 2), "{:?}", output.flows);
}

/// An unchanged memcached holds the objects; whatever arrives is compared with what it was given.
#[test]
fn root_objects_are_fetched_over_both_paths() {
    let _alone = alone();
    let mut spec = two_paths(registry("vmcc"), 4);
    spec.warmup = Nanos::ZERO;
    let sizes = ["1kB", "20kB", "600kB"].map(|size| size.parse().unwrap()).to_vec();
    spec.flows[0].job = Job::Objects { sizes, per_second: 10.0, seed: 1 };
    let output = run_with(&spec, programs()).unwrap();
    let (completed, unfinished) = (of(&output, "completed"), of(&output, "unfinished"));
    // 40 on average, with a deviation of 6; a busy machine answers the last ones too late.
    assert!(
        (15.0..70.0).contains(&(completed + unfinished)) && completed >= 10.0,
        "{completed} {unfinished}"
    );
    let least_us = |size: u64| {
        let took =
            output.flows.iter().filter(|flow| flow.size_bytes == Some(size)).filter_map(|flow| flow.fct_us);
        took.fold(f64::INFINITY, f64::min)
    };
    assert!(least_us(1_000) < least_us(600_000), "{} {}", least_us(1_000), least_us(600_000));
    // Both paths need at least so much; what else the machine does only adds.
    assert!((24e3..f64::INFINITY).contains(&least_us(600_000)), "{}", least_us(600_000));
    let carried: Vec<_> = output.metrics.paths.iter().filter_map(|path| path.goodput_bps).collect();
    assert!(carried.iter().all(|path| *path > 0.2 * carried.iter().sum::<f64>()), "{carried:?}");
    let both = |size: u64| {
        output.flows.iter().filter(|flow| flow.size_bytes == Some(size)).all(|flow| flow.subflows == 2)
    };
    assert!(both(600_000) && output.metrics.rtt_us.is_some(), "{:?}", output.metrics);
}

/// Ten files that begin at once fill a queue of 20 packets at once: somebody waits for a timeout.
#[test]
fn root_the_shortest_timeout_is_the_scenarios() {
    let _alone = alone();
    let last_us = |min_rto: Option<Nanos>| {
        let mut spec = files(registry("reno"), 20, "20kB");
        spec.min_rto = min_rto;
        for path in &mut spec.paths {
            path.out.shape.as_mut().unwrap().buffer = "20pkt".parse().unwrap();
        }
        let output = run_with(&spec, programs()).unwrap();
        (of(&output, "fct_us.max"), of(&output, "timeouts"))
    };
    let (long, short) = (last_us(None), last_us(Some(Nanos::from_millis(20))));
    assert!(long.0 > 200e3 && short.0 < 0.8 * long.0, "{long:?} {short:?}");
}

/// Many second subflows lose their first SYN to the data of the first ones. It is repeated as it was: a run in which one of
/// them were left to Reno is refused.
#[test]
fn root_lost_handshakes_ask_for_ecn_again() {
    let _alone = alone();
    let mut spec = files(registry("xmp"), 60, "1MB");
    for path in &mut spec.paths {
        path.out.shape.as_mut().unwrap().buffer = "8pkt".parse().unwrap();
    }
    let output = run_with(&spec, programs()).unwrap();
    assert!(of(&output, "subflows_opened") > 100.0, "{:?}", output.metrics);
}

#[test]
fn root_a_file_that_the_run_is_too_short_for_is_unfinished() {
    let _alone = alone();
    let output = run_with(&files(registry("vmcc"), 2, "200MB"), programs()).unwrap();
    assert_eq!((of(&output, "completed"), of(&output, "unfinished")), (0.0, 2.0));
}

#[test]
fn root_a_program_that_is_not_there_is_named() {
    let _alone = alone();
    let none = Programs { nginx: "no-such-nginx".to_owned(), ..programs() };
    let error = run_with(&files(registry("vmcc"), 1, "1kB"), none).unwrap_err();
    assert!(
        matches!(error, Error::ProgramMissing { .. }) && error.to_string().contains("no-such-nginx"),
        "{error}"
    );
}

/// Beside a connection of both paths, one second of datagrams on the first.
#[test]
fn root_datagrams_come_in_bursts() {
    let _alone = alone();
    let mut spec = two_paths(registry("vmcc"), 4);
    spec.warmup = Nanos::ZERO;
    let burst = Flow {
        role: Role::Competing,
        transport: Transport::Tcp { lane: 0 },
        job: Job::Datagrams { rate: "40mbit".parse().unwrap(), packet: "1500B".parse().unwrap() },
        start: Nanos::from_secs(1),
        ..flow("burst", native("reno"), 2)
    };
    spec.flows.push(burst);
    let output = run_with(&spec, programs()).unwrap();
    let burst_bps = of(&output, "traffic.burst.goodput_bps");
    // 40 Mbit/s of IP packets are 39.3 of payload.
    assert!((30e6..42e6).contains(&burst_bps), "{burst_bps}");
    assert_eq!(output.flows.iter().filter(|flow| flow.subflows == 2).count(), 1);
}
