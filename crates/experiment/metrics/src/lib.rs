//! Metrics of vmcc, each defined once.
//!
//! [`catalogue`] lists every metric: its name, unit, title, meaning, where it stands in a result and which engines
//! observe it. `vmcc metrics`, the table in `docs/reference/metrics.md`, the JSON [`schema`], table headers, plot titles and the
//! names that claims may use are made from it. An engine returns what it [`observed`]; [`figures()`] makes of that the
//! [`Metrics`] of the run, a [`FlowRecord`] per connection and a [`Series`] over time, with [`Dist`] and [`stats`].
//!
//! A metric that was not measured is absent, never zero.

pub mod catalogue;
mod dist;
mod figures;
mod flow;
pub mod markdown;
mod metrics;
pub mod observed;
pub mod reduce;
pub mod schema;
mod series;
pub mod stats;
pub mod unit;

pub use dist::{Dist, Extra};
pub use figures::{Figures, figures};
pub use flow::{FlowKind, FlowRecord};
pub use metrics::{Metrics, PathMetrics};
pub use series::{NameId, Series, SeriesPoint};
