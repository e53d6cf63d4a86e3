//! The metrics of one run.

use crate::{Dist, Extra};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Figures of one path (one subflow's route), summed over the connections of the measured traffic.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PathMetrics {
    /// The path's name in the scenario.
    pub path: String,
    /// Bytes newly acknowledged on this path, times 8, per second of the measured interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_bps: Option<f64>,
    /// Round-trip times of this path, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<Dist>,
    /// Segments sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Packets that arrived with congestion experienced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ce_marks: Option<u64>,
    /// Packets dropped at this path's queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops: Option<u64>,
    /// Backlog of this path's bottleneck queue, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<Dist>,
    /// Share of the bottleneck's capacity that was used, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// Anything else.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Extra>,
}

/// The metrics of one run. A field is `None` when it was not measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Metrics {
    /// Bytes delivered in order to applications, times 8, per second, summed over the measured traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_bps: Option<f64>,
    /// The same for competing (not measured) traffic of the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub competing_goodput_bps: Option<f64>,
    /// Sized transfers that completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<u64>,
    /// Transfers and requests begun within the measured window that had not completed at its end: completion times are without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<u64>,
    /// Connections that were established.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub established: Option<u64>,
    /// Segments sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Retransmission timeouts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<u64>,
    /// Packets that arrived with congestion experienced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ce_marks: Option<u64>,
    /// Packets dropped at queues and links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops: Option<u64>,
    /// Round-trip times, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<Dist>,
    /// Flow completion times of completed sized transfers, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fct_us: Option<Dist>,
    /// Goodput of single connections, in bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_goodput_bps: Option<Dist>,
    /// Jain's index over the goodput of the measured connections, 1/n to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jain: Option<f64>,
    /// CPU seconds of the whole host per gigabyte (10^9 B) delivered; the kernel engines only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gb: Option<f64>,
    /// Per path, in the scenario's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathMetrics>,
    /// Anything else, under its own name (with the unit in the name).
    #[serde(flatten)]
    pub extra: BTreeMap<String, Extra>,
}

impl Metrics {
    /// Every figure under a dotted name (`goodput_bps`, `rtt_us.p50`, `paths.a.goodput_bps`), in the order of
    /// the fields above.
    pub fn figures(&self) -> Vec<(String, f64)> {
        let mut out = self.named_figures();
        for (name, extra) in &self.extra {
            extra_figures(name, extra, &mut out);
        }
        out
    }

    /// One figure by its dotted name; a distribution's bare name means its mean. `None` when absent.
    ///
    /// Costs a look-up, whatever the number of [`Metrics::extra`]: a run has dozens for each entry of traffic.
    pub fn get(&self, name: &str) -> Option<f64> {
        let mut figures = Vec::new();
        let distribution = name.rsplit_once('.').map_or(name, |(distribution, _)| distribution);
        for key in [name, distribution] {
            if let Some((key, extra)) = self.extra.get_key_value(key) {
                extra_figures(key, extra, &mut figures);
            }
        }
        if figures.is_empty() {
            figures = self.named_figures();
        }
        let find = |wanted: &str| figures.iter().find(|(n, _)| n == wanted).map(|(_, v)| *v);
        find(name).or_else(|| find(&format!("{name}.mean")))
    }

    /// The figures of all fields but [`Metrics::extra`].
    fn named_figures(&self) -> Vec<(String, f64)> {
        let named = Self {
            goodput_bps: self.goodput_bps,
            competing_goodput_bps: self.competing_goodput_bps,
            completed: self.completed,
            unfinished: self.unfinished,
            established: self.established,
            retransmits: self.retransmits,
            timeouts: self.timeouts,
            ce_marks: self.ce_marks,
            drops: self.drops,
            rtt_us: self.rtt_us,
            fct_us: self.fct_us,
            flow_goodput_bps: self.flow_goodput_bps,
            jain: self.jain,
            cpu_s_per_gb: self.cpu_s_per_gb,
            paths: self.paths.clone(),
            extra: BTreeMap::new(),
        };
        let mut out = Vec::new();
        if let Ok(Value::Object(fields)) = serde_json::to_value(named) {
            for (name, value) in &fields {
                push_figures(name, value, &mut out);
            }
        }
        out
    }
}

fn extra_figures(name: &str, extra: &Extra, out: &mut Vec<(String, f64)>) {
    match extra {
        Extra::Number(value) if value.is_finite() => out.push((name.to_owned(), *value)),
        // Not a figure in JSON either.
        Extra::Number(_) => {}
        Extra::Dist(dist) => {
            if let Ok(figures) = serde_json::to_value(dist) {
                push_figures(name, &figures, out);
            }
        }
    }
}

fn push_figures(prefix: &str, value: &Value, out: &mut Vec<(String, f64)>) {
    match value {
        Value::Number(n) => out.extend(n.as_f64().map(|v| (prefix.to_owned(), v))),
        Value::Object(fields) => {
            for (name, inner) in fields {
                push_figures(&format!("{prefix}.{name}"), inner, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                if let Some(path) = item.get("path").and_then(Value::as_str) {
                    push_figures(&format!("{prefix}.{path}"), item, out);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Metrics {
        Metrics {
            goodput_bps: Some(5.0),
            rtt_us: Some(Dist { mean: 3.0, p50: 2.0, p99: 9.0, ..Dist::default() }),
            paths: vec![PathMetrics { path: "a".into(), goodput_bps: Some(4.0), ..PathMetrics::default() }],
            extra: BTreeMap::from([
                ("alpha".to_owned(), Extra::Number(0.5)),
                ("sleep_us".to_owned(), Extra::Dist(Dist { mean: 1.0, ..Dist::default() })),
            ]),
            ..Metrics::default()
        }
    }

    #[test]
    fn metrics_round_trip_without_absent_fields() {
        let json = serde_json::to_string(&sample()).unwrap();
        assert!(!json.contains("null") && !json.contains("retransmits"), "{json}");
        assert_eq!(serde_json::from_str::<Metrics>(&json).unwrap(), sample());
    }

    #[test]
    fn figures_are_found_by_dotted_name() {
        let m = sample();
        assert_eq!(m.get("rtt_us.p99"), Some(9.0));
        assert_eq!(m.get("rtt_us"), Some(3.0));
        assert_eq!(m.get("paths.a.goodput_bps"), Some(4.0));
        assert_eq!(m.get("alpha"), Some(0.5));
        assert_eq!(m.get("sleep_us"), Some(1.0));
        assert_eq!((m.get("sleep_us.p50"), m.get("sleep_us.min")), (Some(0.0), None));
        assert_eq!(m.get("retransmits"), None);
        assert_eq!(m.figures()[0].0, "goodput_bps");
    }
}
