//! In-process ends of a flow: threads of the lab in the namespace of a host.

use super::End;
use crate::process::Ended;
use crate::{Error, Netns};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// A thread that does what a program would. Dropping it ends it.
pub(crate) struct InProcess {
    what: &'static str,
    namespace: String,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<Ended>>,
}

impl InProcess {
    /// Begins `work`, which ends soon after a stop request.
    pub(super) fn spawn(
        at: &Netns,
        what: &'static str,
        work: impl FnOnce(&AtomicBool) -> Ended + Send + 'static,
    ) -> Result<End, Error> {
        let end = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&end);
        // A thread is in the namespace of the one that starts it.
        let started = at.run(move || thread::Builder::new().name("own".into()).spawn(move || work(&flag)));
        let thread =
            started.map_err(|e| Error::kernel("starting", format!("a {what} in {}", at.name()), e))?;
        Ok(End::InProcess(Self { what, namespace: at.name().to_owned(), end, thread: Some(thread) }))
    }

    /// Exit status and output, if it has ended.
    pub(super) fn output(&mut self) -> Option<Ended> {
        let thread = self.thread.take_if(|thread| thread.is_finished())?;
        let died = |_| Ended {
            status: ExitStatus::from_raw(1 << 8),
            stdout: Vec::new(),
            stderr: "it panicked".into(),
        };
        Some(thread.join().unwrap_or_else(died))
    }

    pub(super) fn end(&self) {
        self.end.store(true, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, cause: impl Into<String>, remedy: &str) -> Error {
        Error::ProgramFailed {
            program: self.what.to_owned(),
            namespace: self.namespace.clone(),
            cause: cause.into(),
            remedy: remedy.to_owned(),
        }
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            // It says nothing that matters any more.
            let _ = thread.join();
        }
    }
}

/// Output of a thread: lines, and its first fault.
pub(super) fn exit_with(lines: String, fault: Option<io::Error>) -> Ended {
    let stderr = fault.map(|fault| fault.to_string()).unwrap_or_default();
    Ended { status: ExitStatus::from_raw(0), stdout: lines.into_bytes(), stderr }
}
