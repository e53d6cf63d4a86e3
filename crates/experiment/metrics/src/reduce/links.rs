//! Queues, utilization, drops, marks and imbalance of tiers of links.

use super::{Figure, Scope};
use crate::Dist;
use crate::observed::{Links, LinksSample};

pub(crate) fn utilization(scope: &Scope<'_>) -> Option<Figure> {
    let (rate_bps, mut bytes, mut secs) = (scope.tier?.rate_bps?, 0, 0.0);
    for sample in within(scope)? {
        bytes += sample.sent_bytes;
        secs += sample.to.secs_since(sample.from);
    }
    (secs > 0.0).then(|| Figure::Number(bytes as f64 * 8.0 / (rate_bps * secs)))
}

pub(crate) fn drops(scope: &Scope<'_>) -> Option<Figure> {
    count(scope, |sample| sample.dropped_pkt)
}

pub(crate) fn marked(scope: &Scope<'_>) -> Option<Figure> {
    count(scope, |sample| sample.marked_pkt)
}

pub(crate) fn queue(scope: &Scope<'_>) -> Option<Figure> {
    dist(scope, |links, sample| Some(mean_queue(links, sample)))
}

pub(crate) fn max_queue(scope: &Scope<'_>) -> Option<Figure> {
    dist(scope, |_, sample| Some(sample.max_queue_bytes as f64))
}

pub(crate) fn imbalance(scope: &Scope<'_>) -> Option<Figure> {
    dist(scope, imbalance_of)
}

/// Values of one interval.
pub(crate) fn over_time(
    links: &Links,
    sample: &LinksSample,
) -> impl Iterator<Item = (&'static str, f64)> + use<> {
    let secs = sample.to.secs_since(sample.from);
    let utilization = links.rate_bps.map(|rate_bps| sample.sent_bytes as f64 * 8.0 / (rate_bps * secs));
    let several = links.count > 1;
    [
        ("queue_bytes", Some(mean_queue(links, sample))),
        ("max_queue_bytes", several.then_some(sample.max_queue_bytes as f64)),
        ("utilization", utilization.filter(|share| share.is_finite())),
        ("imbalance", imbalance_of(links, sample)),
        ("drops", Some(sample.dropped_pkt as f64)),
        ("marked_pkt", Some(sample.marked_pkt as f64)),
    ]
    .into_iter()
    .filter_map(|(metric, value)| Some((metric, value?)))
}

fn mean_queue(links: &Links, sample: &LinksSample) -> f64 {
    sample.queue_bytes as f64 / links.count.max(1) as f64
}

fn imbalance_of(links: &Links, sample: &LinksSample) -> Option<f64> {
    let mean = sample.sent_bytes as f64 / links.count as f64;
    let (least, most) = sample.sent_range_bytes;
    (links.count > 1 && sample.sent_bytes > 0).then(|| (most - least) as f64 / mean)
}

/// Intervals that are wholly within the window.
fn within<'a>(scope: &Scope<'a>) -> Option<impl Iterator<Item = &'a LinksSample> + use<'a>> {
    let (from, to) = scope.seen.window;
    Some(scope.tier?.samples.iter().filter(move |sample| sample.from >= from && sample.to <= to))
}

fn count(scope: &Scope<'_>, of: fn(&LinksSample) -> u64) -> Option<Figure> {
    Some(Figure::Number(scope.tier?.samples.iter().map(of).sum::<u64>() as f64))
}

fn dist(scope: &Scope<'_>, of: fn(&Links, &LinksSample) -> Option<f64>) -> Option<Figure> {
    let links = scope.tier?;
    let values = within(scope)?.filter_map(|sample| of(links, sample));
    Dist::from_samples(&mut values.collect::<Vec<f64>>()).map(Figure::Dist)
}
