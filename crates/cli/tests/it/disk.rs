//! A full disk: a clear message, and nothing half-written. In a mount namespace with a tiny file system, which
//! root can always make and others where the kernel lets them.

use crate::common::folder;
use std::process::{Command, Output};

/// A run that has a file system of `kilobytes` for its results; the commands in `look` see what it left in `tiny`.
fn run_on(kilobytes: usize, options: &str, look: &str) -> Output {
    let dir = folder();
    let program = assert_cmd::cargo::cargo_bin("vmcc");
    let script = format!(
        "mount -t tmpfs -o size={kilobytes}k none tiny || exit 99\n\
         '{}' run two.toml --engine sim {options} --out tiny/out\ncode=$?\n{look}\nexit $code",
        program.display()
    );
    std::fs::create_dir(dir.path().join("tiny")).unwrap();
    let run = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", &script])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let made_namespace = run.status.code() != Some(99) && !run.stderr.starts_with(b"unshare");
    assert!(made_namespace, "this test needs user and mount namespaces: {run:?}");
    run
}

#[test]
fn disk_filled_during_a_run_keeps_results_and_says_how_to_resume() {
    let mut all_runs_kept = 0;
    for kilobytes in (40..1000).step_by(40) {
        let run = run_on(kilobytes, "--jobs 1", "test -d tiny/out.partial && echo kept");
        if run.status.success() {
            break;
        }
        let message = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(3), "{kilobytes} kB: {message}");
        let continues = message.contains("continue with: vmcc run two.toml") && message.contains("--resume");
        let kept = String::from_utf8_lossy(&run.stdout).contains("kept");
        assert_eq!(continues, kept, "{kilobytes} kB: {message}");
        all_runs_kept += usize::from(message.contains("4 of 4 runs are kept in tiny/out.partial"));
    }
    assert!(all_runs_kept > 0, "the disk was never full at the end, when the result is put together");
}

#[test]
fn full_disk_leaves_no_partial_file() {
    let run = run_on(24, "", "ls -A tiny/out 2>/dev/null; find tiny -name '*.json' -size 0");
    let message = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(3), "{message}");
    assert!(message.contains("no space left on the device") && message.contains("help: "), "{message}");
    assert_eq!(String::from_utf8(run.stdout).unwrap(), "", "neither a result folder nor empty files");
}
