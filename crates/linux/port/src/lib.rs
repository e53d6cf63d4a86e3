//! A port of a virtual switch: what it is told to do ([`PortConfig`]) and what it did ([`PortStats`]).
//!
//! Only data, and the same on every machine; `vmcc-host` makes a kernel's port behave so. The vocabulary is that of
//! the scenario language, so that a scenario's virtual host and a real port are configured by the same keys.

mod cgroup;
mod check;
mod config;
mod error;
mod file;
mod plan;
mod prometheus;
mod stats;

pub use cgroup::cgroup_folder;
pub use config::{
    Backend, ClassConfig, EcnKind, Filter, MAX_CLASSES, MAX_FILTERS, MAX_PRIORITIES, NotEct, PortConfig,
    Trust, VmBudget, VmShare,
};
pub use error::ConfigError;
pub use file::{ConfigFile, FileError, schema};
pub use plan::{ClassPlan, LINK_HEADER_BYTES, Lambda, LinkFacts, ONLY_CLASS, Plan, Rule, SharedBudget};
pub use prometheus::prometheus;
pub use stats::{ClassStats, PortStats};
