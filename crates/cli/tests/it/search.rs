//! `vmcc search` as a user runs it.

use super::algorithm::copy_of_lia;
use crate::common::{json, names, output, refused};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const SCENARIO: &str = r#"
title = "Two paths and a competing connection"
duration = "4s"
warmup = "1s"
[host]
cc = "lia"
[topology]
kind = "parallel-paths"
paths = 2
rate = "10mbit"
delay = "5ms"
buffer = "50pkt"
[[traffic]]
kind = "bulk"
"#;

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("two.toml"), SCENARIO).unwrap();
    dir
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// LIA that never reduces its window.
fn deaf(name: &str) -> String {
    let reduce = "cc_reduce(ev, self, cc_flight(ev), CC_MIN_SSTHRESH_PKT, CC_MIN_SSTHRESH_PKT, out);";
    copy_of_lia(name).replace("cc_reno_reduce(ev, self, out);", reduce)
}

#[test]
fn own_algorithm_that_never_reduces_is_found_by_a_scenario_that_runs() {
    let dir = folder();
    fs::write(dir.path().join("deaf.c"), deaf("deaf")).unwrap();
    let own = ["--algorithm", "deaf.c", "--set", "cc=deaf"];
    let search = ["search", "two.toml", "--property", "fair-share", "--budget", "300", "--out", "found"];
    let (code, found) = json(dir.path(), &[&search[..], &own].concat());
    assert_eq!(code, 1, "{found}");
    let finding = &found["properties"][0]["finding"];
    assert!(finding["score"].as_f64().unwrap() > 1.05, "{found}");
    assert_eq!(names(&dir.path().join("found")), ["deaf.c", "fair-share.toml", "search.json"]);
    assert_eq!(read(&dir.path().join("found/search.json")), found);
    let (code, run) = json(
        dir.path(),
        &["run", "found/fair-share.toml", "--engine", "sim", "--algorithm", "found/deaf.c", "--out", "run"],
    );
    assert_eq!((code, &run["claims"][0]["pass"]), (1, &Value::Bool(false)), "{run}");
    assert!(run["claims"][0]["value"].is_number());
}

#[test]
fn search_has_the_same_bytes_with_any_number_of_jobs() {
    let dir = folder();
    let search = |jobs: &str, out: &str| {
        let arguments =
            ["search", "two.toml", "--set", "cc=reno", "--budget", "216", "--jobs", jobs, "--out", out];
        let ended = output(dir.path(), &arguments);
        assert!(matches!(ended.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&ended.stderr));
        let files = names(&dir.path().join(out));
        files
            .into_iter()
            .map(|name| (fs::read(dir.path().join(out).join(&name)).unwrap(), name))
            .collect::<Vec<_>>()
    };
    let one = search("1", "one");
    assert!(one == search("4", "four"), "the folders differ");
    assert!(one.iter().any(|(_, name)| name == "search.json"));
}

#[test]
fn bad_options_are_named_with_a_remedy() {
    let dir = folder();
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--property", "fairness"], &["fairness", "best-path, fair-share"]),
        (&["--budget", "20"], &["a budget of 20 runs is too small", "give at least 216"]),
        (&["--control", "renno"], &["renno", "reno"]),
        (&["--set", "cc=lia,olia"], &["2 cases", "--set cc=VALUE"]),
        (&["--out", "."], &["not empty", "--out"]),
    ];
    for (options, expected) in cases {
        let message = refused(dir.path(), &[&["search", "two.toml"], options].concat(), 2);
        assert!(expected.iter().all(|part| message.contains(part)), "{options:?}: {message}");
    }
    // A refused search leaves no folder.
    refused(dir.path(), &["search", "two.toml", "--budget", "20", "--out", "new"], 2);
    assert_eq!(names(dir.path()), ["two.toml"]);
}

#[test]
fn interrupted_search_keeps_a_whole_folder() {
    let dir = folder();
    let child = Command::new(assert_cmd::cargo::cargo_bin("vmcc"))
        .args(["search", "two.toml", "--budget", "1000000", "--out", "out"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !dir.path().join("out").exists() {
        assert!(started.elapsed() < Duration::from_secs(600), "it did not begin");
        thread::sleep(Duration::from_millis(5));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let ended = child.wait_with_output().unwrap();
    let message = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{message}");
    assert!(ended.stdout.is_empty() && message.contains("interrupted after"), "{message}");
    let summary = read(&dir.path().join("out/search.json"));
    assert_eq!(
        (&summary["interrupted"], summary["properties"].as_array().unwrap().len()),
        (&Value::Bool(true), 6)
    );
}
