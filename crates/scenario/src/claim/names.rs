//! The metrics a claim may ask for, and the axes it may select by.

use serde_json::Value;

use super::{BadClaim, Filter, Selector};
use crate::error::did_you_mean;
use crate::load::sweep::plain;
use crate::model::{Scenario, Share, Topology, Traffic};

/// Metrics of a run that are one figure.
const PLAIN: [&str; 12] = [
    "goodput_bps",
    "competing_goodput_bps",
    "competing_share",
    "completed",
    "unfinished",
    "established",
    "retransmits",
    "timeouts",
    "ce_marks",
    "drops",
    "jain",
    "tenant_jain",
];
/// Metrics that only real kernels have.
const KERNEL: [&str; 2] = ["cpu_s_per_gb", "echoed_ce_pkt"];
/// Metrics of a run that are distributions.
const DISTRIBUTIONS: [&str; 3] = ["rtt_us", "fct_us", "flow_goodput_bps"];
/// The figures of a distribution; without one, the mean is meant.
const FIGURES: [&str; 6] = ["mean", "p50", "p99", "min", "max", "samples"];
/// Metrics of a path: `paths.<name>.<metric>`.
const OF_PATH: [&str; 5] = ["goodput_bps", "retransmits", "ce_marks", "drops", "utilization"];
const OF_PATH_DISTRIBUTIONS: [&str; 2] = ["rtt_us", "queue_bytes"];
/// Metrics of one of several queues of a path's port: `paths.<name>.class.<queue>.<metric>`. The queue is a number,
/// or the VM where VMs borrow from each other.
const OF_CLASS_DISTRIBUTIONS: [&str; 2] = ["queue_bytes", "threshold_bytes"];
/// The same, which only real kernels count.
const OF_CLASS: [&str; 2] = ["ce_marks", "drops"];
/// Metrics of a traffic entry: `traffic.<name>.<metric>`.
const OF_TRAFFIC: [&str; 3] = ["goodput_bps", "completed", "retransmits"];
const OF_TRAFFIC_DISTRIBUTIONS: [&str; 2] = ["rtt_us", "fct_us"];

/// Every metric that a run of the scenario can have.
fn metrics(scenario: &Scenario) -> Vec<String> {
    let mut all: Vec<String> = PLAIN.iter().chain(&KERNEL).map(|m| (*m).to_owned()).collect();
    all.extend(DISTRIBUTIONS.iter().flat_map(|d| figures(d)));
    for path in scenario.topology.paths() {
        all.extend(OF_PATH.iter().map(|m| format!("paths.{path}.{m}")));
        all.extend(OF_PATH_DISTRIBUTIONS.iter().flat_map(|d| figures(&format!("paths.{path}.{d}"))));
        for class in classes(scenario) {
            let of = |metric: &str| format!("paths.{path}.class.{class}.{metric}");
            all.extend(OF_CLASS.iter().map(|m| of(m)));
            all.extend(OF_CLASS_DISTRIBUTIONS.iter().flat_map(|d| figures(&of(d))));
        }
    }
    for index in 0..scenario.traffic.len() {
        let label = Traffic::label(&scenario.traffic, index);
        all.extend(OF_TRAFFIC.iter().map(|m| format!("traffic.{label}.{m}")));
        all.extend(OF_TRAFFIC_DISTRIBUTIONS.iter().flat_map(|d| figures(&format!("traffic.{label}.{d}"))));
    }
    all
}

/// The queues of a path's port where there are several.
fn classes(scenario: &Scenario) -> Vec<String> {
    let queue = match &scenario.topology {
        Topology::VirtualHost(t) if t.share == Share::Htb => {
            return (0..t.vms).map(|vm| format!("vm{vm}")).collect();
        }
        Topology::VirtualHost(t) => &t.queue,
        Topology::ParallelPaths(t) => &t.queue,
        Topology::Dumbbell(t) => &t.queue,
        Topology::TwoPod(t) => &t.queue,
        Topology::FatTree(_) | Topology::Graph(_) => return Vec::new(),
    };
    (0..queue.weights.len()).map(|class| class.to_string()).collect()
}

fn figures(distribution: &str) -> Vec<String> {
    std::iter::once(distribution.to_owned())
        .chain(FIGURES.iter().map(|f| format!("{distribution}.{f}")))
        .collect()
}

pub(super) fn check(
    selector: &Selector,
    scenario: &Scenario,
    axes: &[(String, Vec<Value>)],
) -> Result<(), BadClaim> {
    let metrics = metrics(scenario);
    if !metrics.contains(&selector.metric) {
        return Err(BadClaim {
            offset: selector.metric_at,
            length: selector.metric.len(),
            message: format!("there is no metric `{}`", selector.metric),
            help: did_you_mean(&selector.metric, metrics.iter().map(String::as_str)),
        });
    }
    if let Some((axis, at)) = &selector.axis {
        find_axis(axis, *at, axes)?;
    }
    selector.filters.iter().try_for_each(|filter| check_filter(filter, axes))
}

fn find_axis<'a>(key: &str, at: usize, axes: &'a [(String, Vec<Value>)]) -> Result<&'a [Value], BadClaim> {
    axes.iter().find(|(axis, _)| axis == key).map(|(_, values)| values.as_slice()).ok_or_else(|| {
        let names: Vec<&str> = axes.iter().map(|(axis, _)| axis.as_str()).collect();
        let known = if names.is_empty() { "the scenario has no sweep".into() } else { names.join(", ") };
        BadClaim {
            offset: at,
            length: key.len(),
            message: format!("`{key}` is not an axis of the sweep ({known})"),
            help: did_you_mean(key, names),
        }
    })
}

fn check_filter(filter: &Filter, axes: &[(String, Vec<Value>)]) -> Result<(), BadClaim> {
    let values = find_axis(&filter.key, filter.key_at, axes)?;
    if super::evaluate::contains(values, &filter.value) {
        return Ok(());
    }
    let known: Vec<String> = values.iter().map(plain).collect();
    let wanted = plain(&filter.value);
    Err(BadClaim {
        offset: filter.value_at,
        length: wanted.len(),
        message: format!("`{}` never is `{wanted}` in the sweep (it is {})", filter.key, known.join(", ")),
        help: did_you_mean(&wanted, known.iter().map(String::as_str)),
    })
}
