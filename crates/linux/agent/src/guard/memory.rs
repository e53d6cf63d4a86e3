//! State that one guard passes on to the next.

use super::resting::Restings;
use std::fmt;
use std::time::{Duration, Instant};

/// Which paths rest and for how long. Whoever guards next goes on from there: a back-off outlives a change of policies.
pub struct Memory {
    began: Instant,
    pub(super) resting: Restings,
}

impl Memory {
    /// On the clock of everything that is remembered.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self { began: Instant::now(), resting: Restings::default() }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} namespaces)", self.resting.namespaces().count())
    }
}
