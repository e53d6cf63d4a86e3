//! `vmcc bench`: the speed of an engine, with the work that was done.

#[cfg(feature = "kernel")]
mod connections;
#[cfg(feature = "kernel")]
mod kernel;
#[cfg(feature = "kernel")]
mod port;
mod sim;

#[cfg(not(feature = "kernel"))]
use super::absent::{bench_kernel, bench_port};
use crate::args::{BenchOptions, BenchTarget};
use crate::failure::{Exit, Failure};
use crate::ui::Ui;
#[cfg(feature = "kernel")]
use {kernel::bench as bench_kernel, port::bench as bench_port};

pub(crate) fn bench(options: &BenchOptions, ui: &Ui) -> Result<Exit, Failure> {
    if options.connections.is_some() && options.target != BenchTarget::Kernel {
        return Err(Failure::usage("--connections is for `vmcc bench kernel`"));
    }
    match options.target {
        BenchTarget::Sim => sim::bench(options, ui),
        BenchTarget::Kernel => bench_kernel(options, ui),
        BenchTarget::Port => bench_port(options, ui),
    }
}
