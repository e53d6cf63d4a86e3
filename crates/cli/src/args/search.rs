//! Arguments of `vmcc search`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use vmcc_search::{Property, Strategy};

#[derive(Debug, Args)]
pub(crate) struct SearchOptions {
    /// A built-in name (`vmcc scenarios`) or a TOML file with one case, whose endless measured connections are under test
    pub(crate) scenario: String,

    /// Property to break (repeatable): best-path, fair-share, starvation, queue, stall or livelock [default: all]
    #[arg(long = "property", value_name = "NAME", value_delimiter = ',')]
    pub(crate) properties: Vec<Property>,

    /// Simulator runs in all, also those for confirmation and shrinking
    #[arg(long, value_name = "RUNS", default_value_t = 3000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) budget: u32,

    /// Seed of the search; runs have the scenario's seeds
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Source of candidates
    #[arg(long, value_enum, default_value_t = StrategyChoice::Evolve)]
    pub(crate) strategy: StrategyChoice,

    /// Algorithm of the single TCP connections that are compared [default: reno, or dctcp where the tested one needs ECN]
    #[arg(long, value_name = "ALGORITHM")]
    pub(crate) control: Option<String>,

    /// Override a value of the scenario, or choose a case: --set cc=lia
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Add the algorithm in this C file, under the file's name (repeatable): --algorithm ./mylia.c --set cc=mylia
    #[arg(long = "algorithm", value_name = "FILE.c")]
    pub(crate) algorithms: Vec<PathBuf>,

    /// Concurrent runs; the results do not depend on it [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Option<u32>,

    /// Folder for findings, absent or empty
    /// [default: vmcc-results/<scenario>-<time>]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Print only the result, warnings and errors: no progress, no notes
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyChoice {
    /// Mutations and crossings of the worst candidates so far
    Evolve,
    /// Independent random candidates, as a comparison
    Random,
}

impl From<StrategyChoice> for Strategy {
    fn from(choice: StrategyChoice) -> Self {
        match choice {
            StrategyChoice::Evolve => Self::Evolve,
            StrategyChoice::Random => Self::Random,
        }
    }
}
