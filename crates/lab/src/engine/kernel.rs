//! Cases on this host's kernel.

use crate::engine::{checks, expressible, fraction};
use crate::{Control, Error, LabSpec, Programs};
use std::sync::atomic::AtomicBool;
use vmcc_engine::{Engine, EngineError};
use vmcc_results::RunOutput;
use vmcc_scenario::{Plan, ResolvedCase};

/// Network namespaces, shaped links and real programs on the kernel that runs this process.
#[derive(Debug)]
pub struct Kernel(());

impl Kernel {
    /// The kernel engine for `plan`.
    ///
    /// # Errors
    /// The lab cannot express the plan, or this host cannot run it.
    pub fn for_plan(plan: &Plan) -> Result<Self, EngineError> {
        expressible(plan)?;
        checks::kernel_can(plan)?;
        Ok(Self(()))
    }
}

impl From<Error> for EngineError {
    /// The text of the lab's errors has the remedy.
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

impl Engine for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn most_jobs(&self) -> Option<usize> {
        Some(1)
    }

    fn run(
        &self,
        case: &ResolvedCase,
        seed: u64,
        stop: &AtomicBool,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<RunOutput, EngineError> {
        let spec = LabSpec::try_from(case)?.with_seed(seed);
        let mut report = |p: &crate::Progress| progress(fraction(p));
        let mut control = Control { cancel: stop, progress: &mut report, programs: Programs::default() };
        Ok(crate::run(&spec, &mut control)?)
    }
}
