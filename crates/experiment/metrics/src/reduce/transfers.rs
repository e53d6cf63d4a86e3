//! Connection set-up, and transfers and requests, which end by themselves.

use super::{Figure, Scope};
use crate::Dist;
use crate::observed::{Connection, Job, Response};

pub(crate) fn established(scope: &Scope<'_>) -> Option<Figure> {
    let count = scope.connections.iter().filter(|connection| connection.established).count();
    (!scope.connections.is_empty()).then_some(Figure::Count(count as u64))
}

pub(crate) fn completed(scope: &Scope<'_>) -> Option<Figure> {
    let transfers = scope.connections.iter().filter(|c| completion(c).is_some()).count();
    let answered = scope.responses.iter().filter(|response| response.answered.is_some()).count();
    scope.any_finite().then_some(Figure::Count((transfers + answered) as u64))
}

pub(crate) fn unfinished(scope: &Scope<'_>) -> Option<Figure> {
    let open = |c: &&&Connection| {
        matches!(c.job, Job::Transfer(_)) && scope.seen.in_window(c.start) && c.received.is_none()
    };
    let waits = |response: &&&Response| scope.seen.in_window(response.asked) && response.answered.is_none();
    let count = scope.connections.iter().filter(open).count() + scope.responses.iter().filter(waits).count();
    scope.any_finite().then_some(Figure::Count(count as u64))
}

pub(crate) fn completion_times(scope: &Scope<'_>) -> Option<Figure> {
    let from = scope.seen.window.0;
    let begun = scope.connections.iter().filter(|connection| connection.start >= from);
    let mut times: Vec<f64> = begun.filter_map(|connection| completion(connection)).collect();
    let asked = scope.responses.iter().filter(|response| response.asked >= from);
    times.extend(asked.filter_map(|response| Some(response.answered?.us_since(response.asked))));
    Dist::from_samples(&mut times).map(Figure::Dist)
}

/// Completion time of a completed transfer, in microseconds.
pub(super) fn completion(connection: &Connection) -> Option<f64> {
    let sized = matches!(connection.job, Job::Transfer(_));
    connection.received.filter(|_| sized).map(|received| received.us_since(connection.start))
}
