//! Times in which hosts were off their CPUs.

use super::{Figure, Scope};
use crate::Dist;

/// Each time, of all hosts.
pub(crate) fn times(scope: &Scope<'_>) -> Option<Figure> {
    Dist::from_nanoseconds(scope.seen.off.iter().map(|host| &host.lengths_ns)).map(Figure::Dist)
}

/// All times together.
pub(crate) fn total(scope: &Scope<'_>) -> Option<Figure> {
    let hosts = &scope.seen.off;
    (!hosts.is_empty()).then(|| Figure::Number(hosts.iter().map(|host| host.total_us).sum()))
}

/// Time for which they were stopped, as recorded by the scheduler of the stops.
pub(crate) fn stopped(scope: &Scope<'_>) -> Option<Figure> {
    Dist::from_nanoseconds(scope.seen.off.iter().filter_map(|host| host.stopped_ns.as_ref()))
        .map(Figure::Dist)
}

/// Packets that found their receive rings full.
pub(crate) fn lost(scope: &Scope<'_>) -> Option<Figure> {
    let mut lost = scope.seen.off.iter().filter_map(|host| host.lost_pkt).peekable();
    lost.peek()?;
    Some(Figure::Number(lost.map(|count| count as f64).sum()))
}
