//! Bad input and hosts that cannot: a clear message of the right kind, and nothing left behind.

use crate::common::{alone, namespaces_of, native, run, run_with, two_paths};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use vmcc_lab::{ErrorKind, LabSpec, Machines, Programs};
use vmcc_units::Nanos;

fn named(tag: &str) -> LabSpec {
    let mut spec = two_paths(native("reno"), 2);
    spec.run_id = Some(format!("{tag}-{}", std::process::id()));
    spec
}

fn nothing_left(spec: &LabSpec) {
    assert_eq!(namespaces_of(spec.run_id.as_deref().unwrap()), Vec::<String>::new());
}

/// Runs, and expects an error of this kind that says all of this, and nothing left behind.
fn refused(spec: &LabSpec, programs: Programs, kind: ErrorKind, words: &[&str]) {
    let error = run_with(spec, programs).unwrap_err();
    assert_eq!(error.kind(), kind);
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    nothing_left(spec);
}

fn with_iperf3(path: &Path) -> Programs {
    Programs { iperf3: path.to_str().unwrap().into(), ..Programs::default() }
}

/// As [`refused`], with this script for iperf3.
fn refused_with_script(tag: &str, script: &str, words: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("iperf3");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    refused(&named(tag), with_iperf3(&program), ErrorKind::Failed, words);
}

#[test]
fn root_missing_iperf3_is_a_host_limitation() {
    let _alone = alone();
    let programs = with_iperf3(Path::new("iperf3-that-is-not-there"));
    let words = ["iperf3-that-is-not-there", "apt-get install"];
    refused(&named("noiperf"), programs, ErrorKind::HostCannot, &words);
}

/// The case of a caller that runs the lab without a machine, as the worker in a guest does.
#[test]
fn root_undefined_vm_is_named_by_its_key() {
    let _alone = alone();
    let mut spec = named("nomachine");
    spec.machines = Machines { hosts: [0].into(), key: "host.machines", ..Machines::default() };
    let words = ["host.machines: ", "client would be a virtual machine", "--engine sim"];
    refused(&spec, Programs::default(), ErrorKind::BadInput, &words);
}

#[test]
fn root_iperf3_failure_quotes_its_message() {
    let _alone = alone();
    let script = "#!/bin/sh\necho 'out of order' >&2\nexit 7\n";
    refused_with_script("badiperf", script, &["out of order", "before it listened"]);
}

#[test]
fn root_failing_client_ends_the_run() {
    let _alone = alone();
    // A real server, and a client that fails as iperf3 does: exit code 0, reason in the JSON.
    let script =
        "#!/bin/sh\ncase \" $* \" in *' -s '*) exec iperf3 \"$@\";; esac\necho '{\"error\":\"no luck\"}'\n";
    refused_with_script("badclient", script, &["no luck"]);
}

#[test]
fn root_duplicate_run_id_error_names_its_owner() {
    let _alone = alone();
    let spec = named("taken");
    let run_id = spec.run_id.clone().unwrap();
    let record = format!("/run/vmcc/{run_id}.json");
    // Unreadable, so that cleaning leaves it alone.
    std::fs::create_dir_all("/run/vmcc").unwrap();
    std::fs::write(&record, "").unwrap();
    let error = run(&spec).unwrap_err();
    std::fs::remove_file(&record).unwrap();
    assert_eq!(error.kind(), ErrorKind::BadInput);
    assert!(error.to_string().contains(&run_id), "{error}");
    nothing_left(&spec);
}

#[test]
fn root_missing_algorithm_is_named() {
    let _alone = alone();
    let mut spec = named("nocc");
    spec.flows[0].cc = native("nosuchcc");
    refused(&spec, Programs::default(), ErrorKind::HostCannot, &["nosuchcc"]);
}

#[test]
fn root_delay_is_applied_and_jitter_requires_netem() {
    let _alone = alone();
    let mut spec = named("delay");
    for path in &mut spec.paths {
        (path.out.wire.delay, path.back.wire.delay) = (Nanos::from_millis(10), Nanos::from_millis(10));
    }
    let rtt = run(&spec).unwrap().metrics.rtt_us.unwrap();
    assert!(rtt.min.unwrap() >= 20_000.0, "two directions of 10 ms: {rtt:?}");
    spec.paths[0].out.wire.jitter = Nanos::from_millis(5);
    match run(&spec) {
        Ok(output) => assert!(output.metrics.rtt_us.unwrap().max.unwrap() > rtt.min.unwrap()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::HostCannot);
            assert!(error.to_string().contains("netem"), "{error}");
        }
    }
    nothing_left(&spec);
}

#[test]
fn root_missing_privileges_are_named() {
    let _alone = alone();
    let own = std::env::current_exe().unwrap();
    let example = own.parent().unwrap().parent().unwrap().join("examples/two_paths");
    // The build directory may be closed to others, so the program travels.
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = directory.path().join("two_paths");
    std::fs::copy(example, &program).unwrap();
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let output = Command::new("setpriv").args(nobody).arg(&program).args(["nopriv", "2"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("needs root") && text.contains("sudo"), "{text}");
}
