//! Helpers of the end-to-end tests, which run the program as a user does.
#![allow(dead_code, unreachable_pub, reason = "each program uses its part")]

use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// A sweep of two algorithms with two short runs each; the claim holds.
pub const SCENARIO: &str = r#"
title = "Two short paths"
duration = "300ms"
warmup = "100ms"
interval = "10ms"
runs = 2
seed = 7
[topology]
kind = "parallel-paths"
paths = 2
rate = "20mbit"
delay = "2ms"
buffer = "30kB"
[[traffic]]
kind = "bulk"
[sweep]
cc = ["reno", "lia"]
[[claim]]
id = "moves-data"
paper = "at least a little"
check = "mean(goodput_bps, cc='lia') > 1000000"
"#;

/// A folder with [`SCENARIO`] as `two.toml`.
pub fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("two.toml"), SCENARIO).unwrap();
    dir
}

/// The program, started in `dir`.
pub fn vmcc(dir: &Path) -> Command {
    let mut command = Command::cargo_bin("vmcc").unwrap();
    command.current_dir(dir).env_remove("NO_COLOR").env_remove("COLUMNS");
    command
}

/// A real browser without a window, which asks nobody for anything of its own; a profile in `dir`.
pub fn chromium(dir: &Path) -> std::process::Command {
    let mut command = std::process::Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
    command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    command.arg(format!("--user-data-dir={}", dir.join("profile").display()));
    command
}

/// Runs a browser to its end.
pub fn browse(command: &mut std::process::Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("chromium: {e}; run `make setup-test`"))
}

/// Runs it and returns everything it left.
pub fn output(dir: &Path, arguments: &[&str]) -> Output {
    vmcc(dir).args(arguments).output().unwrap()
}

/// Runs it with `--json` and returns the exit code and the document, which must be all of stdout.
pub fn json(dir: &Path, arguments: &[&str]) -> (i32, Value) {
    let output = vmcc(dir).args(arguments).arg("--json").output().unwrap();
    let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        panic!(
            "{arguments:?}: {e}\nstdout: {}\nstderr: {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    });
    (output.status.code().unwrap(), document)
}

/// Runs it, expects this exit code, and returns stderr.
pub fn refused(dir: &Path, arguments: &[&str], code: i32) -> String {
    let output = output(dir, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}: nothing is printed on stdout");
    assert!(stderr.contains("error: "), "{arguments:?}: {stderr}");
    stderr
}

/// Names in `dir`, sorted.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Python with the libraries of `scripts/python-requirements.txt`.
pub fn python() -> PathBuf {
    let path = std::env::var_os("VMCC_TEST_PYTHON").map(PathBuf::from);
    let path = path.unwrap_or_else(|| root().join("target/python/bin/python"));
    assert!(path.exists(), "{}: not there; run `make setup-test`", path.display());
    path
}
