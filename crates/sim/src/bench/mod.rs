//! Named speed cases, and the measurement of work done per CPU second.
//!
//! The only place of this crate that looks at a clock: it measures the simulator, nothing simulated.

mod cases;
mod fixed;
mod measure;
#[cfg(test)]
mod tests;

pub use cases::{CASES, Case, Load, Shape};
pub use measure::Measurement;

use crate::build::FabricError;
use crate::error::HostError;
use crate::net::NetError;

/// Error of a benchmark case that cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// No case of this name.
    #[error("there is no benchmark case {0:?}; the cases are: {known}", known = CASES.map(|c| c.name).join(", "))]
    UnknownCase(String),
    /// Unusable number of threads.
    #[error("{0} threads cannot be used; choose 1 to 8")]
    Threads(u32),
    /// An algorithm of the case is not in the registry.
    #[error(transparent)]
    Algorithm(#[from] vmcc_cc::UnknownAlgorithm),
    /// The network was refused.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The hosts were refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The tree was refused.
    #[error(transparent)]
    Network(#[from] FabricError),
}

/// Builds a case and measures its run on `threads` threads; building is not measured.
///
/// # Errors
/// [`BenchError`]; none for a case of [`CASES`] and 1 to 8 threads.
pub fn run(case: &Case, threads: u32) -> Result<Measurement, BenchError> {
    if !(1..=8).contains(&threads) {
        return Err(BenchError::Threads(threads));
    }
    measure::reset_peak_rss();
    let mut built = case.build(threads)?;
    let measured = measure::measure(|| built.run());
    Ok(Measurement { utilization: built.utilization(), ..measured })
}
