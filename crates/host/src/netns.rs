//! Doing something in another network namespace.

use crate::error::ControlError;
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;

/// Opens a namespace by its file.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, ControlError> {
    let file = File::open(path);
    file.map(OwnedFd::from)
        .map_err(|e| ControlError::kernel(format!("open network namespace {}", path.display()), e))
}

/// Runs `action` on a thread of its own inside the namespace, so that no other code is moved there.
pub(crate) fn within<T: Send>(
    netns: BorrowedFd<'_>,
    action: impl FnOnce() -> T + Send,
) -> Result<T, ControlError> {
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            setns(netns, CloneFlags::CLONE_NEWNET)
                .map_err(|e| ControlError::kernel("enter a network namespace", e))?;
            Ok(action())
        });
        match inside.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
