//! What vmcc measures, said once.
//!
//! [`catalogue`] lists every metric: its name, unit, title, meaning, where it stands in a result and which engines
//! observe it. `vmcc metrics`, the table in `docs/metrics.md`, the JSON [`schema`], table headers, plot titles and the
//! names that claims may use are made from it. [`Metrics`] holds the figures of one run; [`Dist`] and [`stats`] are how
//! samples become figures.
//!
//! A metric that was not measured is absent, never zero.

pub mod catalogue;
mod dist;
mod figures;
pub mod markdown;
pub mod schema;
pub mod stats;
pub mod unit;

pub use dist::{Dist, Extra};
pub use figures::{Metrics, PathMetrics};
