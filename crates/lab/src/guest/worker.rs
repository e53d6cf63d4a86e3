//! Program in a guest that does what files in a shared directory ask for.

use super::{Guest, GuestError, GuestOptions, GuestOutput, KernelImage};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// The program of the host that calls [`worker`](crate::engine::worker()), or [`sender`](crate::sender()) where a host is a
/// virtual machine, with its last argument, a directory.
#[derive(Debug, Clone)]
pub struct WorkerProgram {
    /// The program, visible in the guest, which has the host's files.
    pub program: PathBuf,
    /// Arguments before the directory.
    pub arguments: Vec<OsString>,
    /// Set by the caller to stop a guest that still boots.
    pub stop: Option<&'static AtomicBool>,
}

impl WorkerProgram {
    /// Runs it in a guest until it ends, with a directory that host and guest share.
    pub(crate) fn run(
        self,
        kernel: &KernelImage,
        directory: PathBuf,
        options: GuestOptions,
    ) -> Result<GuestOutput, GuestError> {
        let arguments = self.arguments.into_iter().chain([directory.clone().into_os_string()]);
        let options = GuestOptions { shared_dir: Some(directory), stop: self.stop, ..options };
        Guest::new(options).run(kernel, self.program, arguments)
    }
}
