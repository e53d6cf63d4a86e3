//! Input of an engine: a scenario resolved into cases.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use vmcc_config::BadValue;

use crate::Scenario;
use crate::claim::Claim;
use crate::validate::{self, CongestionControl};

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

/// One combination of the sweep, fully typed and checked. One that is read from JSON is checked again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedCase")]
pub struct ResolvedCase {
    /// Its place in the plan, from 0.
    pub index: usize,
    /// The value of each axis of the sweep, in the sweep's order.
    pub set: IndexMap<String, Value>,
    /// The scenario to run. Its `runs` and `seed` already include the overrides.
    pub scenario: Scenario,
    /// The congestion control of each entry of traffic.
    #[serde(skip_serializing)]
    congestion_controls: Vec<Arc<CongestionControl>>,
}

/// A case as JSON has it.
#[derive(Deserialize)]
struct UncheckedCase {
    index: usize,
    set: IndexMap<String, Value>,
    scenario: Scenario,
}

impl ResolvedCase {
    /// A case, if its scenario makes sense.
    pub(crate) fn new(
        index: usize,
        set: IndexMap<String, Value>,
        scenario: Scenario,
    ) -> Result<Self, BadValue> {
        let congestion_controls = validate::check(&scenario)?;
        Ok(Self { index, set, scenario, congestion_controls })
    }

    /// The congestion control of an entry of traffic, by the entry's index; of datagrams and probes, which have none, that of hosts.
    pub fn congestion_control(&self, traffic: usize) -> &Arc<CongestionControl> {
        &self.congestion_controls[traffic]
    }
}

impl TryFrom<UncheckedCase> for ResolvedCase {
    type Error = String;

    fn try_from(case: UncheckedCase) -> Result<Self, String> {
        let UncheckedCase { index, set, scenario } = case;
        Self::new(index, set, scenario).map_err(|bad| format!("{}: {}", bad.path, bad.message))
    }
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
