//! Policies of the guard, with their defaults and ranges.

use std::time::Duration;
use vmcc_multipath::{MAX_PATHS, MIN_PATHS};

/// Default of [`Policy::drain`].
const DRAIN: Duration = Duration::from_secs(1);
/// RTOs of silence until a path has failed, if nobody says how many.
pub const CHI: f64 = 2.0;
/// Default factor by which a useless path is slower than the best.
pub const OMEGA: f64 = 10.0;

/// The policies of the guard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Verdicts are reported, and nothing is closed.
    pub dry_run: bool,
    /// A subflow that is to be closed is made a backup before that, where the path manager allows it, and closed when
    /// everything that it has sent is acknowledged, or after this time. Zero: closed at once.
    pub drain: Duration,
    /// Paths of each connection that stay open when an algorithm finds that they share a bottleneck: one is closed only while this many
    /// others are in use. From 1.
    pub min_paths: u32,
    /// A path is closed that has data to be acknowledged and is silent for this many RTOs while others deliver.
    pub failed: Option<f64>,
    /// A path is suppressed (a backup, or closed) that delivers less than the best of its connection divided by this.
    pub useless: Option<f64>,
    /// A path that was closed or suppressed is tried again after this time, then after twice that, and so on.
    pub retry: Option<Duration>,
}

impl Default for Policy {
    fn default() -> Self {
        Self { dry_run: false, drain: DRAIN, min_paths: MIN_PATHS, failed: None, useless: None, retry: None }
    }
}

/// Of timeouts, and of rates.
const FACTOR_RANGE: std::ops::RangeInclusive<f64> = 1.0..=1000.0;
/// A subflow that is a backup and does not empty is of no use to anybody.
const MAX_DRAIN: Duration = Duration::from_secs(60);
/// More often, and paths would be opened and closed without end.
const MIN_RETRY: Duration = Duration::from_secs(1);

impl Policy {
    /// After which time a path is tried again; one that only reports tries nothing.
    pub(crate) fn retry_interval(&self) -> Option<Duration> {
        self.retry.filter(|_| !self.dry_run)
    }

    /// Itself.
    ///
    /// # Errors
    /// The name of what is out of its range (`chi`, `omega`, `drain`, `min_paths`, `retry`), and that range.
    pub fn checked(self) -> Result<Self, (&'static str, String)> {
        for (name, factor) in [("chi", self.failed), ("omega", self.useless)] {
            if let Some(value) = factor.filter(|value| !FACTOR_RANGE.contains(value)) {
                return Err((
                    name,
                    format!("{value} is not from {} to {}", FACTOR_RANGE.start(), FACTOR_RANGE.end()),
                ));
            }
        }
        let most = MAX_PATHS as u32;
        if !(MIN_PATHS..=most).contains(&self.min_paths) {
            return Err(("min_paths", format!("{} is not from {MIN_PATHS} to {most}", self.min_paths)));
        }
        if self.drain > MAX_DRAIN {
            return Err(("drain", "the longest is a minute".to_owned()));
        }
        if self.retry.is_some_and(|retry| retry < MIN_RETRY) {
            return Err(("retry", "the shortest is a second".to_owned()));
        }
        Ok(self)
    }

    /// True if connections are scanned without a request of an algorithm.
    pub(crate) fn scans(&self) -> bool {
        self.failed.is_some() || self.useless.is_some()
    }
}
