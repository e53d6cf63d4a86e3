//! Counters of ports for people.

use crate::table;
use vmcc_port::{Backend, PortStats};
use vmcc_units::{BitsPerSec, Bytes, Nanos};

/// Name of a backend.
pub(super) fn backend(backend: Backend) -> &'static str {
    match backend {
        Backend::Auto => "its own queue",
        Backend::Bpf => "bpf",
        Backend::Htb => "htb",
    }
}

/// One paragraph per port: what it is, and a line per class.
pub(super) fn ports(ports: &[PortStats]) -> String {
    within(ports, table::output_width())
}

fn within(ports: &[PortStats], width: usize) -> String {
    ports.iter().map(|stats| port(stats, width)).collect::<Vec<_>>().join("\n\n")
}

fn port(stats: &PortStats, width: usize) -> String {
    let rate = stats.rate_bps.map_or_else(|| "no rate".to_owned(), |bps| BitsPerSec::new(bps).to_string());
    let rtt = match (stats.rtt_ns, stats.rtt_samples) {
        (None, _) => "no RTT yet".to_owned(),
        (Some(ns), 0) => format!("RTT {}", rounded(ns)),
        (Some(ns), samples) => format!("RTT {} ({samples} samples)", rounded(ns)),
    };
    let name = match stats.members.as_slice() {
        [] => stats.port.clone(),
        ports => format!("VM {} ({})", stats.port, ports.join(", ")),
    };
    // Whatever serves a port has a class: of this one nothing could be read.
    let mut head = match stats.classes.as_slice() {
        [] => format!("{name}: not whole, no counters"),
        _ => format!("{name}: {}, {rate}, {rtt}", backend(stats.backend)),
    };
    if stats.unclassified > 0 {
        head.push_str(&format!(", not IP: {}", stats.unclassified));
    }
    for difference in &stats.differences {
        head.push_str(&format!("\n  not as it was set: {difference}"));
    }
    if !stats.differences.is_empty() {
        let port = stats.members.first().unwrap_or(&stats.port);
        head.push_str(&format!("\n  `vmcc mark {port} --repair` serves it again as it was set"));
    }
    if stats.classes.is_empty() { head } else { format!("{head}\n{}", classes(stats, width)) }
}

fn classes(stats: &PortStats, width: usize) -> String {
    let header = [
        "  CLASS",
        "PACKETS",
        "BYTES",
        "SPARSE",
        "MARKED",
        "NOT ECT",
        "NO ECN",
        "OVERLOAD",
        "FULL",
        "OTHER",
        "WAITING",
        "LONGEST",
        "THRESHOLD",
        "RTT",
    ];
    let mut table = table::plain(&header);
    table::align_right_from(&mut table, 1);
    for class in stats.classes.iter().chain(&stats.removed) {
        let threshold =
            class.threshold_bytes.map_or_else(|| "-".to_owned(), |bytes| Bytes::new(bytes).to_string());
        table.add_row([
            format!("  {}", class.name),
            class.packets.to_string(),
            class.bytes.to_string(),
            class.sparse.to_string(),
            class.marked.to_string(),
            class.not_ect.to_string(),
            class.drops_not_ect.to_string(),
            class.drops_overload.to_string(),
            class.drops_full.to_string(),
            class.drops_other.to_string(),
            Bytes::new(class.backlog_bytes).to_string(),
            Bytes::new(class.max_backlog_bytes).to_string(),
            threshold,
            class.rtt_ns.map_or_else(|| "-".to_owned(), |ns| rounded(ns).to_string()),
        ]);
    }
    table::within(&table, 1, width)
}

/// Whole microseconds are enough for people.
fn rounded(ns: u64) -> Nanos {
    if ns < 10_000 { Nanos::new(ns) } else { Nanos::from_micros((ns + 500) / 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmcc_port::ClassStats;

    #[test]
    fn each_port_has_a_table() {
        let gold = ClassStats {
            name: "gold".into(),
            packets: 120_000,
            bytes: 181_680_000,
            sparse: 240,
            marked: 3100,
            not_ect: 2,
            drops_full: 3,
            drops_other: 1,
            backlog_bytes: 4542,
            backlog_packets: 3,
            max_backlog_bytes: 30_280,
            threshold_bytes: Some(17_857),
            rtt_ns: Some(312_499),
            drops_not_ect: 7,
            drops_overload: 6,
        };
        let rest = ClassStats { name: "rest".into(), packets: 1, bytes: 60, ..ClassStats::default() };
        let capped = PortStats {
            port: "vnet0".into(),
            backend: Backend::Htb,
            rate_bps: Some(600_000_000),
            rtt_ns: Some(312_499),
            rtt_samples: 77,
            unclassified: 5,
            classes: vec![gold, rest.clone()],
            ..PortStats::default()
        };
        let open = PortStats {
            port: "vnet1".into(),
            backend: Backend::Bpf,
            rate_bps: None,
            rtt_ns: None,
            rtt_samples: 0,
            unclassified: 0,
            classes: vec![rest],
            ..PortStats::default()
        };
        insta::assert_snapshot!(within(&[capped, open], 150));
        let damaged = PortStats {
            port: "vnet2".into(),
            differences: vec!["it is gone".into()],
            ..PortStats::default()
        };
        assert!(
            ports(&[damaged]).starts_with("vnet2: not whole, no counters\n  not as it was set: it is gone\n")
        );
        assert_eq!(ports(&[]), "");
    }
}
