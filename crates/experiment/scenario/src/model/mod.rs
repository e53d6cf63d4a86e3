//! The typed scenario: what the TOML says, with every default filled in.

mod event;
mod host;
mod names;
mod one_or_many;
mod traffic;

pub use event::{
    DelayEvent, DescheduleEvent, Event, EventKind, First, LinkEvent, LossEvent, RateEvent, RemapEvent,
    SubflowEvent, ThrottleEvent,
};
pub use host::{Host, Param, Protocol};
pub use one_or_many::OneOrMany;
pub use traffic::{
    Bulk, Common, CongestionGenerator, FileProgram, FlowList, Incast, ListedFlow, ObjectProgram, OnOffUdp,
    Pairing, Poisson, Probe, RequestProgram, RequestResponse, SizeDist, SizePoint, Sized, Traffic,
    TrafficKind,
};

pub use vmcc_multipath::{AckPath, Coupling, Scheduler};
pub use vmcc_network::{
    Discipline, Dumbbell, FatTree, Graph, GraphLink, LambdaRule, LinkSettings, Loss, Marking, ParallelPaths,
    PathSpec, Paths, Queue, RedRule, Reverse, Route, Routing, Share, ThresholdRule, Topology, TwoPod,
    VirtualHost, path_name,
};

pub(crate) use names::matching;
pub(crate) use vmcc_config::tagged::{Tagged, property_names};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmcc_units::Nanos;

/// One experiment: a network, the hosts' settings, the traffic, and what happens when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Subject of the scenario, in one line.
    pub title: String,
    /// The published figure or table it reproduces, such as `vmcc-fig9`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// More about it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Duration of a run.
    pub duration: Nanos,
    /// The first part of a run, left out of rates, RTTs and fairness.
    #[serde(default)]
    pub warmup: Nanos,
    /// Runs per case, with seeds `seed`, `seed + 1`, ...
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10000))]
    pub runs: u32,
    /// The first seed.
    #[serde(default = "one_u64")]
    pub seed: u64,
    /// The interval of time series. Absent: 100ms, or a twentieth of the duration if that is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Nanos>,
    /// Settings of every host; a traffic entry may set its own.
    #[serde(default)]
    pub host: Host,
    /// The network.
    pub topology: Topology,
    /// Entries of traffic.
    pub traffic: Vec<Traffic>,
    /// Events during the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event: Vec<Event>,
}

fn one() -> u32 {
    1
}

fn one_u64() -> u64 {
    1
}

/// The interval of time series, at most.
const DEFAULT_INTERVAL: Nanos = Nanos::from_millis(100);
/// Values of a time series, at least.
const MIN_SAMPLES: u64 = 20;

impl Scenario {
    /// The interval of time series.
    pub fn interval(&self) -> Nanos {
        let short = Nanos::new((self.duration.get() / MIN_SAMPLES).max(1));
        self.interval.unwrap_or(short.min(DEFAULT_INTERVAL))
    }
}

/// An expectation over the results, checked after all runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimSpec {
    /// A short name, unique in the file.
    pub id: String,
    /// The published value, as the source words it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
    /// The expression that must hold, such as
    /// `mean(goodput_bps, cc='vmcc') >= 1.03 * mean(goodput_bps, cc='lia')`.
    pub check: String,
    /// Reason for the tolerance, or another remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Known cause of failure here; reports print it beside a failed claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analysis: Option<String>,
    /// The same of real kernels, where the reason is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_analysis: Option<String>,
}
