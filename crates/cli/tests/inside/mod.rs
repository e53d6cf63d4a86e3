//! The program in a guest.
#![allow(unreachable_pub, reason = "a part of one program")]

use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_vmcc");

/// Output of a shell script, whose `$VMCC` is the program, in a guest with the newest kernel of a series.
pub fn output(series: &str, script: &str) -> Output {
    Command::new(PROGRAM)
        .args(["internal", "guest", "--kernel", series, "--time-limit", "240", "--", "sh", "-c"])
        .arg(script.replace("$VMCC", PROGRAM))
        .output()
        .unwrap()
}
