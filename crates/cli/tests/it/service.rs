//! The unit of the agent: systemd reads it without a complaint, and finds little that it exposes.

use crate::common::{folder, root};
use std::fs;
use std::process::{Command, Output};

/// The unit, with this build's program and without the manual page, which is not installed here.
fn analyze(arguments: &[&str]) -> Option<Output> {
    let dir = folder();
    let unit = fs::read_to_string(root().join("dist/vmcc.service")).unwrap();
    let lines = unit.lines().filter(|line| !line.starts_with("Documentation="));
    let unit = lines.collect::<Vec<_>>().join("\n").replace("/usr/bin/vmcc", env!("CARGO_BIN_EXE_vmcc"));
    let path = dir.path().join("vmcc.service");
    fs::write(&path, unit).unwrap();
    match Command::new("systemd-analyze").args(arguments).arg(&path).output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("systemd-analyze is not installed: not checked");
            None
        }
        output => Some(output.unwrap()),
    }
}

#[test]
fn systemd_accepts_the_unit() {
    let Some(output) = analyze(&["verify"]) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn unit_has_a_low_exposure_score() {
    // Of 10.0; without its restrictions it would be 9.6.
    let Some(output) = analyze(&["security", "--offline=yes", "--threshold=50"]) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
