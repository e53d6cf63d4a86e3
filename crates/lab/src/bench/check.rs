//! Check of an algorithm on this kernel: load it, then transfer under it.

use crate::Error;
use crate::bench::Pair;
use std::time::Duration;
use vmcc_bpf::{LoadError, Loaded};
use vmcc_cc::{Algorithm, Params};

/// Long enough for both subflows to join and leave slow start, on an emulated machine as well.
const DURATION: Duration = Duration::from_secs(1);

/// Result of a check.
#[derive(Debug)]
pub enum Checked {
    /// It loads, and a transfer under it over two subflows arrived as it was sent.
    Carried {
        /// Bytes sent.
        bytes: u64,
        /// Time until the receiver had all of them, in seconds.
        seconds: f64,
    },
    /// It loads, and the transfer failed.
    Failed(Error),
    /// This kernel lacks something, or refuses.
    Unsupported(LoadError),
    /// The name is taken, which says nothing about the kernel.
    NameInUse(LoadError),
}

/// Loads `algorithm` and sends under it. Needs root.
pub fn check(algorithm: Algorithm) -> Checked {
    match Loaded::load(algorithm, &Params::defaults(algorithm)) {
        Err(error @ LoadError::AlreadyRegistered { .. }) => Checked::NameInUse(error),
        Err(error) => Checked::Unsupported(error),
        Ok(loaded) => carry(loaded.kernel_name()).unwrap_or_else(Checked::Failed),
    }
}

fn carry(kernel_name: &str) -> Result<Checked, Error> {
    let mut pair = Pair::multipath(2)?;
    pair.select(kernel_name)?;
    let done = pair.transfer(DURATION)?;
    Ok(Checked::Carried { bytes: done.bytes, seconds: done.seconds })
}
