//! The lab as engines beside others: [`kernel`] runs cases on this host's kernel, [`guest`] on that of a small virtual
//! machine. Each says beforehand whether it can ([`Unusable`]).

mod checks;
mod error;
mod guest;
mod kernel;
mod worker;

pub use checks::{checks, guest_usable, kernel_usable};
pub use error::{GuestRunError, Unusable};
pub use guest::GuestEngine;
pub use kernel::Kernel;
pub use worker::worker;

use crate::{Error, LabSpec, Progress};
use std::collections::BTreeSet;
use std::time::Duration;
use vmcc_scenario::Plan;
use vmcc_scenario::model::EventKind;

/// Time for a run beyond its duration: building, and emulation without KVM.
const OVERHEAD: Duration = Duration::from_secs(120);

/// Lab specification of each case.
fn specs(plan: &Plan) -> Result<Vec<LabSpec>, Error> {
    let off = off_somewhere(plan);
    plan.cases.iter().map(|case| LabSpec::of(case, &off, 0)).collect()
}

/// The hosts that are off in some case: virtual machines in all of them, so that cases can be compared. Others are some in the cases that
/// name them.
fn off_somewhere(plan: &Plan) -> BTreeSet<String> {
    let events = plan.cases.iter().flat_map(|case| &case.scenario.event);
    let host = |event: &vmcc_scenario::model::Event| match &event.kind {
        EventKind::Deschedule(e) => Some(e.host.clone()),
        _ => None,
    };
    events.filter_map(host).collect()
}

/// The part of a run that is over.
fn fraction(progress: &Progress) -> f64 {
    progress.elapsed.as_secs_f64() / progress.total.as_secs_f64().max(1e-9)
}
