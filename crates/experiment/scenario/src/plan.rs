//! Input of an engine: a scenario resolved into cases.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Scenario;
use crate::claim::Claim;

/// The size at which a scenario is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// As written.
    #[default]
    Full,
    /// With the overrides of `[scale.small]`.
    Small,
    /// With the overrides of `[scale.quick]`.
    Quick,
}

impl Scale {
    /// Every scale that a file may describe.
    pub(crate) const NAMES: [&str; 2] = ["small", "quick"];

    /// Its table in `[scale]`; `None` for the file as written.
    pub(crate) const fn name(self) -> Option<&'static str> {
        match self {
            Self::Full => None,
            Self::Small => Some("small"),
            Self::Quick => Some("quick"),
        }
    }
}

/// Overrides from the command line.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `key=value` texts; a comma list of values becomes an axis of the sweep.
    pub set: Vec<String>,
    /// The size.
    pub scale: Scale,
    /// The first seed instead of the scenario's.
    pub seed: Option<u64>,
    /// Runs per case instead of the scenario's.
    pub runs: Option<u32>,
}

/// One combination of the sweep, fully typed and checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedCase {
    /// Its place in the plan, from 0.
    pub index: usize,
    /// The value of each axis of the sweep, in the sweep's order.
    pub set: IndexMap<String, Value>,
    /// The scenario to run. Its `runs` and `seed` already include the overrides.
    pub scenario: Scenario,
}

/// Everything a run of a scenario needs.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The scenario's name: a built-in name or the file's name without its ending.
    pub name: String,
    /// The scenario's title.
    pub title: String,
    /// The published figure it reproduces.
    pub source: Option<String>,
    /// Runs per case.
    pub runs: u32,
    /// The first seed; run r of every case has seed `seed + r`.
    pub seed: u64,
    /// The cases, in the order of the sweep (the last axis varies fastest).
    pub cases: Vec<ResolvedCase>,
    /// The claims to check after all runs.
    pub claims: Vec<Claim>,
    /// Claims that compare cases which an override took out of the sweep: neither true nor false.
    pub not_applicable: Vec<Claim>,
}
