//! The simulator as an engine beside others.

use crate::build::Fabric;
use crate::error::SimError;
use crate::run::{Options, run_case};
use std::sync::atomic::AtomicBool;
use vmcc_engine::{Engine, EngineError, ErrorKind};
use vmcc_results::RunOutput;
use vmcc_scenario::ResolvedCase;

/// Runs each case on one thread, or on several; any number of runs go on side by side.
#[derive(Debug, Clone, Copy)]
pub struct Simulator {
    threads: u32,
}

impl Default for Simulator {
    fn default() -> Self {
        Self::threaded(1)
    }
}

impl Simulator {
    /// Shares each run among this many threads, as far as its network can be cut; the results do not depend on it.
    pub const fn threaded(threads: u32) -> Self {
        Self { threads: if threads == 0 { 1 } else { threads } }
    }

    /// Threads that a case really uses: where its network has few links with a delay, fewer than were asked for.
    ///
    /// # Errors
    /// The simulator cannot build the case's network.
    pub fn threads_for(&self, case: &ResolvedCase) -> Result<usize, EngineError> {
        let fabric = Fabric::build(&case.scenario).map_err(|e| EngineError::from(SimError::from(e)))?;
        Ok(fabric.partition(&case.scenario.event, self.threads).shards())
    }
}

impl Engine for Simulator {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn most_jobs(&self) -> Option<usize> {
        None
    }

    fn run(
        &self,
        case: &ResolvedCase,
        seed: u64,
        stop: &AtomicBool,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<RunOutput, EngineError> {
        let options = Options { threads: self.threads, cancel: Some(stop), progress: Some(progress) };
        run_case(case, seed, &options).map_err(EngineError::from)
    }
}

impl From<SimError> for EngineError {
    fn from(error: SimError) -> Self {
        match error {
            SimError::Canceled => Self::new(ErrorKind::Interrupted, error),
            _ => Self::new(ErrorKind::BadInput, error)
                .with_remedy("change the scenario, or see `vmcc scenario check`"),
        }
    }
}
