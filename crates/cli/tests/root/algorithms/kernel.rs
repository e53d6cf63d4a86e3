//! The kernel engine and the host commands as root uses them.

use crate::common::{folder, json, names, output, refused, vmcc};
use crate::kept::until;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use vmcc_testkit::control::payload_bps;

/// Rate of each of two paths: far below what a busy machine carries.
const RATE_MBIT: u32 = 20;

/// A scenario short enough for a test, that the kernel engine can express.
const SCENARIO: &str = r#"
title = "Two paths of the kernel"
duration = "3s"
warmup = "1s"
[topology]
kind = "parallel-paths"
paths = 2
rate = "20mbit"
delay = "50us"
buffer = "100kB"
[[traffic]]
kind = "bulk"
[sweep]
cc = ["lia"]
"#;

const NAMED_PATHS: &str = "paths = [{ name = \"a\" }, { name = \"b\" }]";

/// A sender that is off now and then.
const VM: &str = r#"
title = "A VM that is off"
duration = "3s"
[topology]
kind = "parallel-paths"
paths = 2
rate = "20mbit"
delay = "50us"
buffer = "20pkt"
[[traffic]]
kind = "bulk"
[[event]]
kind = "deschedule"
at = "0s"
host = "client"
on = "200ms"
off = "300ms"
"#;

fn kernel_folder() -> tempfile::TempDir {
    let dir = folder();
    fs::write(dir.path().join("kernel.toml"), SCENARIO).unwrap();
    dir
}

fn namespaces_of(pid: u32) -> Vec<String> {
    let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    text.lines()
        .filter(|l| l.starts_with("vmcc-") && l.contains(&pid.to_string()))
        .map(str::to_owned)
        .collect()
}

#[test]
fn root_case_runs_on_the_kernel_engine() {
    let verdict = |metrics: &Value| {
        let in_use = both_paths(metrics);
        println!("{in_use:.3} of both paths");
        assert!((0.85..1.02).contains(&in_use), "{in_use}: {metrics}");
        assert!(metrics["rtt_us"]["p50"].as_f64().unwrap() > 50.0, "{metrics}");
    };
    vmcc_testkit::judge(|| run_of(SCENARIO), verdict, |_| carried_by_tcp());
}

/// Metrics of a scenario's only run on the kernel engine.
fn run_of(scenario: &str) -> Value {
    let dir = folder();
    fs::write(dir.path().join("kernel.toml"), scenario).unwrap();
    let arguments = ["run", "kernel.toml", "--engine", "kernel", "--out", "out"];
    let (code, document) = json(dir.path(), &arguments);
    assert_eq!((code, &document["engine"]), (0, &"kernel".into()), "{document}");
    assert!(dir.path().join("out/report.html").exists());
    document["cases"][0]["runs"][0]["metrics"].clone()
}

/// Share of both paths that a run has used.
fn both_paths(metrics: &Value) -> f64 {
    metrics["goodput_bps"].as_f64().unwrap() / payload_bps(2 * RATE_MBIT)
}

/// Share of both paths that plain TCP under the kernel's Reno fills now, a connection on each.
fn carried_by_tcp() -> f64 {
    let tcp = |path| {
        format!("[[traffic]]\nkind = \"bulk\"\nprotocol = \"tcp\"\ncc = \"reno\"\npath = \"{path}\"\n")
    };
    let both = SCENARIO
        .replace("paths = 2", NAMED_PATHS)
        .replace("[[traffic]]\nkind = \"bulk\"\n", &(tcp("a") + &tcp("b")))
        .replace("[sweep]\ncc = [\"lia\"]\n", "");
    both_paths(&run_of(&both))
}

/// Both ends are programs of ours, and have no rights.
#[test]
fn root_quic_programs_run_without_privileges() {
    let verdict = |metrics: &Value| {
        let figure = |path: &str| {
            let one = metrics["paths"].as_array().unwrap().iter().find(|one| one["path"] == path).unwrap();
            one["goodput_bps"].as_f64().unwrap() / payload_bps(RATE_MBIT)
        };
        // A quarter of the measured time with the path that is cut, all of it with the other.
        let (cut, other) = (figure("a"), figure("b"));
        println!("{cut:.3} of the path that is cut, {other:.3} of the other");
        assert!((0.1..0.3).contains(&cut) && (0.6..1.02).contains(&other), "{cut} {other}: {metrics}");
        assert!(metrics["rtt_us"]["p50"].as_f64().unwrap() > 50.0, "{metrics}");
        assert_eq!(metrics["established"].as_f64(), Some(1.0), "{metrics}");
    };
    vmcc_testkit::judge(run_of_quic, verdict, |_| carried_by_tcp());
}

