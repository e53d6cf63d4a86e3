//! What the classes of a port did.

use crate::ports::PortRecord;
use crate::sampler::ClassPoint;
use std::collections::BTreeMap;
use vmcc_metrics::{Dist, Extra};
use vmcc_port::ClassStats;

fn total(port: &PortRecord, counter: impl Fn(&ClassStats) -> u64) -> u64 {
    port.stats.classes.iter().map(counter).sum()
}

pub(super) fn marked(port: &PortRecord) -> u64 {
    total(port, |class| class.marked)
}

pub(super) fn not_ect(port: &PortRecord) -> u64 {
    total(port, |class| class.not_ect)
}

pub(super) fn dropped(port: &PortRecord) -> u64 {
    total(port, |class| class.drops_full + class.drops_other)
}

/// Counters of each class over the whole run, and its queue and threshold where `inside` holds. A port with one
/// class says nothing that the path does not.
pub(super) fn extras(
    port: &PortRecord,
    samples: &BTreeMap<String, Vec<ClassPoint>>,
    inside: impl Fn(&&ClassPoint) -> bool,
) -> Vec<(String, Extra)> {
    let mut extras = Vec::new();
    let several = port.stats.classes.len() > 1;
    for class in port.stats.classes.iter().filter(|_| several) {
        let points = || samples.get(&class.name).into_iter().flatten().filter(|point| inside(point));
        let mut put = |what: &str, value: Option<Extra>| {
            extras.extend(value.map(|value| (format!("class.{}.{what}", class.name), value)));
        };
        let number = |count: u64| Some(Extra::Number(count as f64));
        put("ce_marks", port.marks.then_some(Extra::Number(class.marked as f64)));
        put("drops", number(class.drops_full + class.drops_other));
        let mut queue: Vec<f64> = points().map(|point| point.backlog_bytes as f64).collect();
        put("queue_bytes", Dist::from_samples(&mut queue).map(Extra::Dist));
        let mut thresholds: Vec<f64> =
            points().filter_map(|point| Some(point.threshold_bytes? as f64)).collect();
        put("threshold_bytes", Dist::from_samples(&mut thresholds).map(Extra::Dist));
    }
    extras
}
