//! Shares of connections' time by what limited their sending.

use super::{Figure, Scope};
use crate::observed::LimitedTimes;

/// Share under the congestion window.
pub(crate) fn congestion(scope: &Scope<'_>) -> Option<Figure> {
    share(scope, |times| times.congestion_us)
}

/// Share under the receive window.
pub(crate) fn receive_window(scope: &Scope<'_>) -> Option<Figure> {
    share(scope, |times| times.receive_window_us)
}

/// Share under the send buffer.
pub(crate) fn send_buffer(scope: &Scope<'_>) -> Option<Figure> {
    share(scope, |times| times.send_buffer_us)
}

/// Share in which applications had nothing to send.
pub(crate) fn application(scope: &Scope<'_>) -> Option<Figure> {
    share(scope, |times| times.application_us)
}

fn share(scope: &Scope<'_>, part: fn(&LimitedTimes) -> f64) -> Option<Figure> {
    let all = scope.connections.iter().filter_map(|connection| connection.limits);
    let times = all.fold(LimitedTimes::default(), LimitedTimes::plus);
    let total_us = times.total_us();
    (total_us > 0.0).then(|| Figure::Number(part(&times) / total_us))
}
