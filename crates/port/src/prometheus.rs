//! Counters as Prometheus reads them: its text format, version 0.0.4, which the textfile collector of `node_exporter`
//! takes too.

use crate::config::Backend;
use crate::stats::{ClassStats, PortStats};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder, TextEncoder};

/// The ports' counters and state, one family of metrics after the other. Nothing for no ports.
///
/// # Errors
/// The encoder refuses; it does not for any ports.
pub fn prometheus(ports: &[PortStats]) -> Result<String, prometheus::Error> {
    let mut families = port_families(ports);
    families.extend(class_families(ports));
    // The encoder refuses a family without samples.
    families.retain(|family| !family.get_metric().is_empty());
    let mut text = Vec::new();
    TextEncoder::new().encode(&families, &mut text)?;
    String::from_utf8(text).map_err(|e| prometheus::Error::Msg(e.to_string()))
}

fn port_families(ports: &[PortStats]) -> Vec<MetricFamily> {
    let family = |name: &str, kind, help: &str, value: fn(&PortStats) -> Option<f64>| {
        let sample = |port: &PortStats| Some(metric(&[("port", &port.port)], kind, value(port)?));
        collect(name, kind, help, ports.iter().filter_map(sample).collect())
    };
    let backend = |port: &PortStats| {
        let labels = [("port", port.port.as_str()), ("backend", backend_name(port.backend))];
        metric(&labels, MetricType::GAUGE, 1.0)
    };
    use MetricType::{COUNTER, GAUGE};
    vec![
        collect("vmcc_port_info", GAUGE, "What serves the port.", ports.iter().map(backend).collect()),
        family("vmcc_port_differences", GAUGE, "How many things differ from what was set.", |p| {
            Some(p.differences.len() as f64)
        }),
        family("vmcc_port_rate_bytes_per_second", GAUGE, "What the port may send.", |p| {
            p.rate_bps.map(|bits| bits as f64 / 8.0)
        }),
        family("vmcc_port_rtt_seconds", GAUGE, "The RTT that thresholds use.", |p| {
            p.rtt_ns.map(|ns| ns as f64 / 1e9)
        }),
        family("vmcc_port_rtt_samples_total", COUNTER, "RTTs measured from passing traffic.", |p| {
            Some(p.rtt_samples as f64)
        }),
        family(
            "vmcc_port_unclassified_packets_total",
            COUNTER,
            "Packets that are not IP, or too deeply encapsulated; they go to the last class.",
            |p| Some(p.unclassified as f64),
        ),
    ]
}

fn class_families(ports: &[PortStats]) -> Vec<MetricFamily> {
    use MetricType::{COUNTER, GAUGE};
    let each = |value: &dyn Fn(&PortStats, &ClassStats) -> Vec<Metric>| {
        ports
            .iter()
            .flat_map(|port| port.classes.iter().chain(&port.removed).flat_map(|class| value(port, class)))
            .collect()
    };
    let family = |name: &str, kind, help: &str, value: fn(&ClassStats) -> Option<u64>| {
        let sample = |port: &PortStats, class: &ClassStats| {
            let labels = [("port", port.port.as_str()), ("class", class.name.as_str())];
            value(class).map(|value| metric(&labels, kind, value as f64)).into_iter().collect()
        };
        collect(name, kind, help, each(&sample))
    };
    let dropped = |port: &PortStats, class: &ClassStats| {
        let reasons = [
            ("not-ect", class.drops_not_ect),
            ("overload", class.drops_overload),
            ("full", class.drops_full),
            ("other", class.drops_other),
        ];
        let sample = |(reason, drops): (&str, u64)| {
            let labels = [("port", port.port.as_str()), ("class", class.name.as_str()), ("reason", reason)];
            metric(&labels, COUNTER, drops as f64)
        };
        reasons.map(sample).to_vec()
    };
    vec![
        family("vmcc_port_class_packets_total", COUNTER, "Packets that arrived for the class.", |c| {
            Some(c.packets)
        }),
        family("vmcc_port_class_bytes_total", COUNTER, "Bytes that arrived for the class.", |c| {
            Some(c.bytes)
        }),
        family(
            "vmcc_port_class_marked_packets_total",
            COUNTER,
            "Packets set to Congestion Experienced.",
            |c| Some(c.marked),
        ),
        family(
            "vmcc_port_class_not_ect_packets_total",
            COUNTER,
            "Packets not marked for lack of ECN.",
            |c| Some(c.not_ect),
        ),
        collect(
            "vmcc_port_class_dropped_packets_total",
            COUNTER,
            "Packets dropped, by reason.",
            each(&dropped),
        ),
        family("vmcc_port_class_backlog_bytes", GAUGE, "Bytes that wait.", |c| Some(c.backlog_bytes)),
        family("vmcc_port_class_backlog_packets", GAUGE, "Packets that wait.", |c| Some(c.backlog_packets)),
        family("vmcc_port_class_max_backlog_bytes", GAUGE, "The longest queue that a packet met.", |c| {
            Some(c.max_backlog_bytes)
        }),
        family(
            "vmcc_port_class_threshold_bytes",
            GAUGE,
            "The queue length above which packets are marked.",
            |c| c.threshold_bytes,
        ),
    ]
}

fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::Auto => "auto",
        Backend::Bpf => "bpf",
        Backend::Htb => "htb",
    }
}

fn collect(name: &str, kind: MetricType, help: &str, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn metric(labels: &[(&str, &str)], kind: MetricType, value: f64) -> Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    let mut metric = Metric::from_label(labels.iter().map(pair).collect());
    if kind == MetricType::COUNTER {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
    }
    metric
}