/// Metrics of a QUIC connection over two paths, one of which is cut; its processes have no rights and leave nothing.
fn run_of_quic() -> Value {
    let dir = folder();
    let quic = SCENARIO
        .replace("kind = \"bulk\"", "kind = \"bulk\"\nprotocol = \"quic\"\nscheduler = \"pipe-cwnd\"")
        .replace("[sweep]", "[[event]]\nat = \"1500ms\"\nkind = \"link-down\"\nlink = \"a\"\n[sweep]")
        .replace("paths = 2", NAMED_PATHS);
    fs::write(dir.path().join("quic.toml"), quic).unwrap();
    let child = Command::new(assert_cmd::cargo::cargo_bin("vmcc"))
        .args(["--json", "run", "quic.toml", "--engine", "kernel", "--out", "out"])
        .current_dir(dir.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ends = BTreeMap::new();
    let run = std::thread::spawn(move || (child.id(), child.wait_with_output().unwrap()));
    while !run.is_finished() {
        ends.extend(ends_of_quic(dir.path()));
        std::thread::sleep(Duration::from_millis(20));
    }
    let (pid, ended) = run.join().unwrap();
    let document: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{document}");
    assert_eq!(ends.len(), 2, "a sender and a receiver");
    assert!(ends.values().all(|user| *user == 65_534), "{ends:?}");
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
    assert_eq!(ends_of_quic(dir.path()), BTreeMap::new());
    document["cases"][0]["runs"][0]["metrics"].clone()
}

/// Processes that carry QUIC below this folder, with their user, once they have given up root's rights.
fn ends_of_quic(folder: &Path) -> BTreeMap<u32, u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let end = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let words = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let here = fs::read_link(entry.path().join("cwd")).ok()? == folder;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let user = users.split_whitespace().next()?.parse().ok()?;
        // It opens sockets after that.
        (here && words.contains("quic-end") && user != 0).then_some((pid, user))
    };
    processes.filter_map(end).collect()
}

#[test]
fn root_ctrl_c_cleans_up_and_exits_130() {
    let dir = kernel_folder();
    let child = Command::new(assert_cmd::cargo::cargo_bin("vmcc"))
        .args(["run", "kernel.toml", "--engine", "kernel", "--out", "out", "--set", "duration=30s"])
        .current_dir(dir.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    until("a namespace of the run", || !namespaces_of(child.id()).is_empty());
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let (pid, asked) = (child.id(), Instant::now());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(asked.elapsed() < Duration::from_secs(20), "cleaning up is quick");
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
    assert_eq!(names(dir.path()), ["kernel.toml", "two.toml"], "no run was finished, so nothing is kept");
}

#[test]
fn root_unsupported_vm_settings_are_refused_by_key() {
    let dir = kernel_folder();
    fs::write(dir.path().join("off.toml"), VM).unwrap();
    let off = "off = \"300ms\"";
    for (instead, key) in [
        ("off = \"300ms\"\nring = \"9pkt\"", "event.ring"),
        ("off = \"300ms\"\nfirst = \"packets\"", "event.first"),
        ("recorded = [[\"1us\", \"9us\"]]", "event.deschedule"),
    ] {
        let text = match instead.starts_with("off") {
            true => VM.replace(off, instead),
            false => VM.replace(&format!("on = \"200ms\"\n{off}"), instead),
        };
        fs::write(dir.path().join("bad.toml"), text).unwrap();
        let message = refused(dir.path(), &["run", "bad.toml", "--engine", "kernel"], 2);
        assert!(message.contains(key) && message.contains("--engine sim"), "{key}: {message}");
    }
    let message = refused(dir.path(), &["run", "off.toml", "--engine", "guest"], 2);
    assert!(message.contains("event.deschedule") && message.contains("--engine kernel"), "{message}");
}

/// Of a host that shall be a virtual machine, and of one that is off, which must be one.
#[test]
fn root_vm_without_a_kernel_is_refused_by_key() {
    let dir = kernel_folder();
    let (off, _) = VM.split_once("[[event]]").unwrap();
    fs::write(dir.path().join("off.toml"), VM).unwrap();
    fs::write(dir.path().join("named.toml"), format!("{off}[host]\nmachines = \"client\"\n")).unwrap();
    for (name, key) in [("off", "event.deschedule"), ("named", "host.machines")] {
        let mut command = vmcc(dir.path());
        command.args(["run", &format!("{name}.toml"), "--engine", "kernel", "--out", "out"]);
        let output = command.env("VMCC_KERNELS", dir.path()).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{message}");
        let whose = format!("{key}: client would be a virtual machine; guests: no kernel for guests in ");
        assert!(message.contains(&whose) && message.contains("make setup-guest"), "{message}");
        assert!(!dir.path().join("out").exists(), "nothing is begun");
    }
}

#[test]
fn root_unsupported_kernel_settings_are_refused_by_key() {
    let dir = kernel_folder();
    let arguments =
        ["run", "kernel.toml", "--engine", "kernel", "--set", "topology.jitter=1ms", "--out", "out"];
    let message = refused(dir.path(), &arguments, 2);
    assert!(message.contains("topology.jitter") && message.contains("--engine sim"), "{message}");
}

#[test]
fn root_kernel_check_prints_a_line_per_algorithm() {
    let done =
        output(Path::new("."), &["internal", "kernel-check", "--algorithm", "reno", "--algorithm", "vmcc"]);
    let text = String::from_utf8(done.stdout).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split('\t').collect()).collect();
    assert_eq!(lines.iter().map(|l| l[0]).collect::<Vec<_>>(), ["reno", "vmcc"], "{text}");
    assert!(lines.iter().all(|l| l[1] == "ok" && l[2].contains("SHA-256 equal")), "{text}");
}

#[test]
fn root_clean_finds_nothing_after_clean_runs() {
    let dir = folder();
    let (code, document) = json(dir.path(), &["clean"]);
    assert_eq!(code, 0);
    assert!(document["lab"]["runs"].is_array(), "{document}");
}
