//! State that one guard passes on to the next.

use crate::backoff::Backoffs;
use std::fmt;
use std::time::{Duration, Instant};

/// Back-offs of paths. The next guard continues them: a back-off outlives a change of policies.
pub struct GuardState {
    began: Instant,
    pub(crate) backoffs: Backoffs,
}

impl GuardState {
    /// Time on the clock of the back-offs.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Default for GuardState {
    fn default() -> Self {
        Self { began: Instant::now(), backoffs: Backoffs::default() }
    }
}

impl fmt::Debug for GuardState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuardState({} namespaces)", self.backoffs.namespaces().count())
    }
}
