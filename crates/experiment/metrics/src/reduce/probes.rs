//! RTT, loss and marks of probes.

use super::{Figure, Scope};
use crate::Dist;
use crate::observed::Probe;

pub(crate) fn rtt(scope: &Scope<'_>) -> Option<Figure> {
    let times = sent(scope).filter_map(|probe| Some(probe.answered?.us_since(probe.sent)));
    Dist::from_samples(&mut times.collect::<Vec<f64>>()).map(Figure::Dist)
}

pub(crate) fn loss(scope: &Scope<'_>) -> Option<Figure> {
    share(sent(scope).filter(|probe| probe.due), |probe| probe.answered.is_none())
}

pub(crate) fn marked(scope: &Scope<'_>) -> Option<Figure> {
    let answered = sent(scope).filter(|probe| probe.answered.is_some() && probe.marked.is_some());
    share(answered, |probe| probe.marked == Some(true))
}

fn share<'a>(probes: impl Iterator<Item = &'a Probe>, counts: fn(&Probe) -> bool) -> Option<Figure> {
    let (all, counted) = probes.fold((0u64, 0u64), |(all, n), probe| (all + 1, n + u64::from(counts(probe))));
    (all > 0).then(|| Figure::Number(counted as f64 / all as f64))
}

/// Those of the scope that were sent within the window.
fn sent<'a>(scope: &'a Scope<'_>) -> impl Iterator<Item = &'a Probe> {
    let within = |probe: &&Probe| scope.path.is_none() || probe.path == scope.path;
    scope.probes.iter().copied().filter(within).filter(|probe| scope.seen.in_window(probe.sent))
}
