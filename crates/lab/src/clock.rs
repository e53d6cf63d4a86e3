//! Time of a run: microseconds since its start, and the grid of its samples.

use std::thread;
use std::time::{Duration, Instant};

/// Sleeps until the next multiple of `interval` after `start`.
pub(crate) fn sleep_until_next(start: Instant, interval: Duration) {
    let elapsed = start.elapsed();
    // On a late wake-up the next sample falls on the grid again instead of shifting all that follow.
    let beyond = elapsed.as_nanos() % interval.as_nanos().max(1);
    let remaining = interval.saturating_sub(Duration::from_nanos(u64::try_from(beyond).unwrap_or(0)));
    thread::sleep(remaining);
}

/// Microseconds, limited to what fits.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
