//! Progress of a copy, for display.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counters that the copy moves and others read.
#[derive(Debug, Default)]
pub struct Progress {
    files: AtomicU64,
    bytes: AtomicU64,
    files_done: AtomicU64,
    bytes_done: AtomicU64,
    /// Of `bytes_done`, what was there before.
    bytes_found: AtomicU64,
    text: Mutex<Text>,
}

#[derive(Debug, Default)]
struct Text {
    current: String,
    paths: String,
}

/// Snapshot of a copy's progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Files in all; 0 before that is known.
    pub files: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Files that are whole.
    pub files_done: u64,
    /// Bytes that are there.
    pub bytes_done: u64,
    /// Of these, what was there before.
    pub bytes_found: u64,
    /// The file that was begun last.
    pub current: String,
    /// The paths in use.
    pub paths: String,
}

impl Progress {
    /// The present state.
    pub fn snapshot(&self) -> Snapshot {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            files: read(&self.files),
            bytes: read(&self.bytes),
            files_done: read(&self.files_done),
            bytes_done: read(&self.bytes_done),
            bytes_found: read(&self.bytes_found),
            current: text.current.clone(),
            paths: text.paths.clone(),
        }
    }

    pub(crate) fn plan(&self, files: u64, bytes: u64) {
        self.files.store(files, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn begin(&self, name: &str) {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).current = name.to_owned();
    }

    /// Another copy has this file.
    pub(crate) fn wait_for(&self, path: &Path) {
        self.begin(&format!("waiting: another copy is writing {}", path.display()));
    }

    pub(crate) fn set_paths(&self, paths: String) {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).paths = paths;
    }

    pub(crate) fn found(&self, bytes: u64) {
        self.bytes_found.fetch_add(bytes, Ordering::Relaxed);
        self.moved(bytes);
    }

    pub(crate) fn moved(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn file_done(&self) {
        self.files_done.fetch_add(1, Ordering::Relaxed);
    }
}
