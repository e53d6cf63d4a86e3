//! Result of an engine for one case and one seed.

use crate::{FlowRecord, Metrics, Series, Work};
use serde::{Deserialize, Serialize};
use vmcc_metrics::Figures;

/// Everything one run produced.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunOutput {
    /// The figures of the run.
    pub metrics: Metrics,
    /// One record per connection or transfer.
    pub flows: Vec<FlowRecord>,
    /// Sampled values over time.
    pub series: Series,
    /// Cost of the run.
    pub work: Work,
    /// Warnings that readers of the figures must know (for example a source that could not be read).
    pub warnings: Vec<String>,
}

impl RunOutput {
    /// The figures of a run, and what else its engine says.
    pub fn new(figures: Figures, work: Work, warnings: Vec<String>) -> Self {
        let Figures { metrics, flows, series } = figures;
        Self { metrics, flows, series, work, warnings }
    }
}
