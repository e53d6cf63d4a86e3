//! A port of a virtual switch: what it is told to do ([`PortConfig`]) and what it did ([`PortStats`]).
//!
//! Only data, and the same on every machine; `vmcc-host` makes a kernel's port behave so. The vocabulary is that of
//! the scenario language, so that a scenario's virtual host and a real port are configured by the same keys.

mod config;
mod stats;

pub use config::{Backend, ClassConfig, Filter, MAX_CLASSES, PortConfig, VmBudget, VmShare};
pub use stats::{ClassStats, PortStats};
