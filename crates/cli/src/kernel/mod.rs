//! What needs a kernel: the kernel and guest engines, marking, probes, and the speed of the kernel programs.

pub(crate) mod agent;
pub(crate) mod bench;
pub(crate) mod bench_port;
pub(crate) mod checks;
pub(crate) mod clean;
pub(crate) mod engine;
mod flood;
pub(crate) mod guest;
pub(crate) mod mark;
pub(crate) mod matrix;
mod veth;

use crate::failure::{Failure, chain};
use vmcc_lab::{Error, ErrorKind};

/// A failure of the lab; its message already has the remedy.
fn lab_failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::BadInput => Failure::usage(chain(error)),
        ErrorKind::Interrupted => Failure::interrupted(chain(error)),
        _ => Failure::host(chain(error)),
    }
}
