//! Prometheus and its own checks, as `scripts/setup.sh` unpacks them.
#![allow(dead_code, unreachable_pub, reason = "a part of several tests")]

use crate::common::root;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// One of its programs.
pub fn tool(name: &str) -> PathBuf {
    let path = root().join("target/tools/usr/bin").join(name);
    assert!(path.exists(), "{}: not there; run `make setup-test`", path.display());
    path
}

/// Runs `promtool` with this on its standard input, and expects that it finds nothing to complain of.
pub fn promtool(arguments: &[&str], input: &str) {
    let mut command = Command::new(tool("promtool"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
}
