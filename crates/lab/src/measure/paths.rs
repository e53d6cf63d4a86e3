//! Figures of single paths, and of the ports that stand for them.

use super::{Transferred, Window, classes, of_role, retransmits, rtt, sum};
use crate::Role;
use crate::ports::PortRecord;
use crate::run::Observed;
use crate::sampler::ClassPoint;
use crate::spec::LabSpec;
use vmcc_metrics::{Dist, Extra, PathMetrics};

/// The figures of one path.
pub(super) fn metrics(
    spec: &LabSpec,
    observed: &Observed,
    transfers: &[Transferred<'_>],
    path: usize,
) -> PathMetrics {
    let window = Window::of(spec);
    let tracks = || {
        let all = of_role(transfers, Role::Measured).flat_map(|t| t.tracks.iter().copied());
        all.filter(move |track| track.path == path)
    };
    let acked: f64 = tracks().map(|track| track.acked_within(window.from_us, window.to_us)).sum();
    let queue = &observed.samples.queues[path];
    let inside = |t_us: u64| (window.from_us..window.to_us).contains(&t_us);
    let within: Vec<_> = queue.iter().filter(|point| inside(point.t_us)).collect();
    let mut backlog: Vec<f64> = within.iter().map(|point| point.stats.backlog_bytes as f64).collect();
    let sent = within.last().zip(within.first()).map(|(last, first)| {
        let bits = (last.stats.sent_bytes - first.stats.sent_bytes) as f64 * 8.0;
        (bits, (last.t_us - first.t_us) as f64 / 1e6)
    });
    let mut metrics = PathMetrics::default();
    metrics.path.clone_from(&spec.paths[path].name);
    metrics.goodput_bps = Some(window.bps(acked));
    metrics.rtt_us = rtt(window, tracks());
    metrics.retransmits = Some(tracks().map(retransmits).sum());
    let ports: Vec<&PortRecord> = observed.ports.iter().filter(|port| port.path == path).collect();
    metrics.ce_marks = sum(ports.iter().filter(|port| port.marks).map(|port| Some(classes::marked(port))));
    metrics.drops = sum(ports.iter().map(|port| Some(classes::dropped(port))));
    metrics.queue_bytes = Dist::from_samples(&mut backlog);
    if ports.iter().any(|port| port.marks) {
        // Met a queue above the threshold, from a sender without ECN.
        let not_ect = ports.iter().map(|port| classes::not_ect(port)).sum::<u64>();
        metrics.extra.insert("not_ect_pkt".to_owned(), Extra::Number(not_ect as f64));
    }
    if let Some(first) = ports.first() {
        let inside = |point: &&ClassPoint| (window.from_us..window.to_us).contains(&point.t_us);
        metrics.extra.extend(classes::extras(first, &observed.samples.classes[path], inside));
        metrics.utilization = sent
            .zip(first.stats.rate_bps)
            .filter(|((_, seconds), _)| *seconds > 0.0)
            .map(|((bits, seconds), rate_bps)| bits / seconds / rate_bps as f64);
    }
    metrics
}
