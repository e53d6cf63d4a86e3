//! From observations to figures.
//!
//! Every metric says in the catalogue how it is reduced: [`Reduce`] over a [`Scope`], which is the part of a run that a
//! place of the result is about. Over the seeds of a case, tables show means with confidence intervals
//! ([`crate::stats::mean_ci95`]) and claims choose for themselves.

pub(crate) mod energy;
mod flows;
pub(crate) mod goodput;
pub(crate) mod off;
pub(crate) mod ports;
pub(crate) mod probes;
pub(crate) mod rtt;
mod series;
pub(crate) mod transfers;
pub(crate) mod waiting;
pub(crate) mod windows;

use crate::catalogue::{self, Metric, Place};
use crate::observed::{Class, Connection, Observed, Sample, Subflow};
use crate::{Dist, Extra, FlowRecord, Metrics, PathMetrics, Series};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Everything that is made of a run's observations.
#[derive(Debug)]
pub struct Figures {
    /// The figures of the run.
    pub metrics: Metrics,
    /// One record per connection and answered request.
    pub flows: Vec<FlowRecord>,
    /// Values over time.
    pub series: Series,
}

/// How a metric is reduced.
#[derive(Debug, Clone, Copy)]
pub enum Reduce {
    /// Counters of subflows, summed over those of the scope.
    Sum(fn(&Subflow) -> Option<u64>),
    /// Something else.
    By(fn(&Scope<'_>) -> Option<Figure>),
    /// Over time: the mean of the interval's samples of subflows.
    Mean(fn(&Sample) -> Option<f64>),
    /// A field of [`FlowRecord`] or a series with a rule of its own, in `reduce/flows.rs` or `reduce/series.rs`.
    There,
}

/// One figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Figure {
    /// A count.
    Count(u64),
    /// A number.
    Number(f64),
    /// A distribution.
    Dist(Dist),
}

/// The part of a run that figures are about.
#[derive(Debug)]
pub struct Scope<'a> {
    /// The run.
    pub seen: &'a Observed,
    /// The connections: measured ones, or an entry's.
    pub connections: Vec<&'a Connection>,
    /// An entry of traffic.
    pub entry: Option<usize>,
    /// A path.
    pub path: Option<usize>,
    /// One of the path's queues.
    pub class: Option<&'a Class>,
}

/// Makes all figures of a run.
pub fn figures(seen: &Observed) -> Figures {
    Figures { metrics: metrics(seen), flows: flows::records(seen), series: series::build(seen) }
}

fn metrics(seen: &Observed) -> Metrics {
    let all = |place: Place, scope: &Scope<'_>| {
        catalogue::of(place).filter_map(|metric| Some((metric, scope.reduce(metric)?))).collect::<Vec<_>>()
    };
    let measured = Scope::measured(seen);
    let mut metrics: Metrics = typed(Map::new(), &all(Place::Run, &measured));
    metrics.paths = (0..seen.paths.len()).map(|path| path_metrics(seen, path)).collect();
    for (index, entry) in seen.entries.iter().enumerate() {
        let figures = all(Place::Traffic, &Scope::entry(seen, index));
        metrics.extra.extend(extras(&format!("traffic.{}", entry.label), &figures));
    }
    metrics
}

fn path_metrics(seen: &Observed, path: usize) -> PathMetrics {
    let of = |place: Place, scope: &Scope<'_>| {
        catalogue::of(place).filter_map(|metric| Some((metric, scope.reduce(metric)?))).collect::<Vec<_>>()
    };
    let name = Map::from_iter([("path".to_owned(), Value::String(seen.paths[path].name.clone()))]);
    let mut metrics: PathMetrics = typed(name, &of(Place::Path, &Scope::path(seen, path)));
    for class in &seen.paths[path].classes {
        let scope = Scope { class: Some(class), ..Scope::path(seen, path) };
        metrics.extra.extend(extras(&format!("class.{}", class.name), &of(Place::Class, &scope)));
    }
    metrics
}

type Named = (&'static Metric, Figure);

/// Figures in the fields of their names; those that have none are extras.
fn typed<T: DeserializeOwned>(mut fields: Map<String, Value>, figures: &[Named]) -> T {
    let one = |(metric, figure): &Named| Some((metric.name.to_owned(), serde_json::to_value(figure).ok()?));
    fields.extend(figures.iter().filter_map(one));
    serde_json::from_value(Value::Object(fields)).expect("every entry's kind is the type of its field")
}

/// Figures under a name that the scenario gives.
fn extras<'a>(prefix: &str, figures: &'a [Named]) -> impl Iterator<Item = (String, Extra)> + use<'a> {
    let prefix = prefix.to_owned();
    figures.iter().map(move |(metric, figure)| {
        let value = match *figure {
            Figure::Count(count) => Extra::Number(count as f64),
            Figure::Number(number) => Extra::Number(number),
            Figure::Dist(dist) => Extra::Dist(dist),
        };
        (format!("{prefix}.{}", metric.name), value)
    })
}

impl<'a> Scope<'a> {
    /// All measured traffic.
    pub fn measured(seen: &'a Observed) -> Self {
        let connections = seen.connections.iter().filter(|c| !seen.entries[c.entry].competing).collect();
        Self { seen, connections, entry: None, path: None, class: None }
    }

    fn entry(seen: &'a Observed, entry: usize) -> Self {
        let connections = seen.connections.iter().filter(|c| c.entry == entry).collect();
        Self { entry: Some(entry), connections, ..Self::measured(seen) }
    }

    fn path(seen: &'a Observed, path: usize) -> Self {
        Self { path: Some(path), ..Self::measured(seen) }
    }

    /// The subflows that it is about.
    pub fn subflows(&self) -> impl Iterator<Item = (&'a Connection, &'a Subflow)> {
        let all = self.connections.iter().flat_map(|c| c.subflows.iter().map(move |s| (*c, s)));
        all.filter(|(_, subflow)| self.path.is_none_or(|path| subflow.path == Some(path)))
    }

    /// Whether connections end by themselves.
    pub(crate) fn any_finite(&self) -> bool {
        self.connections.iter().any(|connection| !connection.endless())
    }

    fn reduce(&self, metric: &Metric) -> Option<Figure> {
        match metric.reduce {
            Reduce::Sum(counter) => self.sum(counter).map(Figure::Count),
            Reduce::By(by) => by(self),
            Reduce::Mean(_) | Reduce::There => None,
        }
    }

    /// The sum over subflows; `None` if one of them was not counted, or nothing is there to count.
    pub(crate) fn sum(&self, counter: fn(&Subflow) -> Option<u64>) -> Option<u64> {
        // A path that no measured connection uses has counted nothing; a run without connections has no counters.
        if self.connections.is_empty() && self.path.is_none() {
            return None;
        }
        self.subflows().map(|(_, subflow)| counter(subflow)).sum()
    }

    /// By host that sends.
    pub(crate) fn by_sender(&self, rate: impl Fn(&Connection) -> f64) -> BTreeMap<usize, f64> {
        let mut senders = BTreeMap::new();
        for connection in self.connections.iter() {
            *senders.entry(connection.sender).or_insert(0.0) += rate(connection);
        }
        senders
    }
}

#[cfg(test)]
mod tests;
