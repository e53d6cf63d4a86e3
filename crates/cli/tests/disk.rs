//! A full disk: a clear message, and nothing half-written. In a mount namespace with a tiny file system, which
//! root can always make and others where the kernel lets them.
#![cfg(target_os = "linux")]

mod common;

use common::folder;
use std::process::Command;

#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let dir = folder();
    let program = assert_cmd::cargo::cargo_bin("vmcc");
    let script = format!(
        "mount -t tmpfs -o size=24k none tiny || exit 99\n\
         '{}' run two.toml --engine sim --out tiny/out\ncode=$?\nls -A tiny/out 2>/dev/null\n\
         find tiny -name '*.json' -size 0; exit $code",
        program.display()
    );
    std::fs::create_dir(dir.path().join("tiny")).unwrap();
    let run = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", &script])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let message = String::from_utf8(run.stderr).unwrap();
    let made_namespace = run.status.code() != Some(99) && !message.starts_with("unshare");
    assert!(made_namespace, "this test needs user and mount namespaces: {message}");
    assert_eq!(run.status.code(), Some(3), "{message}");
    assert!(message.contains("no space left on the device") && message.contains("help: "), "{message}");
    assert_eq!(String::from_utf8(run.stdout).unwrap(), "", "neither a result folder nor empty files");
}
