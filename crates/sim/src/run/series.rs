//! Time series: one value per interval, at the interval's end.
//!
//! | entity | metrics |
//! |---|---|
//! | a path's name | `goodput_bps`, `srtt_us`, `cwnd_pkt` of measured traffic on it, `queue_bytes` |
//! | `<path>.<class>` where a path's port has several queues | `queue_bytes`, `threshold_bytes` |
//! | a traffic entry's name | `goodput_bps` |
//! | `flow<n>.<path or subflow>` (few connections only) | `srtt_us`, `cwnd_pkt` |

use std::collections::BTreeMap;

use vmcc_results::Series;

use super::accounts::SERIES_FLOWS;
use super::measure::Finale;
use crate::time::{Span, Time};

/// Up to so many subflows have series of their own.
const OWN_SERIES: usize = 32;

/// Sums of one entity's values within one interval.
type Sums = BTreeMap<(String, &'static str), (f64, f64)>;

pub(crate) fn build(finale: &Finale<'_>) -> Series {
    let setup = finale.setup;
    let every = setup.interval.ps().max(1);
    let steps = setup.end.ps().div_ceil(every);
    let mut intervals: Vec<Sums> = vec![Sums::new(); usize::try_from(steps).unwrap_or(0)];
    // A value at an interval's end belongs to it.
    let step = |at: Time| usize::try_from(at.ps().saturating_sub(1) / every).unwrap_or(usize::MAX);
    goodputs(finale, &mut intervals, step);
    samples(finale, &mut intervals, step);
    queues(finale, &mut intervals, step);
    classes(finale, &mut intervals, step);
    let mut series = Series::default();
    for (index, sums) in intervals.iter().enumerate() {
        let end = (Time::ZERO + Span::from_ps(every).times(index as u64 + 1)).min(setup.end);
        for ((entity, metric), (sum, weight)) in sums {
            if *weight > 0.0 {
                let (entity, metric) = (series.name(entity), series.name(metric));
                series.push(end.us(), entity, metric, sum / weight);
            }
        }
    }
    series
}

/// Bits over seconds: their quotient is the rate of the interval.
fn goodputs(finale: &Finale<'_>, intervals: &mut [Sums], step: impl Fn(Time) -> usize) {
    let setup = finale.setup;
    if setup.flows.len() > SERIES_FLOWS {
        return;
    }
    for part in &finale.accounts.parts {
        let Some(sums) = intervals.get_mut(step(part.to)) else { continue };
        let secs = part.to.since(part.from).secs_f64();
        let mut add = |entity: &str, bytes: u64| {
            let sum = sums.entry((entity.to_owned(), "goodput_bps")).or_default();
            sum.0 += bytes as f64 * 8.0;
            sum.1 += secs;
        };
        for (path, bytes) in setup.fabric.paths.iter().zip(&part.paths) {
            add(&path.name, *bytes);
        }
        for (label, bytes) in setup.labels.iter().zip(&part.traffic) {
            add(label, *bytes);
        }
    }
}

fn samples(finale: &Finale<'_>, intervals: &mut [Sums], step: impl Fn(Time) -> usize) {
    let setup = finale.setup;
    let subflows: usize = setup.flows.iter().map(|flow| flow.paths.len()).sum();
    let own = subflows <= OWN_SERIES;
    for (index, sample) in finale.samples.iter().filter(|(_, sample)| sample.srtt_8us > 0) {
        let flow = &setup.flows[*index];
        if sample.at > flow.planned.stop {
            continue;
        }
        let Some(sums) = intervals.get_mut(step(sample.at)) else { continue };
        let mut add = |entity: &str| {
            for (metric, value) in
                [("srtt_us", f64::from(sample.srtt_8us) / 8.0), ("cwnd_pkt", f64::from(sample.cwnd_pkt))]
            {
                let sum = sums.entry((entity.to_owned(), metric)).or_default();
                sum.0 += value;
                sum.1 += 1.0;
            }
        };
        let path = flow.paths[usize::from(sample.subflow)].map(|path| setup.fabric.paths[path].name.as_str());
        if let (Some(path), false) = (path, flow.competing) {
            add(path);
        }
        if own {
            let subflow = sample.subflow.to_string();
            add(&format!("flow{index}.{}", path.unwrap_or(&subflow)));
        }
    }
}

fn classes(finale: &Finale<'_>, intervals: &mut [Sums], step: impl Fn(Time) -> usize) {
    for sample in &finale.classes {
        let path = finale.setup.fabric.paths.iter().find(|path| path.queue == sample.link);
        let (Some(path), Some(sums)) = (path, intervals.get_mut(step(sample.at))) else { continue };
        let entity = format!("{}.{}", path.name, finale.class_name(sample.class));
        let mut add = |metric, value: u64| {
            let sum = sums.entry((entity.clone(), metric)).or_default();
            sum.0 += value as f64;
            sum.1 += 1.0;
        };
        add("queue_bytes", sample.backlog_bytes);
        if let Some(threshold) = sample.threshold_bytes {
            add("threshold_bytes", threshold);
        }
    }
}

fn queues(finale: &Finale<'_>, intervals: &mut [Sums], step: impl Fn(Time) -> usize) {
    for sample in &finale.queues {
        let path = finale.setup.fabric.paths.iter().find(|path| path.queue == sample.link);
        if let (Some(path), Some(sums)) = (path, intervals.get_mut(step(sample.at))) {
            let sum = sums.entry((path.name.clone(), "queue_bytes")).or_default();
            sum.0 += sample.backlog_bytes as f64;
            sum.1 += 1.0;
        }
    }
}
