//! Closing a path that an algorithm requests to close, in whatever network namespace it lives.

use crate::judge::{Judged, judge};
use vmcc_host::close_requests::CloseRequest;
use vmcc_host::diag::{Diag, DiagError};
use vmcc_host::{ControlError, netns};

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The path is closed.
    Closed,
    /// There is no such path (any more).
    Gone,
    /// The path to be kept is gone, waits for a timeout, or is a backup: closing would leave nothing good.
    NothingToKeep,
    /// Too few others are in use.
    Retained,
}

/// Closes the subflow if it still is what the request means, runs under the algorithm `kernel_name`, and `min_paths` others are in
/// use.
///
/// # Errors
/// The namespace is not reachable, or the kernel refuses.
pub fn close(request: &CloseRequest, kernel_name: &str, min_paths: u32) -> Result<Verdict, ControlError> {
    let act = |diag: &mut Diag| match judge(request, &diag.subflows()?, kernel_name, min_paths, |_| false) {
        Judged::Close(socket) => match diag.destroy(&socket) {
            Err(DiagError::NotFound { .. }) => Ok(Verdict::Gone),
            other => other.map(|()| Verdict::Closed),
        },
        Judged::Gone => Ok(Verdict::Gone),
        Judged::NothingToKeep(_) => Ok(Verdict::NothingToKeep),
        Judged::Retain(_) => Ok(Verdict::Retained),
    };
    let action = || format!("close the subflow {} -> {}", request.local, request.remote);
    netns::within_inode(request.netns, action, || Diag::open().and_then(|mut diag| act(&mut diag)))?
        .map_err(|e| ControlError::kernel("close a path that shares a bottleneck", e))
}
