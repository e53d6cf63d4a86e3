//! Arguments of `vmcc reproduce`.

use super::EngineChoice;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ReproduceOptions {
    /// A paper (vmcc) or one of its figures (vmcc/fig9) [default: list all with their state]
    #[arg(value_name = "PAPER[/FIGURE]")]
    pub(crate) what: Option<String>,

    /// Engine that carries the traffic; `kernel` and `guest` run each figure with its [scale.small]
    #[arg(long, value_enum, default_value_t = ReproduceEngine::Sim)]
    pub(crate) engine: ReproduceEngine,

    /// At most five minutes for a paper: each figure with its [scale.quick]; on a kernel, one run of each case
    #[arg(long)]
    pub(crate) quick: bool,

    /// Result folder, with one folder per figure and engine; existing results are refused [default: vmcc-results/reproduce-<what>-<time>; of the list: none]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Print the claims in --out as a Markdown table: figure, claim, paper, simulator, kernel
    #[arg(long, requires = "out", conflicts_with_all = ["resume", "quick", "jobs"])]
    pub(crate) table: bool,

    /// Continue an interrupted run in the same --out; finished figures are kept
    #[arg(long, requires_all = ["out", "what"])]
    pub(crate) resume: bool,

    /// Concurrent runs (simulator only) [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Option<u32>,

    /// Print only the result, warnings and errors: no progress, no notes
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReproduceEngine {
    /// The packet-level simulator
    Sim,
    /// This host's kernel, in network namespaces (root)
    Kernel,
    /// A kernel in a small virtual machine
    Guest,
}

impl ReproduceEngine {
    pub(crate) const ALL: [Self; 3] = [Self::Sim, Self::Kernel, Self::Guest];

    /// As options and results name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Kernel => "kernel",
            Self::Guest => "guest",
        }
    }

    pub(crate) fn choice(self) -> EngineChoice {
        match self {
            Self::Sim => EngineChoice::Sim,
            Self::Kernel => EngineChoice::Kernel,
            Self::Guest => EngineChoice::Guest,
        }
    }
}
