//! Scenarios in which a host is a virtual machine, some of them off now and then.
#![cfg(feature = "root-tests")]

mod common;

use common::{folder, json, vmcc};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SCENARIO: &str = r#"
title = "A VM that is off"
duration = "6s"
warmup = "5s"
[host]
cc = "awake"
[topology]
kind = "parallel-paths"
paths = [{ name = "a" }, { name = "b" }]
rate = "20mbit"
delay = "5ms"
buffer = "20pkt"
[[traffic]]
kind = "bulk"
[[sweep.vm]]
name = "never"
[[sweep.vm]]
name = "often"
event = [{ kind = "deschedule", at = "0s", host = "client", on = "200ms", off = "300ms" }]
"#;

fn scenario() -> tempfile::TempDir {
    let dir = folder();
    fs::write(dir.path().join("off.toml"), SCENARIO).unwrap();
    dir
}

#[test]
#[ignore = "boots a VM, a minute"]
fn on_linux_a_vm_sends_is_off_and_notices() {
    let dir = scenario();
    let (code, document) = json(dir.path(), &["run", "off.toml", "--engine", "kernel", "--out", "out"]);
    assert_eq!((code, &document["engine"]), (0, &"kernel".into()), "{document}");
    let metrics = |case: usize| document["cases"][case]["runs"][0]["metrics"].clone();
    let (never, often) = (metrics(0), metrics(1));
    let goodput = |metrics: &serde_json::Value| metrics["goodput_bps"].as_f64().unwrap();
    // A program that is slow to start, in the machine's first run above all, sends until the end: its last second is all that counts.
    assert!(goodput(&never) > 2e6 && goodput(&often) > 1e6, "{document}");
    assert_eq!(never["vm_stopped_us"], serde_json::Value::Null, "nobody stopped it: {never}");
    let stopped = &often["vm_stopped_us"];
    assert!(stopped["samples"].as_u64() >= Some(8) && stopped["p50"].as_f64() >= Some(297e3), "{often}");
    assert!(often["vm_off_us"]["max"].as_f64() >= Some(280e3), "it notices by its own clock: {often}");
    assert!(often["window_pkt"]["mean"].as_f64() >= Some(1.0), "its sockets are sampled inside: {often}");
    let report = fs::read_to_string(dir.path().join("out/report.html")).unwrap();
    assert!(report.contains("VM off time"), "the histogram is in the report");
}

/// A cache in a VM, which is off now and then; a client outside fetches, and compares every byte.
const FETCHED: &str = r#"
title = "A VM that is asked"
duration = "8s"
warmup = "1s"
[host]
cc = "vmcc"
params.vmcc.trigger = 0
machines = "client"
[topology]
kind = "parallel-paths"
paths = [{ name = "a" }, { name = "b" }]
rate = "20mbit"
delay = "5ms"
buffer = "40pkt"
marking = { rule = "threshold", at = "10pkt" }
[[traffic]]
kind = "poisson"
per_second = 6.0
sizes = "150kB"
[[event]]
kind = "deschedule"
at = "4s"
host = "client"
on = "300ms"
off = "200ms"
"#;

#[test]
#[ignore = "boots a VM, half a minute"]
fn on_linux_objects_are_fetched_from_a_vm_while_it_runs_and_while_it_is_off() {
    let dir = folder();
    fs::write(dir.path().join("asked.toml"), FETCHED).unwrap();
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/usr/bin");
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let arguments = ["run", "asked.toml", "--engine", "kernel", "--out", "out", "--json"];
    let output = vmcc(dir.path()).env("PATH", path).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let metrics = &document["cases"][0]["runs"][0]["metrics"];
    let number = |pointer: &str| metrics.pointer(pointer).and_then(serde_json::Value::as_f64);
    // 48 on average, with a deviation of 7.
    let completed = number("/completed").unwrap();
    assert!((20.0..80.0).contains(&completed), "{document}");
    assert!(number("/unfinished") < Some(0.3 * completed), "{document}");
    assert!(number("/window_pkt/samples") >= Some(completed), "its sockets are sampled inside: {metrics}");
    let paths: Vec<f64> = (0..2).filter_map(|path| number(&format!("/paths/{path}/goodput_bps"))).collect();
    let all: f64 = paths.iter().sum();
    assert!(paths.len() == 2 && paths.iter().all(|path| *path > 0.05 * all), "both paths carry: {metrics}");
    assert!(number("/vm_stopped_us/samples") >= Some(6.0), "{metrics}");
    // Who asks while it is off waits for it.
    assert!(number("/fct_us/max") > Some(200e3), "{metrics}");
}

fn processes(of: &str) -> String {
    let listed = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    text.lines().filter(|line| line.contains(of) && line.contains("qemu")).collect()
}

#[test]
#[ignore = "boots a VM, half a minute"]
fn on_linux_nothing_is_left_of_a_vm_after_ctrl_c_and_after_kill() {
    for signal in ["-INT", "-KILL"] {
        let dir = scenario();
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("vmcc"))
            .args(["run", "off.toml", "--engine", "kernel", "--out", "out", "--quiet"])
            .current_dir(dir.path())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let folder = format!("vmcc-guest-{}-", child.id());
        while processes(&folder).is_empty() {
            assert_eq!(child.try_wait().unwrap(), None, "it boots a VM");
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::sleep(Duration::from_secs(5));
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        child.wait().unwrap();
        while !processes(&folder).is_empty() {
            std::thread::sleep(Duration::from_millis(100));
        }
        if signal == "-KILL" {
            vmcc(dir.path()).arg("clean").assert().success();
        }
        let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
        let left = String::from_utf8(listed.stdout).unwrap();
        assert!(!left.contains(&format!("vmcc-{}-", child.id())), "{signal}: {left}");
        let folders = fs::read_dir(std::env::temp_dir()).unwrap().flatten();
        let left: Vec<_> = folders.filter(|e| e.file_name().to_string_lossy().starts_with(&folder)).collect();
        assert!(left.is_empty(), "{signal}: {left:?}");
    }
}
