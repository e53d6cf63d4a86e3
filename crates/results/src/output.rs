//! What an engine hands back for one case and one seed.

use crate::{Metrics, Work};
use indexmap::IndexSet;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Everything one run produced.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunOutput {
    /// The figures of the run.
    pub metrics: Metrics,
    /// One record per connection or transfer.
    pub flows: Vec<FlowRecord>,
    /// Sampled values over time.
    pub series: Series,
    /// What the run cost.
    pub work: Work,
    /// What the reader of the figures must know (for example a source that could not be read).
    pub warnings: Vec<String>,
}

/// One connection or transfer. Requests of one connection have a record each beside the connection's, under its number.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Number of the flow in its run, from 0.
    pub flow: u64,
    /// Label of the traffic entry it belongs to.
    pub traffic: String,
    /// Name of the sending node.
    pub from: String,
    /// Name of the receiving node.
    pub to: String,
    /// Congestion control algorithm.
    pub cc: String,
    /// Subflows that were established.
    pub subflows: u32,
    /// Start, microseconds from the start of the run.
    pub start_us: u64,
    /// End, microseconds from the start of the run; `None` when still open at the end.
    pub end_us: Option<u64>,
    /// Bytes to transfer; `None` for unlimited flows.
    pub size_bytes: Option<u64>,
    /// Bytes delivered in order to the receiving application.
    pub delivered_bytes: u64,
    /// Whether a sized transfer completed.
    pub completed: bool,
    /// Whether the figures of the summary count it: not competing, and if it ends by itself, begun after the warm-up.
    #[serde(default)]
    pub measured: bool,
    /// Delivered bytes times 8 per second: of an endless flow within the measured window, else over its life.
    pub goodput_bps: Option<f64>,
    /// Completion time of a completed sized transfer, in microseconds.
    pub fct_us: Option<f64>,
    /// Mean round-trip time, in microseconds.
    pub rtt_mean_us: Option<f64>,
    /// Median round-trip time, in microseconds.
    pub rtt_p50_us: Option<f64>,
    /// 99th percentile of the round-trip time, in microseconds.
    pub rtt_p99_us: Option<f64>,
    /// Segments sent again.
    pub retransmits: Option<u64>,
    /// Retransmission timeouts.
    pub timeouts: Option<u64>,
    /// Packets that arrived with congestion experienced.
    pub ce_marks: Option<u64>,
}

/// Time series, stored as columns. Names are stored once and referred to by [`NameId`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Series {
    names: IndexSet<String>,
    t_us: Vec<u64>,
    entity: Vec<NameId>,
    metric: Vec<NameId>,
    value: Vec<f64>,
}

/// A name interned in a [`Series`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NameId(u32);

/// One sample of a [`Series`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeriesPoint<'a> {
    /// Microseconds from the start of the run.
    pub t_us: u64,
    /// What was sampled: a path, a queue, a flow.
    pub entity: &'a str,
    /// Which of its values, with the unit in the name (`cwnd_pkt`, `queue_bytes`, `goodput_bps`).
    pub metric: &'a str,
    /// The value.
    pub value: f64,
}

impl Series {
    /// The id of `name`, to be used in [`Series::push`]; calling it again gives the same id.
    pub fn name(&mut self, name: &str) -> NameId {
        let index = match self.names.get_index_of(name) {
            Some(index) => index,
            None => self.names.insert_full(name.to_owned()).0,
        };
        NameId(index as u32)
    }

    /// Appends a sample. `entity` and `metric` come from [`Series::name`] of this series.
    pub fn push(&mut self, t_us: u64, entity: NameId, metric: NameId, value: f64) {
        self.t_us.push(t_us);
        self.entity.push(entity);
        self.metric.push(metric);
        self.value.push(value);
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.t_us.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.t_us.is_empty()
    }

    /// All samples, in the order they were appended.
    pub fn iter(&self) -> impl Iterator<Item = SeriesPoint<'_>> {
        self.range(0..self.len())
    }

    /// The samples with these indices, which must exist.
    pub(crate) fn range(&self, indices: Range<usize>) -> impl Iterator<Item = SeriesPoint<'_>> {
        indices.map(|i| SeriesPoint {
            t_us: self.t_us[i],
            entity: self.resolve(self.entity[i]),
            metric: self.resolve(self.metric[i]),
            value: self.value[i],
        })
    }

    /// Ids come from `name`, or from a file: an id that no name has reads as empty.
    fn resolve(&self, id: NameId) -> &str {
        self.names.get_index(id.0 as usize).map_or("", String::as_str)
    }
}
