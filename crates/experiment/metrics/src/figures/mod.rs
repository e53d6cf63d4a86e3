//! Figures of a run: every metric of the catalogue over the parts of the run that it is about.
//!
//! Over the seeds of a case, tables show means with confidence intervals ([`crate::stats::mean_ci95`]) and claims choose
//! for themselves.

mod flows;
mod series;

use crate::catalogue::{self, Metric, Place, SIZES, range_of_size};
use crate::observed::{Connection, Job, Observed, Probe, Response};
use crate::reduce::{Figure, Scope};
use crate::{Extra, FlowRecord, Metrics, PathMetrics, Series};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

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
    let measured = Members::divided(seen, 1, |entry| (!seen.entries[entry].competing).then_some(0));
    let measured = measured[0].scope(seen, None);
    let mut metrics: Metrics = typed(Map::new(), &figures_of(Place::Run, &measured));
    metrics.paths = (0..seen.paths.len())
        .map(|path| path_metrics(&Scope { path: Some(path), ..measured }, path))
        .collect();
    for links in &seen.links {
        let Some(tier) = &links.tier else { continue };
        let scope = Scope { tier: Some(links), ..measured };
        metrics.extra.extend(extras(&format!("tier.{tier}"), &figures_of(Place::Tier, &scope)));
    }
    for ((name, _), members) in SIZES.iter().zip(&Members::by_size(&measured)) {
        let scope = Scope { by_size: true, ..members.scope(seen, None) };
        metrics.extra.extend(extras(&format!("size.{name}"), &figures_of(Place::Size, &scope)));
    }
    let by_entry = Members::divided(seen, seen.entries.len(), Some);
    for (index, (entry, members)) in seen.entries.iter().zip(&by_entry).enumerate() {
        let figures = figures_of(Place::Traffic, &members.scope(seen, Some(index)));
        metrics.extra.extend(extras(&format!("traffic.{}", entry.label), &figures));
    }
    metrics
}

fn path_metrics(scope: &Scope<'_>, path: usize) -> PathMetrics {
    let path = &scope.seen.paths[path];
    let name = Map::from_iter([("path".to_owned(), Value::String(path.name.clone()))]);
    let mut metrics: PathMetrics = typed(name, &figures_of(Place::Path, scope));
    for class in &path.classes {
        let scope = Scope { class: Some(class), ..*scope };
        metrics.extra.extend(extras(&format!("class.{}", class.name), &figures_of(Place::Class, &scope)));
    }
    metrics
}

type Named = (&'static Metric, Figure);

/// Every metric of a place that has a figure.
fn figures_of(place: Place, scope: &Scope<'_>) -> Vec<Named> {
    catalogue::of(place).filter_map(|metric| Some((metric, scope.reduce(metric.reduce)?))).collect()
}

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

#[cfg(test)]
mod tests;
