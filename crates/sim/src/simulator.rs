//! The simulator as an engine beside others.

use crate::run::{Options, SimError, run_case};
use std::sync::atomic::AtomicBool;
use vmcc_engine::{Engine, EngineError, ErrorKind};
use vmcc_results::RunOutput;
use vmcc_scenario::ResolvedCase;

/// Runs each case on one thread; any number of runs go on side by side.
#[derive(Debug, Clone, Copy, Default)]
pub struct Simulator;

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
        let options = Options { threads: 1, cancel: Some(stop), progress: Some(progress) };
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
