//! Time series of a run, one value per interval.

use crate::Role;
use crate::sampler::{Samples, Track};
use crate::spec::LabSpec;
use vmcc_results::Series;

/// `goodput_bps`, `srtt_us`, `cwnd_pkt` and `queue_bytes` of each path, `queue_bytes` and `threshold_bytes` of
/// each class where a path's port has several (entity `path.class`), `goodput_bps` of each entry of traffic. The
/// time of a value is the end of its interval.
pub(crate) fn build(spec: &LabSpec, samples: &Samples) -> Series {
    let mut series = Series::default();
    let step_us = (spec.series_interval.get() / 1000).max(1);
    let end_us = spec.duration.get() / 1000;
    let mut from_us = 0;
    while from_us < end_us {
        let to_us = (from_us + step_us).min(end_us);
        for path in 0..spec.paths.len() {
            push_path(&mut series, spec, samples, path, (from_us, to_us));
        }
        for label in labels(spec) {
            let tracks = samples.tracks.iter().filter(|track| spec.flows[track.flow].label == label);
            push(&mut series, to_us, label, "goodput_bps", Some(rate(tracks, from_us, to_us)));
        }
        from_us = to_us;
    }
    series
}

/// Each entry of traffic once, in the scenario's order.
pub(crate) fn labels(spec: &LabSpec) -> Vec<&str> {
    let mut labels: Vec<&str> = Vec::new();
    for flow in &spec.flows {
        if !labels.contains(&flow.label.as_str()) {
            labels.push(&flow.label);
        }
    }
    labels
}

fn push_path(series: &mut Series, spec: &LabSpec, samples: &Samples, path: usize, (from, to): (u64, u64)) {
    let name = &spec.paths[path].name;
    let tracks = || {
        let on_path = samples.tracks.iter().filter(move |track| track.path == path);
        on_path.filter(|track| spec.flows[track.flow].role == Role::Measured)
    };
    // The control connection of iperf3 is idle; its sockets carry next to nothing.
    let busy = || tracks().filter(|track| track.acked_within(from, to) > 0.0);
    let points = || busy().flat_map(|track| track.within(from, to));
    let queue = samples.queues[path].iter().filter(|point| (from..to).contains(&point.t_us));
    push(series, to, name, "goodput_bps", Some(rate(tracks(), from, to)));
    push(series, to, name, "srtt_us", mean(points().map(|point| f64::from(point.srtt_us))));
    push(series, to, name, "cwnd_pkt", mean(points().map(|point| f64::from(point.cwnd_pkt))));
    push(series, to, name, "queue_bytes", mean(queue.map(|point| point.stats.backlog_bytes as f64)));
    let classes = &samples.classes[path];
    if classes.len() < 2 {
        return;
    }
    for (class, points) in classes {
        let inside = || points.iter().filter(|point| (from..to).contains(&point.t_us));
        let entity = format!("{name}.{class}");
        push(series, to, &entity, "queue_bytes", mean(inside().map(|point| point.backlog_bytes as f64)));
        let thresholds = inside().filter_map(|point| Some(point.threshold_bytes? as f64));
        push(series, to, &entity, "threshold_bytes", mean(thresholds));
    }
}

fn rate<'a>(tracks: impl Iterator<Item = &'a Track>, from_us: u64, to_us: u64) -> f64 {
    let bytes: f64 = tracks.map(|track| track.acked_within(from_us, to_us)).sum();
    bytes * 8e6 / (to_us - from_us) as f64
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn push(series: &mut Series, t_us: u64, entity: &str, metric: &str, value: Option<f64>) {
    if let Some(value) = value {
        let (entity, metric) = (series.name(entity), series.name(metric));
        series.push(t_us, entity, metric, value);
    }
}
