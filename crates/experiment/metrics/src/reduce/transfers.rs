//! Connection set-up, and transfers and requests, which end by themselves.

use super::{Figure, Scope};
use crate::Dist;
use crate::observed::{Connection, Job, Response};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

pub(crate) fn established(scope: &Scope<'_>) -> Option<Figure> {
    let count = scope.connections.iter().filter(|connection| connection.established).count();
    (!scope.connections.is_empty()).then_some(Figure::Count(count as u64))
}

pub(crate) fn completed(scope: &Scope<'_>) -> Option<Figure> {
    let transfers = scope.connections.iter().filter(|c| completion(c).is_some()).count();
    let answered = scope.responses.iter().filter(|response| response.answered.is_some()).count();
    let counted: u64 = scope.answers().map(|answers| answers.answered).sum();
    scope.any_finite().then_some(Figure::Count((transfers + answered) as u64 + counted))
}

pub(crate) fn unfinished(scope: &Scope<'_>) -> Option<Figure> {
    scope.any_finite().then(|| Figure::Count(count_unfinished(scope)))
}

pub(crate) fn unfinished_share(scope: &Scope<'_>) -> Option<Figure> {
    let open = count_unfinished(scope);
    let counted: u64 = scope.answers().map(|answers| answers.answered).sum();
    let all = open + finished(scope).count() as u64 + counted;
    (all > 0).then(|| Figure::Number(open as f64 / all as f64))
}

fn count_unfinished(scope: &Scope<'_>) -> u64 {
    let open = |c: &&&Connection| {
        matches!(c.job, Job::Transfer(_)) && scope.seen.in_window(c.start) && c.received.is_none()
    };
    let waits = |response: &&&Response| scope.seen.in_window(response.asked) && response.answered.is_none();
    let count = scope.connections.iter().filter(open).count() + scope.responses.iter().filter(waits).count();
    count as u64 + scope.answers().map(|answers| answers.unfinished).sum::<u64>()
}

/// Answered requests per second: of programs that count them over their own time, else over the entry's time within the window.
pub(crate) fn requests_per_s(scope: &Scope<'_>) -> Option<Figure> {
    let seen = scope.seen;
    let counted = scope.answers().filter(|answers| answers.secs > 0.0);
    let mut rates: Vec<f64> = counted.map(|answers| answers.answered as f64 / answers.secs).collect();
    let asking = scope.connections.iter().filter(|one| matches!(one.job, Job::Requests));
    let mut answered: BTreeMap<usize, u32> = asking.map(|one| (one.entry, 0)).collect();
    for counted in scope.answers() {
        answered.remove(&counted.entry);
    }
    for response in scope.responses {
        if let Some(count) = answered.get_mut(&seen.connections[response.connection].entry) {
            *count += u32::from(response.answered.is_some_and(|at| seen.in_window(at)));
        }
    }
    for (entry, count) in answered {
        let secs = seen.active_secs(entry);
        rates.extend((secs > 0.0).then(|| f64::from(count) / secs));
    }
    (!rates.is_empty()).then(|| Figure::Number(rates.iter().sum()))
}

pub(crate) fn completion_times(scope: &Scope<'_>) -> Option<Figure> {
    let mut times: Vec<f64> = finished(scope).map(|finished| finished.fct_us).collect();
    let mut counted = scope.answers().map(|answers| &answers.latencies_ns).peekable();
    if counted.peek().is_none() {
        return Dist::from_samples(&mut times).map(Figure::Dist);
    }
    let mut others = counted.peek().map(|first| Histogram::new_from(*first))?;
    for us in times {
        // It grows with its values.
        let _ = others.record((us * 1e3) as u64);
    }
    Dist::from_nanoseconds(counted.chain([&others])).map(Figure::Dist)
}

pub(crate) fn slowdowns(scope: &Scope<'_>) -> Option<Figure> {
    let factors =
        finished(scope).filter_map(|one| slowdown(Some(one.fct_us), one.connection.ideal_us(one.bytes)));
    Dist::from_samples(&mut factors.collect::<Vec<f64>>()).map(Figure::Dist)
}

/// A transfer or request that was begun within the window and completed.
struct Finished<'a> {
    connection: &'a Connection,
    bytes: u64,
    fct_us: f64,
}

fn finished<'a>(scope: &Scope<'a>) -> impl Iterator<Item = Finished<'a>> + use<'a> {
    let Scope { seen, connections, responses, .. } = *scope;
    let transfers = connections.iter().filter(|c| c.start >= seen.window.0).filter_map(|connection| {
        let Job::Transfer(bytes) = connection.job else { return None };
        Some(Finished { connection, bytes, fct_us: completion(connection)? })
    });
    let answered =
        responses.iter().filter(|response| response.asked >= seen.window.0).filter_map(|response| {
            let connection = &seen.connections[response.connection];
            let fct_us = response.answered?.us_since(response.asked);
            Some(Finished { connection, bytes: response.bytes, fct_us })
        });
    transfers.chain(answered)
}

/// Completion time over the time on the empty network.
pub(crate) fn slowdown(fct_us: Option<f64>, ideal_us: Option<f64>) -> Option<f64> {
    Some(fct_us? / ideal_us?)
}

/// Completion time of a completed transfer, in microseconds.
pub(crate) fn completion(connection: &Connection) -> Option<f64> {
    let sized = matches!(connection.job, Job::Transfer(_));
    connection.received.filter(|_| sized).map(|received| received.us_since(connection.start))
}
