//! Drops, marks, backlog and utilization of paths and of their ports' queues, with the packets of all traffic.

use super::{Figure, Scope};
use crate::Dist;
use crate::observed::{Moment, Path};

fn path<'a>(scope: &Scope<'a>) -> Option<&'a Path> {
    scope.path.map(|path| &scope.seen.paths[path])
}

pub(crate) fn drops(scope: &Scope<'_>) -> Option<Figure> {
    let dropped = match (scope.class, path(scope)) {
        (Some(class), _) => class.dropped_pkt,
        (None, Some(path)) => path.dropped_pkt,
        (None, None) => scope.seen.dropped_pkt,
    };
    dropped.map(Figure::Count)
}

pub(crate) fn marks(scope: &Scope<'_>) -> Option<Figure> {
    scope.class?.marked_pkt.map(Figure::Count)
}

pub(crate) fn marked(scope: &Scope<'_>) -> Option<Figure> {
    path(scope)?.marked_pkt.map(|count| Figure::Number(count as f64))
}

pub(crate) fn not_ect(scope: &Scope<'_>) -> Option<Figure> {
    path(scope)?.not_ect_pkt.map(|count| Figure::Number(count as f64))
}

pub(crate) fn queue(scope: &Scope<'_>) -> Option<Figure> {
    let samples = match scope.class {
        Some(class) => &class.queue,
        None => &path(scope)?.queue,
    };
    within(scope, samples)
}

pub(crate) fn threshold(scope: &Scope<'_>) -> Option<Figure> {
    within(scope, &scope.class?.threshold)
}

pub(crate) fn utilization(scope: &Scope<'_>) -> Option<Figure> {
    let path = path(scope)?;
    let ((bytes, secs), rate_bps) = path.sent.zip(path.rate_bps)?;
    (secs > 0.0).then(|| Figure::Number(bytes * 8.0 / (rate_bps * secs)))
}

fn within(scope: &Scope<'_>, samples: &[(Moment, f64)]) -> Option<Figure> {
    let inside = samples.iter().filter(|(at, _)| scope.seen.in_window(*at));
    Dist::from_samples(&mut inside.map(|(_, value)| *value).collect::<Vec<f64>>()).map(Figure::Dist)
}
