//! State that one guard passes on to the next.

use crate::machine::Backoffs;
use std::fmt;
use std::time::Instant;

/// Back-offs of paths. The next guard continues them: a back-off outlives a change of policies.
pub struct GuardState {
    /// Origin of their clock.
    pub(crate) began: Instant,
    pub(crate) backoffs: Backoffs,
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
