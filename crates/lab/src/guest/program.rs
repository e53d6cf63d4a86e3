//! Programs beside a guest: finding, starting and logging them.

use super::GuestError;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command that is killed when the calling thread ends, however it ends.
pub(super) fn dies_with_parent(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// An executable in PATH, in the directories of root's PATH, or in one of `others`.
pub(super) fn find(name: &str, others: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let everywhere = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let candidates = everywhere.map(|dir| dir.join(name)).chain(others.iter().map(PathBuf::from));
    candidates.into_iter().find(|candidate| candidate.is_file())
}

pub(super) fn log_file(path: &Path) -> Result<File, GuestError> {
    File::create(path).map_err(GuestError::file(path))
}
