//! From blocking callers to asynchronous work, and its end when they want it.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Interval at which a request to stop is checked.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time for pending reads and writes of files at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs `work` on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(work);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    Ok(answer)
}

/// Work that blocks, on another thread.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)
}

/// Returns once `stop` is set.
pub(crate) async fn stop_requested(stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        sleep(STOP_POLL_INTERVAL).await;
    }
}

/// Result of `work`; none if `until` is over before.
pub(crate) async fn run_until<T>(
    until: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        answer = work => Some(answer),
        () = until => None,
    }
}
