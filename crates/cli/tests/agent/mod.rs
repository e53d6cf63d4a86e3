//! Helpers of the tests of `vmcc up` and `vmcc down`.
#![allow(unreachable_pub, reason = "a part of one program")]

use std::process::Command;

/// The names that can be selected.
pub fn available() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
}

/// Takes down what a failed test left up.
pub struct Down;

impl Drop for Down {
    fn drop(&mut self) {
        let _ = Command::new(env!("CARGO_BIN_EXE_vmcc")).arg("down").output();
    }
}
