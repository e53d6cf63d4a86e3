//! Ctrl-C keeps finished runs, and the same command resumes them.

use super::algorithm::copy_of_lia;
use crate::common::{self, folder, json, names, output};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const RUNS: &str = "60";
const ARGUMENTS: [&str; 10] =
    ["run", "two.toml", "--engine", "sim", "--runs", RUNS, "--jobs", "1", "--out", "out"];

fn start(dir: &Path) -> Child {
    start_with(dir, &[])
}

fn start_with(dir: &Path, more: &[&str]) -> Child {
    Command::new(assert_cmd::cargo::cargo_bin("vmcc"))
        .args(ARGUMENTS)
        .args(more)
        .current_dir(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finished(dir: &Path) -> usize {
    let Ok(parts) = fs::read_dir(dir.join("out.partial/parts")) else { return 0 };
    parts.filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|x| x == "json")).count()
}

fn wait_for_runs(dir: &Path, at_least: usize) {
    let started = Instant::now();
    while finished(dir) < at_least {
        // At idle priority beside others a run takes any time; only a hang is to be told.
        assert!(started.elapsed() < Duration::from_secs(600), "no run was finished");
        thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Four processes at once, one of them killed: the last command makes what it left.
#[test]
fn shards_and_a_killed_one_give_the_same_results() {
    let dir = folder();
    let shard = |number: usize| start_with(dir.path(), &["--shard", &format!("{number}/4")]);
    let mut killed = shard(4);
    wait_for_runs(dir.path(), 2);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let others = [1, 2, 3].map(shard);
    for other in others {
        let ended = other.wait_with_output().unwrap();
        let text = String::from_utf8(ended.stdout).unwrap();
        assert!(ended.status.success() && text.contains("30 runs of this part"), "{text}");
        assert!(text.contains("--out out --resume"), "{text}");
    }
    let left = 120 - finished(dir.path());
    assert!((1..=28).contains(&left), "{left}");
    let (_, resumed) = json(dir.path(), &[&ARGUMENTS[..], &["--resume"]].concat());
    let (_, whole) =
        json(dir.path(), &["run", "two.toml", "--engine", "sim", "--runs", RUNS, "--out", "whole"]);
    assert_eq!(resumed["cases"], whole["cases"]);
    for file in ["flows.parquet", "series.parquet", "scenario.toml"] {
        let read = |folder: &str| fs::read(dir.path().join(folder).join(file)).unwrap();
        assert!(read("out") == read("whole"), "{file} differs");
    }
}

#[test]
fn interrupted_shard_says_how_to_continue_it() {
    let dir = folder();
    let child = start_with(dir.path(), &["--shard", "2/4"]);
    wait_for_runs(dir.path(), 1);
    signal(&child, "INT");
    let ended = child.wait_with_output().unwrap();
    let message = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{message}");
    assert!(message.trim_end().ends_with("--out out --jobs 1 --shard 2/4"), "{message}");
}

#[test]
fn shards_that_do_not_exist_are_refused() {
    let dir = folder();
    for (shard, message) in [("0/4", "from 1/N to N/N"), ("5/4", "from 1/N to N/N"), ("x", "from 1/N to N/N")]
    {
        let ended = start_with(dir.path(), &["--shard", shard]).wait_with_output().unwrap();
        let text = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.code() == Some(2) && text.contains(message), "{shard}: {text}");
    }
}

#[test]
fn interrupted_run_resumes_to_the_same_results() {
    let dir = folder();
    let child = start_with(dir.path(), &["--threads", "1"]);
    wait_for_runs(dir.path(), 3);
    signal(&child, "INT");
    let ended = child.wait_with_output().unwrap();
    let message = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{message}");
    assert!(message.contains("runs are kept in out.partial") && message.contains("--resume"), "{message}");
    assert!(ended.stdout.is_empty());
    assert_eq!(names(dir.path()), ["out.partial", "two.toml"]);
    let kept = finished(dir.path());
    assert!((3..120).contains(&kept));

    // The hint is a command that works as it is printed, and as fast.
    let hint = message.split("continue with: vmcc ").nth(1).unwrap().trim();
    assert!(hint.ends_with(" --threads 1 --jobs 1 --resume"), "{hint}");
    let arguments: Vec<&str> = hint.split(' ').chain(["--json"]).collect();
    let resumed = output(dir.path(), &arguments);
    let message = String::from_utf8(resumed.stderr).unwrap();
    assert_eq!(resumed.status.code(), Some(0), "{message}");
    assert!(message.contains(&format!("resuming: {kept} of 120 runs")), "{message}");
    let resumed: serde_json::Value = serde_json::from_slice(&resumed.stdout).unwrap();

    let (_, whole) =
        json(dir.path(), &["run", "two.toml", "--engine", "sim", "--runs", RUNS, "--out", "whole"]);
    assert_eq!(resumed["cases"], whole["cases"]);
    for file in ["flows.parquet", "series.parquet"] {
        let read = |out: &str| fs::read(dir.path().join(out).join(file)).unwrap();
        assert!(read("out") == read("whole"), "{file} differs");
    }
    assert_eq!(names(dir.path()), ["out", "two.toml", "whole"]);
}

#[test]
fn simultaneous_signals_count_once() {
    let dir = folder();
    let child = start(dir.path());
    wait_for_runs(dir.path(), 1);
    let id = child.id().to_string();
    // As `timeout` does: the program, and the group that it is in.
    assert!(Command::new("kill").args(["-INT", &id, &id, &id]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let message = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{message}");
    assert!(message.contains("runs are kept in out.partial"), "{message}");
}

#[test]
fn killed_run_is_not_read_as_a_result() {
    let dir = folder();
    let mut child = start(dir.path());
    wait_for_runs(dir.path(), 1);
    signal(&child, "KILL");
    child.wait().unwrap();
    assert_eq!(names(dir.path()), ["out.partial", "two.toml"]);
    let message = common::refused(dir.path(), &ARGUMENTS, 2);
    assert!(message.contains("--resume"), "{message}");
    let other = [&ARGUMENTS[..], &["--resume", "--seed", "99"]].concat();
    let message = common::refused(dir.path(), &other, 2);
    assert!(message.contains("seed or number of runs differs"), "{message}");
}

#[test]
fn folder_of_a_live_run_is_refused() {
    let dir = folder();
    let child = start(dir.path());
    wait_for_runs(dir.path(), 1);
    let message = common::refused(dir.path(), &ARGUMENTS, 2);
    assert!(message.contains("in use by another vmcc") && !message.contains("remove"), "{message}");
    signal(&child, "INT");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
}

#[test]
fn sigterm_interrupts_like_sigint() {
    let dir = folder();
    let child = start(dir.path());
    wait_for_runs(dir.path(), 1);
    signal(&child, "TERM");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
}

/// Starts the check of an algorithm with a compiler that never ends; returns it, and that compiler's number.
#[cfg(target_os = "linux")]
fn start_endless_check(dir: &Path) -> (Child, String) {
    fs::write(dir.join("mylia.c"), copy_of_lia("mylia")).unwrap();
    fs::create_dir(dir.join("tmp")).unwrap();
    let (compiler, started) = (dir.join("cc"), dir.join("started"));
    fs::write(&compiler, "echo $$ >started.part && mv started.part started && exec sleep 1000\n").unwrap();
    let child = Command::new(assert_cmd::cargo::cargo_bin("vmcc"))
        .args(["algorithm", "check", "mylia.c"])
        .current_dir(dir)
        .env("CC", format!("sh {}", compiler.display()))
        .env("TMPDIR", dir.join("tmp"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the compiler's start", || started.exists());
    (child, fs::read_to_string(started).unwrap().trim().to_owned())
}

#[cfg(target_os = "linux")]
fn wait_for(name: &str, mut reached: impl FnMut() -> bool) {
    let began = Instant::now();
    while !reached() {
        assert!(began.elapsed() < Duration::from_secs(300), "{name}: not reached");
        thread::sleep(Duration::from_millis(5));
    }
}

/// True if no process of that number runs: there is none, or it waits to be reaped.
#[cfg(target_os = "linux")]
fn is_gone(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

#[cfg(target_os = "linux")]
#[test]
fn interrupted_check_of_an_algorithm_leaves_nothing() {
    let dir = folder();
    let (child, compiler) = start_endless_check(dir.path());
    signal(&child, "TERM");
    let ended = child.wait_with_output().unwrap();
    let message = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{message}");
    assert!(names(&dir.path().join("tmp")).is_empty(), "{:?}", names(&dir.path().join("tmp")));
    assert!(is_gone(&compiler));
}

#[cfg(target_os = "linux")]
#[test]
fn killed_check_of_an_algorithm_ends_its_compiler() {
    let dir = folder();
    let (mut child, compiler) = start_endless_check(dir.path());
    signal(&child, "KILL");
    child.wait().unwrap();
    wait_for("the compiler's end", || is_gone(&compiler));
}

#[test]
fn resume_with_changed_algorithm_code_is_refused() {
    let dir = folder();
    let file = dir.path().join("mylia.c");
    fs::write(&file, copy_of_lia("mylia")).unwrap();
    let own = ["--algorithm", "mylia.c"];
    let mut child = start_with(dir.path(), &own);
    wait_for_runs(dir.path(), 1);
    signal(&child, "KILL");
    child.wait().unwrap();
    let resume = [&ARGUMENTS[..], &own, &["--resume"]].concat();
    let changed =
        copy_of_lia("mylia").replace("cc_reno_reduce(ev,", "self->pub[0] = 1;\n\tcc_reno_reduce(ev,");
    fs::write(&file, changed).unwrap();
    let message = common::refused(dir.path(), &resume, 2);
    assert!(message.contains("code of the algorithms differs"), "{message}");
    let without = [&ARGUMENTS[..], &["--resume"]].concat();
    assert!(common::refused(dir.path(), &without, 2).contains("code of the algorithms differs"));
    // The compiled code is the same.
    fs::write(&file, copy_of_lia("mylia").replace("coupled = true", "coupled = false")).unwrap();
    assert!(common::refused(dir.path(), &resume, 2).contains("code of the algorithms differs"));
    fs::write(&file, copy_of_lia("mylia")).unwrap();
    assert_eq!(json(dir.path(), &resume).0, 0);
}
