//! The JSON contract: `summary.json`, and what `--json` prints.

use crate::Metrics;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Value of [`Summary::schema`]. Changes when a key changes meaning or goes; new keys may appear without.
pub const SCHEMA_VERSION: u32 = 1;

/// The values that make one case differ from the others: swept keys and overrides, in the scenario's order.
pub type Settings = IndexMap<String, Value>;

/// Everything a run of a scenario measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SCHEMA_VERSION`].
    pub schema: u32,
    /// Name of the scenario: a built-in's name or the file's stem.
    pub scenario: String,
    /// The scenario's title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Key of the document the scenario comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// `sim`, `kernel` or `guest`.
    pub engine: String,
    /// Machine of the run, and the command that repeats it.
    pub environment: Environment,
    /// Every case, in the order of the sweep.
    pub cases: Vec<Case>,
    /// Every claim of the scenario, checked.
    #[serde(default)]
    pub claims: Vec<ClaimResult>,
    /// Cost of all runs together.
    pub work: Work,
    /// Warnings that readers of the figures must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Machine of a summary, and the command that repeats it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Environment {
    /// Version of vmcc.
    pub vmcc: String,
    /// Operating system and architecture, as `linux x86_64`.
    pub os: String,
    /// Release of the kernel that carried the traffic (kernel and guest engines) or ran the simulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Processor model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Processors available to the run.
    pub cpus: u32,
    /// The command that repeats the run, with the seed spelled out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Start of the run, RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// Further facts: module versions, virtual switch, qdiscs.
    #[serde(flatten)]
    pub extra: IndexMap<String, Value>,
}

/// One combination of swept values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Settings of this case.
    pub set: Settings,
    /// The warm-up, in microseconds from the start of each run: figures are of what comes after it.
    #[serde(default)]
    pub warmup_us: u64,
    /// Its runs, by ascending seed.
    pub runs: Vec<Run>,
}

/// One run of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Seed of every random stream of the run.
    pub seed: u64,
    /// Measured figures.
    pub metrics: Metrics,
}

/// A claim and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimResult {
    /// Name of the claim in the scenario.
    pub id: String,
    /// The expression that was evaluated.
    pub check: String,
    /// The number printed in the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
    /// Our number: the left side of a comparison. Absent when it could not be evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Half the width of the 95 % confidence interval (Student's t) of `value` over the seeds: each seed's runs give a value
    /// of their own. Absent with one seed, or where one seed alone has no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// The figure whose unit `value` has. Absent when it is computed from several, or a pure number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Comparison for `value`, in the same unit. Absent when the check is more than one comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Needs>,
    /// The expression holds.
    pub pass: bool,
    /// It needs a figure that only some machines measure, and this one did not: then it neither holds nor fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmeasured: bool,
    /// Reason why it could not be evaluated, or further information for the reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Reason of the failure, as far as known. Absent when it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analysis: Option<String>,
}

impl ClaimResult {
    /// Returns true if it was judged and does not hold.
    pub fn fails(&self) -> bool {
        !self.pass && !self.unmeasured
    }

    /// Number of claims that hold, and of those that were judged.
    pub fn tally<'a>(claims: impl IntoIterator<Item = &'a Self>) -> (usize, usize) {
        let judged = claims.into_iter().filter(|claim| !claim.unmeasured);
        judged.fold((0, 0), |(hold, all), claim| (hold + usize::from(claim.pass), all + 1))
    }
}

/// The right side of a claim's comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Needs {
    /// `<`, `>`, `<=`, `>=`, `==` or `!=`.
    pub relation: String,
    /// The value.
    pub value: f64,
}

/// Cost of a run. Absent when the engine cannot tell.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Work {
    /// Link traversals by data and ACK packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_hops: Option<u64>,
    /// Events the simulator processed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// CPU time of the engine, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// Largest resident set, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_rss_bytes: Option<u64>,
}

impl Work {
    /// Work of two runs together: counts and times add, the resident set is the larger of the two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            packet_hops: either(self.packet_hops, other.packet_hops, |a, b| a.saturating_add(b)),
            events: either(self.events, other.events, |a, b| a.saturating_add(b)),
            cpu_s: either(self.cpu_s, other.cpu_s, |a, b| a + b),
            peak_rss_bytes: either(self.peak_rss_bytes, other.peak_rss_bytes, u64::max),
        }
    }
}

fn either<T>(a: Option<T>, b: Option<T>, join: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(join(a, b)),
        (a, None) => a,
        (None, b) => b,
    }
}
