//! Counters as Prometheus reads them.

use crate::config::Backend;
use crate::stats::{ClassStats, PortStats};
use vmcc_telemetry::Kind::{self, Counter, Gauge};
use vmcc_telemetry::{Error, Figures};

/// The ports' counters and state, one family of metrics after the other. Nothing for no ports.
///
/// # Errors
/// The encoder refuses; it does not for any ports.
pub fn prometheus(ports: &[PortStats]) -> Result<String, Error> {
    let mut figures = Figures::default();
    of_ports(&mut figures, ports);
    of_classes(&mut figures, ports);
    figures.text()
}

fn of_ports(figures: &mut Figures, ports: &[PortStats]) {
    let backends = ports.iter().map(|port| ([port.port.as_str(), backend_name(port.backend)], 1.0));
    figures.family(("vmcc_port_info", Gauge, "What serves the port."), ["port", "backend"], backends);
    let mut family = |family: (&str, Kind, &str), value: fn(&PortStats) -> Option<f64>| {
        let samples = ports.iter().filter_map(|port| Some(([port.port.as_str()], value(port)?)));
        figures.family(family, ["port"], samples);
    };
    family(("vmcc_port_differences", Gauge, "How many things differ from what was set."), |port| {
        Some(port.differences.len() as f64)
    });
    family(("vmcc_port_rate_bytes_per_second", Gauge, "What the port may send."), |port| {
        port.rate_bps.map(|bits| bits as f64 / 8.0)
    });
    family(("vmcc_port_rtt_seconds", Gauge, "The RTT that thresholds use."), |port| {
        port.rtt_ns.map(|ns| ns as f64 / 1e9)
    });
    family(("vmcc_port_rtt_samples_total", Counter, "RTTs measured from passing traffic."), |port| {
        Some(port.rtt_samples as f64)
    });
    let help = "Packets that are not IP, or too deeply encapsulated; they go to the last class.";
    family(("vmcc_port_unclassified_packets_total", Counter, help), |port| Some(port.unclassified as f64));
}

type Figure = fn(&ClassStats) -> Option<u64>;

const OF_CLASSES: [(&str, Kind, &str, Figure); 9] = [
    ("vmcc_port_class_packets_total", Counter, "Packets that arrived for the class.", |c| Some(c.packets)),
    ("vmcc_port_class_bytes_total", Counter, "Bytes that arrived for the class.", |c| Some(c.bytes)),
    (
        "vmcc_port_class_sparse_packets_total",
        Counter,
        "Packets of sparse flows, served before the class's others.",
        |c| Some(c.sparse),
    ),
    ("vmcc_port_class_marked_packets_total", Counter, "Packets set to Congestion Experienced.", |c| {
        Some(c.marked)
    }),
    ("vmcc_port_class_not_ect_packets_total", Counter, "Packets not marked for lack of ECN.", |c| {
        Some(c.not_ect)
    }),
    ("vmcc_port_class_backlog_bytes", Gauge, "Bytes that wait.", |c| Some(c.backlog_bytes)),
    ("vmcc_port_class_backlog_packets", Gauge, "Packets that wait.", |c| Some(c.backlog_packets)),
    ("vmcc_port_class_max_backlog_bytes", Gauge, "The longest queue that a packet met.", |c| {
        Some(c.max_backlog_bytes)
    }),
    ("vmcc_port_class_threshold_bytes", Gauge, "The queue length above which packets are marked.", |c| {
        c.threshold_bytes
    }),
];

/// Those of packets that were dropped, by the reason.
const DROPS: [(&str, Figure); 4] = [
    ("not-ect", |c| Some(c.drops_not_ect)),
    ("overload", |c| Some(c.drops_overload)),
    ("full", |c| Some(c.drops_full)),
    ("other", |c| Some(c.drops_other)),
];

fn of_classes(figures: &mut Figures, ports: &[PortStats]) {
    let every = || {
        ports.iter().flat_map(|port| {
            port.classes.iter().chain(&port.removed).map(|class| (port.port.as_str(), class))
        })
    };
    for (name, kind, help, value) in OF_CLASSES {
        let samples = every().filter_map(|(port, c)| Some(([port, c.name.as_str()], value(c)? as f64)));
        figures.family((name, kind, help), ["port", "class"], samples);
    }
    let dropped = every().flat_map(|(port, c)| {
        DROPS
            .iter()
            .filter_map(move |(reason, value)| Some(([port, c.name.as_str(), *reason], value(c)? as f64)))
    });
    let help = "Packets dropped, by reason.";
    figures.family(
        ("vmcc_port_class_dropped_packets_total", Counter, help),
        ["port", "class", "reason"],
        dropped,
    );
}

fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::Auto => "auto",
        Backend::Bpf => "bpf",
        Backend::Htb => "htb",
    }
}
