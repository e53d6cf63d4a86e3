//! Interface of every engine.

use crate::EngineError;
use std::sync::atomic::AtomicBool;
use vmcc_results::RunOutput;
use vmcc_scenario::ResolvedCase;

/// Something that can run a case.
pub trait Engine: Sync {
    /// Name, as in results.
    fn name(&self) -> &'static str;

    /// Number of runs that may go on at the same time; `None` when they do not disturb each other.
    fn most_jobs(&self) -> Option<usize>;

    /// Facts about the engine for the results, beyond the host: key and value.
    fn facts(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Runs `case` with `seed`. Returns soon after `stop` is set; calls `progress` with the fraction done.
    ///
    /// # Errors
    /// The case cannot be run here, or `stop` was set; whatever the run made is removed.
    fn run(
        &self,
        case: &ResolvedCase,
        seed: u64,
        stop: &AtomicBool,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<RunOutput, EngineError>;
}
