//! The lab as engines beside others: [`kernel`] runs cases on this host's kernel, [`guest`] on that of a small virtual
//! machine. Each says beforehand whether it can ([`Unusable`]).

mod checks;
mod error;
mod guest;
mod kernel;
mod worker;

pub use checks::{checks, guest_usable, kernel_usable};
pub use error::{GuestRunError, Unusable};
pub use guest::{GuestEngine, WorkerProgram};
pub use kernel::Kernel;
pub use worker::worker;

use crate::{Error, LabSpec, Progress};
use vmcc_scenario::Plan;

/// Whether the lab has what every case asks for.
///
/// # Errors
/// What it cannot express, by key.
pub fn expressible(plan: &Plan) -> Result<(), Error> {
    plan.cases.iter().try_for_each(|case| LabSpec::try_from(case).map(drop))
}

/// The part of a run that is over.
fn fraction(progress: &Progress) -> f64 {
    progress.elapsed.as_secs_f64() / progress.total.as_secs_f64().max(1e-9)
}
