//! Round-trip times.

use super::{Figure, Scope};
use crate::Dist;
use crate::observed::{Connection, Observed, Subflow};
use std::collections::BTreeSet;

/// Smoothed RTTs at equal intervals; for short transfers, which such samples would miss, every sample.
pub(crate) fn of(scope: &Scope<'_>) -> Option<Figure> {
    if scope.path.is_some() {
        let subflows = scope.subflows().map(|(_, subflow)| subflow);
        return Dist::from_samples(&mut smoothed(scope.seen, subflows)).map(Figure::Dist);
    }
    dist(scope.seen, scope.connections.iter().copied()).map(Figure::Dist)
}

pub(crate) fn dist<'a>(
    seen: &Observed,
    connections: impl Iterator<Item = &'a Connection> + Clone,
) -> Option<Dist> {
    let mut endless = connections.clone().filter(|connection| connection.endless()).peekable();
    if endless.peek().is_some() {
        return Dist::from_samples(&mut smoothed(seen, endless.flat_map(|c| &c.subflows)));
    }
    // A kernel's sockets cannot be asked at every acknowledgment.
    every(seen, connections.clone())
        .or_else(|| Dist::from_samples(&mut smoothed(seen, connections.flat_map(|c| &c.subflows))))
}

/// Within the window, of the subflows that made progress since their previous sample.
fn smoothed<'a>(seen: &Observed, subflows: impl Iterator<Item = &'a Subflow>) -> Vec<f64> {
    let mut values = Vec::new();
    for subflow in subflows {
        let mut last = None;
        for sample in &subflow.samples {
            let moved = last.replace(sample.acked).is_none_or(|last| sample.acked > last);
            if moved && sample.srtt_8us > 0 && seen.in_window(sample.at) {
                values.push(f64::from(sample.srtt_8us) / 8.0);
            }
        }
    }
    values
}

fn every<'a>(seen: &Observed, connections: impl Iterator<Item = &'a Connection>) -> Option<Dist> {
    let groups: BTreeSet<usize> = connections.filter_map(|connection| connection.rtts).collect();
    Dist::from_nanoseconds(groups.into_iter().filter_map(|group| seen.rtts.get(group)))
}
