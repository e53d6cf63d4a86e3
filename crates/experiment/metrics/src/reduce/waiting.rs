//! Stalls of connections, reinjection, and data held at the receiver.

use super::{Figure, Scope};
use crate::Dist;
use crate::observed::Connection;

/// The longest stall of each connection.
pub(crate) fn stalled(scope: &Scope<'_>) -> Option<Figure> {
    of_each(scope, |connection| connection.stalled_us)
}

/// Reinjected payload: bytes that a subflow sent because another had not delivered them.
pub(crate) fn reinjected(scope: &Scope<'_>) -> Option<Figure> {
    let bytes: Option<u64> = scope.connections.iter().map(|connection| connection.reinjected_bytes).sum();
    bytes.filter(|_| !scope.connections.is_empty()).map(Figure::Count)
}

/// The most that each connection's receiver held.
pub(crate) fn held(scope: &Scope<'_>) -> Option<Figure> {
    of_each(scope, |connection| connection.held_bytes.map(|bytes| bytes as f64))
}

fn of_each(scope: &Scope<'_>, of: fn(&Connection) -> Option<f64>) -> Option<Figure> {
    let mut values: Vec<f64> = scope.connections.iter().filter_map(|connection| of(connection)).collect();
    Dist::from_samples(&mut values).map(Figure::Dist)
}
