//! The service queues of the port that stands for a path.

use std::collections::BTreeMap;

use vmcc_metrics::{Dist, Extra};

use super::measure::Finale;

impl Finale<'_> {
    /// A queue's name in results: the VM where VMs borrow from each other, else its number.
    pub(super) fn class_name(&self, class: u8) -> String {
        let names = self.setup.scenario.topology.as_kind().path_classes();
        names.get(usize::from(class)).cloned().unwrap_or_else(|| class.to_string())
    }
}

/// Waiting bytes and thresholds of each queue within the window: `class.<name>.queue_bytes`, `.threshold_bytes`.
pub(super) fn extras(finale: &Finale<'_>, path: usize) -> BTreeMap<String, Extra> {
    let queue = finale.setup.fabric.paths[path].queue;
    let mut samples: BTreeMap<u8, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for sample in finale.classes.iter().filter(|s| s.link == queue && finale.in_window(s.at)) {
        let (backlog, threshold) = samples.entry(sample.class).or_default();
        backlog.push(sample.backlog_bytes as f64);
        threshold.extend(sample.threshold_bytes.map(|bytes| bytes as f64));
    }
    let mut extra = BTreeMap::new();
    for (class, (mut backlog, mut threshold)) in samples {
        let name = finale.class_name(class);
        for (what, values) in [("queue_bytes", &mut backlog), ("threshold_bytes", &mut threshold)] {
            if let Some(dist) = Dist::from_samples(values) {
                extra.insert(format!("class.{name}.{what}"), Extra::Dist(dist));
            }
        }
    }
    extra
}
