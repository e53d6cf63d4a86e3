//! Arguments of `vmcc compare`.

use clap::Args;
use std::path::PathBuf;
use vmcc_results::compare::Condition;

#[derive(Debug, Args)]
pub(crate) struct CompareOptions {
    /// Result folder to compare with
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,

    /// Result folder whose differences are shown
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,

    /// Exit with 1 if the difference of a metric is beyond a limit in some case, with its whole confidence interval:
    /// 'goodput < -2%' (of BEFORE), 'rtt.p99 > 500' (in the metric's unit); may be given several times
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<Condition>,
}
