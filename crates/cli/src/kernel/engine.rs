//! Cases on this host's kernel.

use crate::failure::Failure;
use crate::kernel::{checks, lab_failure};
use crate::run::engine::{Engine, RunError};
use std::sync::atomic::AtomicBool;
use vmcc_lab::{Control, ErrorKind, LabSpec, Programs};
use vmcc_results::RunOutput;
use vmcc_scenario::{Plan, ResolvedCase};

/// Network namespaces, shaped links and real programs on the kernel that runs this program.
struct Kernel;

/// The kernel engine, if this host can run `plan` on it.
pub(crate) fn kernel(plan: &Plan) -> Result<Box<dyn Engine>, Failure> {
    expressible(plan)?;
    checks::kernel_engine(plan)?;
    Ok(Box::new(Kernel))
}

/// Whether the kernel engine has what every case asks for.
pub(crate) fn expressible(plan: &Plan) -> Result<(), Failure> {
    plan.cases.iter().try_for_each(|case| LabSpec::try_from(case).map(drop).map_err(|e| lab_failure(&e)))
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
        _seed: u64,
        stop: &AtomicBool,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<RunOutput, RunError> {
        let spec = LabSpec::try_from(case).map_err(|e| RunError::Failed(lab_failure(&e)))?;
        let mut report = |p: &vmcc_lab::Progress| {
            progress(p.elapsed.as_secs_f64() / p.total.as_secs_f64().max(1e-9));
        };
        let mut control = Control { cancel: stop, progress: &mut report, programs: Programs::default() };
        vmcc_lab::run(&spec, &mut control).map_err(|error| match error.kind() {
            ErrorKind::Interrupted => RunError::Interrupted,
            _ => RunError::Failed(lab_failure(&error)),
        })
    }
}
