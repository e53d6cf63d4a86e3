//! Goodput, and the shares and fairness that follow from it.

use super::{Figure, Scope};
use crate::observed::{Connection, Job, Observed, Part};
use crate::{Dist, stats};

/// Of measured traffic over the window; of an entry over its own time within it.
pub(crate) fn of(scope: &Scope<'_>) -> Option<Figure> {
    let seen = scope.seen;
    if let Some(entry) = scope.entry {
        let connections = scope.connections.iter().map(|connection| connection.window_bytes).sum::<f64>();
        return rate_of_entry(seen, entry, connections + seen.entries[entry].datagram_bytes)
            .map(Figure::Number);
    }
    let bytes = entries_bytes(seen);
    let measured = || seen.entries.iter().zip(&bytes).filter(|(entry, _)| !entry.competing);
    let sum: f64 = measured().map(|(_, bytes)| bytes).sum();
    measured().next().map(|_| Figure::Number(sum * 8.0 / seen.window_secs()))
}

/// A flow that competes for half of the run with 50 Mbit/s has 50 Mbit/s, not 25.
pub(crate) fn competing(scope: &Scope<'_>) -> Option<Figure> {
    let seen = scope.seen;
    let bytes = entries_bytes(seen).into_iter().enumerate();
    let competing = bytes.filter(|(entry, _)| seen.entries[*entry].competing);
    let rates: Vec<f64> = competing.filter_map(|(entry, bytes)| rate_of_entry(seen, entry, bytes)).collect();
    (!rates.is_empty()).then(|| Figure::Number(rates.iter().sum()))
}

pub(crate) fn of_path(scope: &Scope<'_>) -> Option<Figure> {
    let path = scope.path?;
    let inside = scope.seen.parts.iter().filter(|part| part.from >= scope.seen.window.0);
    let bytes: f64 = inside.map(|part| part.paths[path]).sum();
    Some(Figure::Number(bytes * 8.0 / scope.seen.window_secs()))
}

/// Share of competing connections in their paths, from the start of the first to the stop of the last.
pub(crate) fn competing_share(scope: &Scope<'_>) -> Option<Figure> {
    let seen = scope.seen;
    let competing = || seen.connections.iter().filter(|c| seen.entries[c.entry].competing && c.endless());
    let from = competing().map(|c| c.start).min()?.max(seen.window.0);
    let to = competing().map(|c| c.stop.min(seen.window.1)).max()?;
    let parts: Vec<&Part> = seen.parts.iter().filter(|part| part.from >= from && part.to <= to).collect();
    let share = |path: usize| {
        let theirs: f64 = parts.iter().map(|part| part.competing_paths[path]).sum();
        let ours: f64 = parts.iter().map(|part| part.paths[path]).sum();
        (theirs > 0.0).then(|| theirs / (theirs + ours))
    };
    let shares: Vec<f64> = (0..seen.paths.len()).filter_map(share).collect();
    (!shares.is_empty()).then(|| Figure::Number(shares.iter().sum::<f64>() / shares.len() as f64))
}

/// A path's part of what measured traffic sent while competing traffic arrived.
pub(crate) fn share_while_loaded(scope: &Scope<'_>) -> Option<Figure> {
    share_while(scope, true)
}

/// The same while none did.
pub(crate) fn share_while_free(scope: &Scope<'_>) -> Option<Figure> {
    share_while(scope, false)
}

fn share_while(scope: &Scope<'_>, loaded: bool) -> Option<Figure> {
    let (seen, path) = (scope.seen, scope.path?);
    let competing = || seen.entries.iter().enumerate().filter(|(_, entry)| entry.competing);
    competing().next()?;
    let is_loaded = |part: &&Part| competing().any(|(entry, _)| part.entries[entry] > 0.0);
    let inside = |part: &&Part| part.from >= seen.window.0 && part.to <= seen.window.1;
    let parts = || seen.parts.iter().filter(inside).filter(|part| is_loaded(part) == loaded);
    let all: f64 = parts().flat_map(|part| &part.paths).sum();
    let own: f64 = parts().map(|part| part.paths[path]).sum();
    (all > 0.0).then(|| Figure::Number(own / all))
}

pub(crate) fn of_connections(scope: &Scope<'_>) -> Option<Figure> {
    Dist::from_samples(&mut rates(scope)).map(Figure::Dist)
}

pub(crate) fn jain(scope: &Scope<'_>) -> Option<Figure> {
    stats::jain(&rates(scope)).map(Figure::Number)
}

/// Fairness among all hosts that send without end.
pub(crate) fn tenant_jain(scope: &Scope<'_>) -> Option<Figure> {
    let seen = scope.seen;
    let endless: Vec<&Connection> = seen.connections.iter().filter(|c| c.endless()).collect();
    let everybody = Scope { connections: &endless, ..*scope };
    let rates = everybody.by_sender(|connection| rate(seen, connection).unwrap_or(0.0));
    stats::jain(&rates.into_values().collect::<Vec<f64>>()).map(Figure::Number)
}

/// A connection's rate over its entry's time within the window.
pub(crate) fn rate(seen: &Observed, connection: &Connection) -> Option<f64> {
    let secs = seen.active_secs(connection.entry);
    (secs > 0.0).then(|| connection.window_bytes * 8.0 / secs)
}

/// Of endless ones within the window, or else of completed transfers begun within it.
fn rates(scope: &Scope<'_>) -> Vec<f64> {
    let endless: Vec<&Connection> = scope.connections.iter().copied().filter(|c| c.endless()).collect();
    if endless.is_empty() {
        return scope.connections.iter().filter_map(|c| transfer_rate(scope.seen, c)).collect();
    }
    endless.into_iter().filter_map(|connection| rate(scope.seen, connection)).collect()
}

fn transfer_rate(seen: &Observed, connection: &Connection) -> Option<f64> {
    let Job::Transfer(bytes) = connection.job else { return rate(seen, connection) };
    if connection.start < seen.window.0 {
        return None;
    }
    let secs = connection.received?.secs_since(connection.start);
    (secs > 0.0).then(|| bytes as f64 * 8.0 / secs)
}

fn rate_of_entry(seen: &Observed, entry: usize, bytes: f64) -> Option<f64> {
    let secs = seen.active_secs(entry);
    (secs > 0.0).then(|| bytes * 8.0 / secs)
}

/// Payload that each entry's receivers got within the window.
pub(super) fn entries_bytes(seen: &Observed) -> Vec<f64> {
    let mut bytes = vec![0.0; seen.entries.len()];
    for connection in &seen.connections {
        bytes[connection.entry] += connection.window_bytes;
    }
    bytes.iter_mut().zip(&seen.entries).for_each(|(bytes, entry)| *bytes += entry.datagram_bytes);
    bytes
}
