//! Private mount of a server: a tmpfs at `/run`, gone with the process.

use crate::process::Program;
use std::path::PathBuf;

/// File from which the server reads its settings.
pub(super) const SETTINGS: &str = "/run/settings";

/// Script that prepares the file system. Its data are random, so that nothing compares equal by accident. The shell waits for the server
/// instead of becoming it: see [`UNSHARE`].
const PREPARE: &str = "mount -t tmpfs none /run && mkdir /run/files && printf %s \"$1\" >/run/settings && \
                       head -c \"$2\" /dev/urandom >/run/data && shift 2 && \"$@\"; exit $?";

/// A server that changes its user loses the signal that a parent's death sends it. So its shell is the first process of a PID namespace:
/// that one is killed with the run, and the kernel kills all of its namespace with it.
const UNSHARE: [&str; 8] = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", PREPARE];

/// The words that start a server with these settings, `wrapper` before it, and `bytes` in `data`; the program's own words follow.
pub(super) fn mounted_command(settings: &str, bytes: u64, wrapper: &[&str]) -> Vec<String> {
    let size = bytes.to_string();
    let words = UNSHARE.into_iter().chain(["sh", settings, &size]);
    words.chain(wrapper.iter().copied()).map(str::to_owned).collect()
}

/// A file that only the server sees.
pub(super) fn mounted_path(server: &Program, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root/run/{name}", server.pid()))
}
