//! A figure and its result.

use crate::failure::Failure;
use vmcc_results::Summary;

/// A figure and its result.
pub(super) struct Figure {
    pub(super) name: String,
    /// Result. A figure that cannot be run does not fail the whole: another engine may run it.
    pub(super) outcome: Result<Summary, Failure>,
}
