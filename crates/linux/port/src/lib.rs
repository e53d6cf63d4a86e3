//! A port of a virtual switch: its configuration ([`PortConfig`]) and its counters ([`PortStats`]).
//!
//! The configuration, its [`Plan`] and the statistics are data, the same on every machine. With the feature `kernel` the crate
//! serves ports of this host ([`Port`]). The vocabulary is that of the scenario language, so that a scenario's virtual host and a
//! real port are configured by the same keys.

mod cgroup;
mod check;
mod config;
mod error;
mod file;
mod plan;
mod prometheus;
mod resolve;
#[cfg(feature = "kernel")]
mod serve;
mod stats;

pub use cgroup::cgroup_folder;
pub use config::{
    Backend, ClassConfig, EcnKind, Filter, MAX_CLASSES, MAX_FILTERS, MAX_PRIORITIES, NotEct, PortConfig,
    Trust, VmBudget, VmShare,
};
pub use error::ConfigError;
pub use file::{ConfigFile, FileError, schema};
pub use plan::{ClassPlan, LINK_HEADER_BYTES, Lambda, LinkFacts, NO_RIGHT, ONLY_CLASS, Plan, Rule};
pub use prometheus::prometheus;
#[cfg(feature = "kernel")]
pub use serve::{
    Port, PortError, RunTime, RunTimes, Serving, attached, detach_orphans, forget_gone, peek, probe,
    remove_unused_budgets, settings, unused_budgets, usable,
};
pub use stats::{ClassStats, PortStats};
