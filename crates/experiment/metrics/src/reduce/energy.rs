//! CPU time, energy and instructions of a host per delivered byte, over all traffic.

use super::goodput::entries_bytes;
use super::{Figure, Scope};
use crate::observed::{Job, Moment, Observed};

/// Power that the model assumes for a host regardless of its load, in watts.
const IDLE_W: f64 = 50.0;
/// Energy that the model assumes at both ends together for a segment and its acknowledgment: 4 us of one processor at 10 W.
const SEGMENT_J: f64 = 40e-6;
const SEGMENT_BYTES: f64 = 1448.0;

pub(crate) fn cpu_s_per_gb(scope: &Scope<'_>) -> Option<Figure> {
    per_gigabyte(scope.seen, scope.seen.cpu_s)
}

pub(crate) fn package_j_per_gb(scope: &Scope<'_>) -> Option<Figure> {
    per_gigabyte(scope.seen, scope.seen.energy.map(|energy| energy.package_j))
}

pub(crate) fn dram_j_per_gb(scope: &Scope<'_>) -> Option<Figure> {
    per_gigabyte(scope.seen, scope.seen.energy.and_then(|energy| energy.dram_j))
}

pub(crate) fn instructions_per_byte(scope: &Scope<'_>) -> Option<Figure> {
    per(delivered_bytes(scope.seen), scope.seen.instructions)
}

fn per_gigabyte(seen: &Observed, used: Option<f64>) -> Option<Figure> {
    per(delivered_bytes(seen) / 1e9, used)
}

/// Of all traffic, within the window.
fn delivered_bytes(seen: &Observed) -> f64 {
    entries_bytes(seen).into_iter().sum()
}

fn per(delivered: f64, used: Option<f64>) -> Option<Figure> {
    used.filter(|_| delivered > 0.0).map(|used| Figure::Number(used / delivered))
}

/// Whole transfers and not the window: who is done earlier needs less.
pub(crate) fn modelled_j_per_gb(scope: &Scope<'_>) -> Option<Figure> {
    let seen = scope.seen;
    let bytes = seen.connections.iter().map(|connection| connection.delivered_bytes as f64).sum::<f64>();
    let subflows = seen.connections.iter().flat_map(|connection| &connection.subflows);
    let again = subflows.filter_map(|subflow| subflow.counters.retransmits).sum::<u64>() as f64;
    let joules =
        IDLE_W * done(seen).secs_since(Moment::default()) + SEGMENT_J * (bytes / SEGMENT_BYTES + again);
    (bytes > 0.0).then(|| Figure::Number(joules / (bytes / 1e9)))
}

/// Completion of the last transfer; the end of the run if something goes on until then.
fn done(seen: &Observed) -> Moment {
    let of = |job, received| match job {
        Job::Transfer(_) => received,
        Job::Endless | Job::Requests => None,
    };
    let done: Option<Vec<Moment>> = seen.connections.iter().map(|c| of(c.job, c.received)).collect();
    done.and_then(|done| done.into_iter().max()).unwrap_or(seen.window.1)
}
