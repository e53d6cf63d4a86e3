//! Where a server is alone to see: a file system in memory of its own at `/run`, gone with the process.

use crate::process::Program;
use std::path::PathBuf;

/// What the server reads its settings from.
pub(super) const SETTINGS: &str = "/run/settings";

/// What is sent is random, so that nothing compares equal by accident.
const PREPARE: &str = "mount -t tmpfs none /run && mkdir /run/files && printf %s \"$1\" >/run/settings && \
                       head -c \"$2\" /dev/urandom >/run/data && shift 2 && exec \"$@\"";

/// The words that start a server with these settings, `wrapper` before it, and `bytes` in `data`; the program's own words follow.
pub(super) fn in_memory(settings: &str, bytes: u64, wrapper: &[&str]) -> Vec<String> {
    let size = bytes.to_string();
    let words = ["unshare", "--mount", "sh", "-c", PREPARE, "sh", settings, &size];
    words.iter().chain(wrapper).map(|word| (*word).to_owned()).collect()
}

/// A file that only the server sees.
pub(super) fn in_memory_of(server: &Program, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root/run/{name}", server.pid()))
}
