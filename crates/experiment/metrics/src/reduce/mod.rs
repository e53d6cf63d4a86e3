//! From observations to figures.
//!
//! Every metric says in the catalogue how it is reduced: [`Reduce`] over a [`Scope`], which is the part of a run that a
//! place of the result is about. Over the seeds of a case, tables show means with confidence intervals
//! ([`crate::stats::mean_ci95`]) and claims choose for themselves.

pub(crate) mod energy;
mod flows;
pub(crate) mod goodput;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod off;
pub(crate) mod ports;
pub(crate) mod probes;
pub(crate) mod rtt;
mod series;
pub(crate) mod transfers;
pub(crate) mod waiting;
pub(crate) mod windows;

use crate::catalogue::{self, Metric, Place, SIZES, range_of_size};
use crate::observed::{Answers, Class, Connection, Job, Links, Observed, Probe, Response, Sample, Subflow};
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

/// Reduction of observations to a metric.
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
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// The run.
    pub seen: &'a Observed,
    /// The connections: measured ones, or an entry's.
    pub connections: &'a [&'a Connection],
    /// The requests on them.
    pub responses: &'a [&'a Response],
    /// The probes: measured ones, or an entry's.
    pub probes: &'a [&'a Probe],
    /// An entry of traffic.
    pub entry: Option<usize>,
    /// A path.
    pub path: Option<usize>,
    /// One of the path's queues.
    pub class: Option<&'a Class>,
    /// A tier of links.
    pub tier: Option<&'a Links>,
    /// True if it is one range of sizes.
    pub by_size: bool,
}

/// Makes all figures of a run.
pub fn figures(seen: &Observed) -> Figures {
    Figures { metrics: metrics(seen), flows: flows::records(seen), series: series::build(seen) }
}

/// Connections, requests and probes of one part of the traffic.
#[derive(Debug, Clone, Default)]
struct Members<'a> {
    connections: Vec<&'a Connection>,
    responses: Vec<&'a Response>,
    probes: Vec<&'a Probe>,
}

impl<'a> Members<'a> {
    /// The transfers and requests of each range of sizes.
    fn by_size(scope: &Scope<'a>) -> Vec<Self> {
        let mut all = vec![Self::default(); SIZES.len()];
        for connection in scope.connections {
            if let Job::Transfer(bytes) = connection.job {
                all[range_of_size(bytes)].connections.push(connection);
            }
        }
        for response in scope.responses {
            all[range_of_size(response.bytes)].responses.push(response);
        }
        all
    }

    /// The members of each part: one pass over the run, however many parts there are. `part_of` names an entry's part.
    fn divided(seen: &'a Observed, parts: usize, part_of: impl Fn(usize) -> Option<usize>) -> Vec<Self> {
        let mut all = vec![Self::default(); parts];
        for connection in &seen.connections {
            if let Some(part) = part_of(connection.entry) {
                all[part].connections.push(connection);
            }
        }
        for response in &seen.responses {
            if let Some(part) = part_of(seen.connections[response.connection].entry) {
                all[part].responses.push(response);
            }
        }
        for probe in &seen.probes {
            if let Some(part) = part_of(probe.entry) {
                all[part].probes.push(probe);
            }
        }
        all
    }

    fn scope(&'a self, seen: &'a Observed, entry: Option<usize>) -> Scope<'a> {
        let Self { connections, responses, probes } = self;
        Scope {
            seen,
            connections,
            responses,
            probes,
            entry,
            path: None,
            class: None,
            tier: None,
            by_size: false,
        }
    }
}

fn metrics(seen: &Observed) -> Metrics {
    let all = |place: Place, scope: &Scope<'_>| {
        catalogue::of(place).filter_map(|metric| Some((metric, scope.reduce(metric)?))).collect::<Vec<_>>()
    };
    let measured = Members::divided(seen, 1, |entry| (!seen.entries[entry].competing).then_some(0));
    let measured = measured[0].scope(seen, None);
    let mut metrics: Metrics = typed(Map::new(), &all(Place::Run, &measured));
    metrics.paths = (0..seen.paths.len())
        .map(|path| path_metrics(&Scope { path: Some(path), ..measured }, path))
        .collect();
    for links in &seen.links {
        let Some(tier) = &links.tier else { continue };
        let scope = Scope { tier: Some(links), ..measured };
        metrics.extra.extend(extras(&format!("tier.{tier}"), &all(Place::Tier, &scope)));
    }
    for ((name, _), members) in SIZES.iter().zip(&Members::by_size(&measured)) {
        let scope = Scope { by_size: true, ..members.scope(seen, None) };
        metrics.extra.extend(extras(&format!("size.{name}"), &all(Place::Size, &scope)));
    }
    let by_entry = Members::divided(seen, seen.entries.len(), Some);
    for (index, (entry, members)) in seen.entries.iter().zip(&by_entry).enumerate() {
        let figures = all(Place::Traffic, &members.scope(seen, Some(index)));
        metrics.extra.extend(extras(&format!("traffic.{}", entry.label), &figures));
    }
    metrics
}

fn path_metrics(scope: &Scope<'_>, path: usize) -> PathMetrics {
    let of = |place: Place, scope: &Scope<'_>| {
        catalogue::of(place).filter_map(|metric| Some((metric, scope.reduce(metric)?))).collect::<Vec<_>>()
    };
    let path = &scope.seen.paths[path];
    let name = Map::from_iter([("path".to_owned(), Value::String(path.name.clone()))]);
    let mut metrics: PathMetrics = typed(name, &of(Place::Path, scope));
    for class in &path.classes {
        let scope = Scope { class: Some(class), ..*scope };
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
    /// The subflows that it is about.
    pub fn subflows(&self) -> impl Iterator<Item = (&'a Connection, &'a Subflow)> {
        let all = self.connections.iter().flat_map(|c| c.subflows.iter().map(move |s| (*c, s)));
        all.filter(|(_, subflow)| self.path.is_none_or(|path| subflow.path == Some(path)))
    }

    /// Requests that programs of its traffic counted; their sizes are not known.
    pub(crate) fn answers(&self) -> impl Iterator<Item = &'a Answers> {
        let (seen, entry, by_size) = (self.seen, self.entry, self.by_size);
        seen.answers.iter().filter(move |answers| {
            !by_size && entry.map_or(!seen.entries[answers.entry].competing, |entry| entry == answers.entry)
        })
    }

    /// True if any connection ends by itself.
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
        for connection in self.connections {
            *senders.entry(connection.sender).or_insert(0.0) += rate(connection);
        }
        senders
    }
}

#[cfg(test)]
mod tests;
