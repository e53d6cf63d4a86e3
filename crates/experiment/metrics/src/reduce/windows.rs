//! Congestion windows, what LIA makes of them, and when they are reduced.

use super::{Figure, Scope};
use crate::Dist;
use crate::observed::{Connection, Moment, Sample, Subflow};
use std::collections::BTreeMap;

/// Windows at equal intervals, of every subflow that knows its round-trip time.
pub(crate) fn of(scope: &Scope<'_>) -> Option<Figure> {
    let samples = scope.subflows().flat_map(|(_, subflow)| &subflow.samples);
    let seen = samples.filter(|sample| sample.srtt_8us > 0 && scope.seen.in_window(sample.at));
    Dist::from_samples(&mut seen.map(|sample| f64::from(sample.cwnd_pkt)).collect::<Vec<_>>())
        .map(Figure::Dist)
}

/// RFC 6356's alpha at equal intervals, of connections with several subflows.
pub(crate) fn coupling(scope: &Scope<'_>) -> Option<Figure> {
    let several = scope.connections.iter().filter(|connection| connection.subflows.len() > 1);
    let moments = several.flat_map(|connection| by_time(connection).into_iter());
    let seen = moments.filter(|(at, samples)| samples.len() > 1 && scope.seen.in_window(*at));
    Dist::from_samples(&mut seen.map(|(_, samples)| alpha(&samples)).collect::<Vec<_>>()).map(Figure::Dist)
}

fn by_time(connection: &Connection) -> BTreeMap<Moment, Vec<&Sample>> {
    let mut all = BTreeMap::<_, Vec<_>>::new();
    let samples = connection.subflows.iter().flat_map(|subflow| &subflow.samples);
    for sample in samples.filter(|sample| sample.srtt_8us > 0) {
        all.entry(sample.at).or_default().push(sample);
    }
    all
}

fn alpha(samples: &[&Sample]) -> f64 {
    let paths = || samples.iter().map(|sample| (f64::from(sample.cwnd_pkt), f64::from(sample.srtt_8us)));
    let total: f64 = paths().map(|(w, _)| w).sum();
    let best = paths().map(|(w, t)| w / (t * t)).fold(0.0, f64::max);
    let rate: f64 = paths().map(|(w, t)| w / t).sum();
    total * best / (rate * rate)
}

/// Times between reductions of sibling paths: a share of matches within an interval is this distribution's value there.
pub(crate) fn gaps(scope: &Scope<'_>) -> Option<Figure> {
    let mut all = Vec::new();
    for connection in scope.connections {
        let times: Vec<Vec<Moment>> =
            connection.subflows.iter().map(|subflow| reductions(scope, subflow)).collect();
        for (first, one) in times.iter().enumerate() {
            for other in &times[first + 1..] {
                let (fewer, more) = if one.len() <= other.len() { (one, other) } else { (other, one) };
                all.extend(fewer.iter().filter_map(|&at| nearest_us(at, more)));
            }
        }
    }
    Dist::from_samples(&mut all).map(Figure::Dist)
}

fn reductions(scope: &Scope<'_>, subflow: &Subflow) -> Vec<Moment> {
    subflow.reductions.iter().copied().filter(|&at| scope.seen.in_window(at)).collect()
}

/// From a moment to the nearest of others, which are in order.
fn nearest_us(at: Moment, others: &[Moment]) -> Option<f64> {
    let later = others.partition_point(|&other| other < at);
    let apart = |other: &Moment| other.us_since(at).max(at.us_since(*other));
    others[later.saturating_sub(1)..].iter().take(2).map(apart).reduce(f64::min)
}
