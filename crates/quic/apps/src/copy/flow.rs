//! Bounds of what one end of a copy has under way: requests, memory, and work on its disk.

use crate::run::blocking;
use std::io;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Streams of items under way. One costs an open file and little memory, so that requests fill a long path.
pub(super) const MAX_REQUESTS: usize = 200;
/// Open files that are not the requests': sockets, logs.
const OTHER_FILES: u64 = 40;
/// Files that are opened, hashed or finished at a time.
const DISK_JOBS: usize = 8;
/// Bytes of files between disk and connection: eight large files, or many small ones.
const BUFFER_BYTES: u64 = 16 << 20;
/// Share of one large file.
const MAX_FILE_BUFFER_BYTES: u64 = (super::PIECES * super::PIECE) as u64;
const BUFFER_UNIT_BYTES: u64 = 1 << 10;

pub(super) struct Flow {
    requests: usize,
    disk: Semaphore,
    buffer: Semaphore,
}

impl Flow {
    pub(super) fn new() -> Flow {
        let files = vmcc_config::allow_open_files().saturating_sub(OTHER_FILES);
        Flow {
            requests: usize::try_from(files).unwrap_or(MAX_REQUESTS).clamp(1, MAX_REQUESTS),
            disk: Semaphore::new(DISK_JOBS),
            buffer: Semaphore::new(units(BUFFER_BYTES) as usize),
        }
    }

    /// The most items under way at a time.
    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    /// Work that waits for the disk, on another thread.
    pub(super) async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let _permit = self.disk.acquire().await.map_err(io::Error::other)?;
        blocking(work).await
    }

    /// Memory for a file of which `len` bytes are to be moved, until the permit is dropped. Both ends take it in the same amounts, the sender
    /// before and until after the receiver: a receiver that waits for it, and leaves data unread, has a sender that breaks the rule.
    pub(super) async fn buffer(&self, len: u64) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.buffer.acquire_many(units(len.min(MAX_FILE_BUFFER_BYTES))).await.ok()
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(BUFFER_UNIT_BYTES)).unwrap_or(u32::MAX).max(1)
}
