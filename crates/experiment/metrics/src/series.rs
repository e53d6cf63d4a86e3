//! Values over time.

use indexmap::IndexSet;
use serde::{Deserialize, Serialize};
use std::ops::Range;

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
    /// Sampled object: a path, a queue, a flow.
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

    /// True if there is no sample.
    pub fn is_empty(&self) -> bool {
        self.t_us.is_empty()
    }

    /// All samples, in the order they were appended.
    pub fn iter(&self) -> impl Iterator<Item = SeriesPoint<'_>> {
        self.range(0..self.len())
    }

    /// The samples with these indices, which must exist.
    pub fn range(&self, indices: Range<usize>) -> impl Iterator<Item = SeriesPoint<'_>> {
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
