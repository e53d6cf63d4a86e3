//! A guest whose program does what files in a directory ask for, which both sides share. Each file is renamed into place, so that no
//! reader sees half of it.

use super::{Guest, GuestError, GuestOptions, GuestOutput, KernelImage};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use tempfile::TempDir;

/// File that ends the program.
pub(crate) const QUIT: &str = "quit";

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

/// A guest that runs a [`WorkerProgram`]. Dropping it ends both and removes the directory.
#[derive(Debug)]
pub(crate) struct Worker {
    guest: Option<JoinHandle<Result<GuestOutput, GuestError>>>,
    directory: TempDir,
}

/// End of a guest that should still run.
pub(crate) enum WorkerEnd {
    Failed(GuestError),
    /// The program ended, with the last line of its standard error.
    Exited {
        code: i32,
        last: String,
    },
    Gone,
}

impl Worker {
    /// Boots the guest in a thread, which is in the network namespace of this one.
    pub(crate) fn start(
        directory: TempDir,
        kernel: KernelImage,
        program: WorkerProgram,
        options: GuestOptions,
    ) -> Self {
        let shared = directory.path().to_owned();
        let options = GuestOptions { shared_dir: Some(shared.clone()), stop: program.stop, ..options };
        let arguments = program.arguments.into_iter().chain([shared.into_os_string()]);
        let guest = move || Guest::new(options).run(&kernel, program.program, arguments);
        Self { guest: Some(thread::spawn(guest)), directory }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// End of the guest; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<WorkerEnd> {
        if self.guest.as_ref().is_some_and(|guest| !guest.is_finished()) {
            return None;
        }
        Some(match self.guest.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => WorkerEnd::Failed(error),
            Some(Ok(Ok(output))) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let last = said.lines().last().unwrap_or("it said nothing").to_owned();
                WorkerEnd::Exited { code: output.exit_code, last }
            }
            Some(Err(_)) | None => WorkerEnd::Gone,
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // If the file cannot be written, the guest ends at its time limit or with this process.
        if fs::write(self.directory.path().join(QUIT), "").is_ok()
            && let Some(guest) = self.guest.take()
        {
            drop(guest.join());
        }
    }
}

/// Writes a file.
pub(crate) fn place(directory: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    let temporary = directory.join(format!("{name}.new"));
    fs::write(&temporary, serde_json::to_vec(value)?)?;
    fs::rename(&temporary, directory.join(name))
}

/// Reads and removes a file; `None` when it is not there (yet).
pub(crate) fn take<T: for<'de> Deserialize<'de>>(directory: &Path, name: &str) -> Option<T> {
    let path = directory.join(name);
    let text = fs::read(&path).ok()?;
    let value = serde_json::from_slice(&text).ok()?;
    fs::remove_file(&path).ok()?;
    Some(value)
}
