//! Congestion windows, and what LIA makes of them.

use super::{Figure, Scope};
use crate::Dist;
use crate::observed::{Connection, Moment, Sample};
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
