//! Benchmarks and checks of the kernel programs on this kernel: traffic over unshaped paths between two
//! namespaces, without a scenario.
//!
//! | | |
//! |---|---|
//! | [`algorithms`] | nanoseconds per callback, goodput beside the kernel's own Reno |
//! | [`port`] | how exact rates and shares of a port are, what it costs per packet |
//! | [`IdleConnections`] | many connections that are open |
//! | [`check`](check()) | whether an algorithm loads and carries a transfer whole |

mod check;
mod flood;
mod idle_connections;
mod pair;
pub mod port;
mod transfer;

pub use check::{Checked, check};
pub use idle_connections::IdleConnections;

use pair::Pair;
use std::time::Duration;
use vmcc_bpf::bench::{self, AlgorithmBench, BenchError, BenchOptions, Traffic, TrafficError};
use vmcc_cc::Algorithm;

/// Longer than the kernel's shortest retransmission timeout: what overshoots in slow start is over by then.
const WARMUP: Duration = Duration::from_millis(250);

/// MPTCP over unshaped veth pairs; a network per number of subflows.
#[derive(Default)]
struct Networks(Vec<Pair>);

impl Traffic for Networks {
    fn transfer(
        &mut self,
        kernel_name: &str,
        subflows: usize,
        duration: Duration,
    ) -> Result<f64, TrafficError> {
        let found = self.0.iter().position(|network| network.paths() == subflows);
        let index = match found {
            Some(index) => index,
            None => {
                self.0.push(Pair::multipath(subflows)?);
                self.0.len() - 1
            }
        };
        let network = &mut self.0[index];
        network.select(kernel_name)?;
        Ok(network.throughput(WARMUP, duration)?)
    }
}

/// Measures one algorithm after the other; `progress` hears what is next. Needs root.
///
/// # Errors
/// An algorithm does not load, a transfer fails, or the kernel keeps no statistics.
pub fn algorithms(
    algorithms: Vec<Algorithm>,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<AlgorithmBench>, BenchError> {
    let wanted = BenchOptions { algorithms, ..BenchOptions::default() };
    bench::run(&wanted, &mut Networks::default(), progress)
}
