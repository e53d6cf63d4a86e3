//! Results as every engine returns them and every reader gets them.
//!
//! An engine runs one case with one seed and returns a [`RunOutput`]: metrics, flow records, time series and
//! the work done. The command line collects these into a [`Summary`] (the JSON contract, `summary.json`), and
//! [`folder`] stores it with the flow records and the series as Parquet.
//!
//! | file of a result folder | content |
//! |---|---|
//! | `summary.json` | [`Summary`] |
//! | `flows.parquet` | one row per [`FlowRecord`], plus `case_index`, `run`, `seed` and one `set_<key>` column per swept value |
//! | `series.parquet` | one row per [`SeriesPoint`], with the same extra columns |
//!
//! What the figures mean and how they are reduced is in [`vmcc_metrics`]. A metric that was not measured is absent, never
//! zero.

#[cfg(feature = "files")]
pub mod compare;
#[cfg(feature = "files")]
pub mod figure;
#[cfg(feature = "files")]
pub mod folder;
pub mod limits;
mod output;
#[cfg(feature = "files")]
pub mod parquet_files;
mod summary;

pub use output::RunOutput;
pub use summary::{Case, ClaimResult, Environment, Needs, Run, SCHEMA_VERSION, Settings, Summary, Work};
pub use vmcc_metrics::{Dist, Extra, FlowRecord, Metrics, NameId, PathMetrics, Series, SeriesPoint};
