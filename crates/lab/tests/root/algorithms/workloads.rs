//! Programs other than bulk iperf3 on this machine's kernel: files of a size, bursts of datagrams.

use crate::common::{self, alone, control, flow, native, registry, run_with, two_paths};
use std::path::Path;
use vmcc_lab::{Cc, Error, Flow, Job, LabSpec, Programs, Role, Transport};
use vmcc_results::RunOutput;
use vmcc_scenario::model::ObjectProgram;
use vmcc_units::Nanos;

/// Set-up unpacks it beside the build, so that no service of it is started.
pub(super) fn programs() -> Programs {
    let unpacked = |folder: &str, name: &str| {
        let place =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/usr").join(folder).join(name);
        if place.exists() { place.to_string_lossy().into_owned() } else { name.to_owned() }
    };
    Programs {
        nginx: unpacked("sbin", "nginx"),
        memcached: unpacked("bin", "memcached"),
        ganesha: unpacked("bin", "ganesha.nfsd"),
        pure_ftpd: unpacked("sbin", "pure-ftpd"),
        redis_server: unpacked("bin", "redis-server"),
        redis_benchmark: unpacked("bin", "redis-benchmark"),
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

pub(super) fn of(output: &RunOutput, name: &str) -> f64 {
    output.metrics.get(name).unwrap_or_else(|| panic!("{name}: {:?}", output.metrics))
}

/// Runs `spec` with these programs until the verdict holds, or has failed while the machine carries what it carries when idle.
pub(super) fn judged(spec: &LabSpec, verdict: impl Fn(&RunOutput)) {
    vmcc_testkit::judge(|| run_with(spec, programs()).unwrap(), verdict, |_| control());
}

/// 20 MB through two paths of 100 Mbit/s.
#[test]
fn root_files_arrive_intact_over_both_paths() {
    let _alone = alone();
    judged(&files(registry("vmcc"), 10, "2MB"), |output| {
        assert_eq!((of(output, "completed"), of(output, "unfinished")), (10.0, 0.0));
        let last_s = of(output, "fct_us.max") / 1e6;
        // One path alone takes 1.68 s, both, with their headers, at least 0.83 s.
        assert!((0.8..1.6).contains(&last_s), "{last_s}");
        assert_eq!(output.flows.len(), 10);
        assert!(output.flows.iter().all(|flow| flow.subflows == 2), "{:?}", output.flows);
    });
}

/// An unchanged memcached holds the objects; whatever arrives is compared with what it was given.
#[test]
fn root_objects_are_fetched_over_both_paths() {
    objects_are_fetched(ObjectProgram::Memcached);
}

/// The same from an unchanged Apache, whose own set-up on the host is not read.
#[test]
fn root_objects_are_fetched_from_a_web_server() {
    objects_are_fetched(ObjectProgram::Apache);
}

fn objects_are_fetched(holder: ObjectProgram) {
    let _alone = alone();
    let mut spec = two_paths(registry("vmcc"), 3);
    spec.warmup = Nanos::ZERO;
    let sizes = ["1kB", "20kB", "600kB"].map(|size| size.parse().unwrap()).to_vec();
    let linger = Nanos::from_millis(50);
    spec.flows[0].job = Job::Objects { holder, kept: false, sizes, per_second: 13.0, seed: 1, linger };
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

/// Clients of caches keep their connections: objects come on three of them in turn, one at a time on each, over both paths.
#[test]
fn root_objects_are_fetched_on_persistent_connections() {
    objects_are_fetched_on_kept_connections(ObjectProgram::Memcached);
}

/// The same from a web server, for more requests on each connection than it answers if it is not told to.
#[test]
fn root_objects_of_a_web_server_use_persistent_connections() {
    objects_are_fetched_on_kept_connections(ObjectProgram::Apache);
}

fn objects_are_fetched_on_kept_connections(holder: ObjectProgram) {
    let _alone = alone();
    let mut spec = two_paths(registry("vmcc"), 3);
    spec.warmup = Nanos::ZERO;
    // Linux gives a subflow up to 64 KiB at a time: the second carries parts of what is larger.
    let sizes = ["1kB", "2kB", "200kB"].map(|size| size.parse().unwrap()).to_vec();
    spec.flows[0].connections = 3;
    spec.flows[0].job = Job::Objects {
        holder,
        kept: true,
        sizes,
        per_second: 150.0,
        seed: 1,
        linger: Nanos::from_millis(50),
    };
    let output = run_with(&spec, programs()).unwrap();
    assert_eq!(of(&output, "established"), 3.0);
    let (completed, unfinished) = (of(&output, "completed"), of(&output, "unfinished"));
    // 450 on average, with a deviation of 21; a busy machine answers the last ones too late.
    assert!((350.0..550.0).contains(&(completed + unfinished)), "{completed} {unfinished}");
    assert!(completed > 330.0, "{completed} {unfinished}");
    let connections: Vec<_> = output.flows.iter().filter(|flow| flow.size_bytes.is_none()).collect();
    assert_eq!(connections.len(), 3);
    // The second subflow is there when an object is asked for.
    assert!(connections.iter().all(|flow| flow.subflows == 2), "{connections:?}");
    let carried: Vec<_> = output.metrics.paths.iter().filter_map(|path| path.goodput_bps).collect();
    assert!(carried.iter().all(|path| *path > 0.2 * carried.iter().sum::<f64>()), "{carried:?}");
    let mut objects: Vec<_> = output.flows.iter().filter(|flow| flow.size_bytes.is_some()).collect();
    objects.sort_by_key(|flow| flow.start_us);
    for connection in &connections {
        let own: Vec<_> = objects.iter().filter(|object| object.flow == connection.flow).collect();
        assert!(own.len() > 100, "more than a web server answers by default: {}", own.len());
        let ends: Vec<u64> = own.iter().filter_map(|object| object.end_us).collect();
        assert!(ends.windows(2).all(|pair| pair[0] <= pair[1]), "one after the other: {ends:?}");
        let bytes: u64 = own.iter().map(|object| object.delivered_bytes).sum();
        // Intervals have fractions of bytes.
        assert!(bytes.abs_diff(connection.delivered_bytes) <= own.len() as u64, "{bytes} {connection:?}");
    }
    let lacks = |warning: &String| warning.contains("of 2 paths") || warning.contains("plain TCP");
    assert!(output.metrics.rtt_us.is_some() && !output.warnings.iter().any(lacks), "{:?}", output.warnings);
}

/// A cache that has not what was put there fails the run.
#[test]
fn root_wrong_bytes_on_a_persistent_connection_fail_the_run() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    // What is stored is overwritten when some of it has been fetched.
    let liar = folder.path().join("memcached");
    let script = "#!/bin/bash\n\
                  (sleep 1; exec 3<>/dev/tcp/127.0.0.1/5201; printf 'set object0 0 0 1000\\r\\n%01000d\\r\\n' 0 >&3; read <&3) \
                  >/dev/null 2>&1 &\nexec REAL \"$@\"\n";
    let real = programs().memcached;
    std::fs::write(&liar, script.replace("REAL", &real)).unwrap();
    std::fs::set_permissions(&liar, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut spec = two_paths(registry("vmcc"), 3);
    spec.flows[0].connections = 2;
    let sizes = vec!["1kB".parse().unwrap()];
    let holder = ObjectProgram::Memcached;
    spec.flows[0].job =
        Job::Objects { holder, kept: true, sizes, per_second: 50.0, seed: 1, linger: Nanos::from_millis(50) };
    let liars = Programs { memcached: liar.to_string_lossy().into_owned(), ..programs() };
    let error = run_with(&spec, liars).unwrap_err().to_string();
    assert!(error.contains("a fetch of object0") && error.contains("not what was put there"), "{error}");
}

/// Four readers of one file on a network file system, 16 MB through two paths of 100 Mbit/s: server and readers are unchanged programs.
#[test]
fn root_nfs_chunks_are_read_over_both_paths() {
    let _alone = alone();
    let mut spec = files(registry("vmcc"), 4, "4MB");
    (spec.duration, spec.flows[0].stop) = (Nanos::from_secs(3), Nanos::from_secs(3));
    spec.flows[0].job = Job::Chunks { size: "4MB".parse().unwrap() };
    let output = run_with(&spec, programs()).unwrap();
    assert_eq!((of(&output, "completed"), of(&output, "unfinished")), (4.0, 0.0));
    assert_eq!(output.flows.len(), 4);
    // On a busy machine sockets may come and go between two looks.
    let both = output.flows.iter().filter(|flow| flow.subflows == 2).count();
    assert!(both >= 2, "{:?}", output.flows);
    let carried: Vec<_> = output.metrics.paths.iter().filter_map(|path| path.goodput_bps).collect();
    assert!(carried.iter().all(|path| *path > 0.2 * carried.iter().sum::<f64>()), "{carried:?}");
    // The files' bytes at the full rate of both take 0.64 s.
    assert!(output.flows.iter().filter_map(|flow| flow.end_us).max() > Some(640_000), "{:?}", output.flows);
}

/// A reader that gets bytes wrong is found out, and no figures are made of it.
#[test]
fn root_wrong_bytes_over_nfs_fail_the_run() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let liar = folder.path().join("nfs-cat");
    // The next byte for each.
    std::fs::write(&liar, "#!/bin/sh\nnfs-cat \"$1\" | tr '\\000-\\377' '\\001-\\377\\000'\n").unwrap();
    std::fs::set_permissions(&liar, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut spec = files(registry("vmcc"), 1, "1kB");
    (spec.flows[0].job, spec.flows[0].connections) = (Job::Chunks { size: "100kB".parse().unwrap() }, 1);
    let liars = Programs { nfs_cat: liar.to_string_lossy().into_owned(), ..programs() };
    let error = run_with(&spec, liars).unwrap_err().to_string();
    assert!(error.contains("not the file's 100000 from byte 0 on"), "{error}");
}

/// Every worker sends a partition to every other, twice; nothing of the second round leaves before all of the first has arrived.
#[test]
fn root_shuffle_has_a_barrier() {
    let _alone = alone();
    let text = "[host]\ncc='lia'\n[topology]\nkind='leaf-spine'\nleaves=3\nspines=2\nhosts_per_leaf=1\nrate='40mbit'\ndelay='20us'\n\
                [[traffic]]\nname='shuffle'\nkind='sized'\nfrom='*'\nto='*'\npairing='all'\nsubflows=2\nsize='500kB'\nrounds=2\n";
    let spec = LabSpec::try_from(&common::case(text)).unwrap();
    let output = run_with(&spec, programs()).unwrap();
    assert_eq!((of(&output, "completed"), of(&output, "unfinished")), (12.0, 0.0));
    let mut all: Vec<(f64, f64)> =
        output.flows.iter().map(|flow| (flow.start_us as f64, flow.fct_us.unwrap())).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ends = all[..6].iter().map(|(start, took)| start + took).fold(0.0, f64::max);
    let begins = all[6].0;
    assert!(begins >= ends, "the first round ended at {ends} us, the second began at {begins}");
}

/// Twenty files that begin at nearly the same time fill a queue of five packets: somebody waits for a timeout, also if a busy machine begins them
/// one after the other.
#[test]
fn root_min_rto_is_set_by_the_scenario() {
    let _alone = alone();
    let last_us = |min_rto: Option<Nanos>| {
        let mut spec = files(registry("reno"), 20, "20kB");
        spec.min_rto = min_rto;
        for path in &mut spec.paths {
            path.out.shape.as_mut().unwrap().buffer = "5pkt".parse().unwrap();
        }
        let output = run_with(&spec, programs()).unwrap();
        (of(&output, "fct_us.max"), of(&output, "timeouts"))
    };
    vmcc_testkit::judge(
        || (last_us(None), last_us(Some(Nanos::from_millis(20)))),
        |(long, short)| assert!(long.0 > 200e3 && short.0 < 0.8 * long.0, "{long:?} {short:?}"),
        |_| control(),
    );
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
    // Number of the 60 second ones that come in time: 37 on a busy machine. Many are needed, so that some lose their first SYN.
    vmcc_testkit::judge(
        || run_with(&spec, programs()).unwrap(),
        |output| assert!(of(output, "subflows_opened") >= 60.0 + 20.0, "{:?}", output.metrics),
        |_| control(),
    );
}

#[test]
fn root_file_too_large_for_the_run_is_unfinished() {
    let _alone = alone();
    let output = run_with(&files(registry("vmcc"), 2, "200MB"), programs()).unwrap();
    assert_eq!((of(&output, "completed"), of(&output, "unfinished")), (0.0, 2.0));
}

#[test]
fn root_missing_program_is_named() {
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
        transport: Transport::Tcp { subnet: 0 },
        job: Job::Datagrams { rate: "40mbit".parse().unwrap(), packet: "1500B".parse().unwrap() },
        start: Nanos::from_secs(1),
        ..flow("burst", native("reno"), 2)
    };
    spec.flows.push(burst);
    judged(&spec, |output| {
        let burst_bps = of(output, "traffic.burst.goodput_bps");
        // 40 Mbit/s of IP packets are 39.3 of payload.
        assert!((30e6..42e6).contains(&burst_bps), "{burst_bps}");
        assert_eq!(output.flows.iter().filter(|flow| flow.subflows == 2).count(), 1);
    });
}
