//! What `vmcc bench port` prints.

use super::Report;
use crate::table;
use vmcc_results::figure::digits;

fn percent(value: f64) -> String {
    format!("{:.2} %", value * 100.0)
}

/// The report for a person.
pub(super) fn of(report: &Report) -> String {
    let mut caps = table::plain(&["CAP [Mbit/s]", "SENT [Mbit/s]", "ERROR", "LOOKS", "OFFLOAD"]);
    for one in &report.caps {
        caps.add_row([
            digits(one.rate_bps as f64 / 1e6),
            digits(one.sent_bps / 1e6),
            percent(one.error),
            one.looks_bps.iter().map(|bps| digits(bps / 1e6)).collect::<Vec<_>>().join(" "),
            if one.offload { "on" } else { "off" }.to_owned(),
        ]);
    }
    let mut shares = table::plain(&["WEIGHTS", "SHARES", "LARGEST ERROR", "SENT [Mbit/s]"]);
    for one in &report.shares {
        let list = |values: Vec<String>| values.join(" : ");
        shares.add_row([
            list(one.weights.iter().map(u32::to_string).collect()),
            list(one.shares.iter().map(|share| percent(*share)).collect()),
            percent(one.error),
            digits(one.sent_bps / 1e6),
        ]);
    }
    let mut costs = table::plain(&["PROGRAM", "PACKETS", "ns/PACKET OUT", "ns/PACKET IN"]);
    for one in &report.costs {
        costs.add_row([
            one.configuration.to_owned(),
            one.packets.to_string(),
            digits(one.ns_per_packet_out),
            digits(one.ns_per_packet_in),
        ]);
    }
    let mut ratios =
        table::plain(&["OFFLOAD", "WITH / WITHOUT", "QUARTILES", "WITH [Gbit/s]", "WITHOUT", "PAIRS"]);
    for one in &report.uncapped {
        ratios.add_row([
            if one.offload { "on" } else { "off" }.to_owned(),
            percent(one.median),
            format!("{} to {}", percent(one.lower_quartile), percent(one.upper_quartile)),
            digits(one.with_bps / 1e9),
            digits(one.without_bps / 1e9),
            one.pairs_bps.len().to_string(),
        ]);
    }
    let many = &report.many;
    format!(
        "Linux {}, {} CPUs\n\nCaps\n{}\n\nShares\n{}\n\nCost of the programs, from the kernel's BPF statistics (with \
         its clock)\n{}\n\nThroughput of an uncapped port with marking beside none, in turns (median of the pairs)\n{}\n\n\
         {} ports of {} Mbit/s with {} connections: each sent {} to {} Mbit/s; {} marked, {} dropped; attaching took \
         {} ms per port",
        report.kernel,
        report.cpus,
        table::render(&caps),
        table::render(&shares),
        table::render(&costs),
        table::render(&ratios),
        many.ports,
        digits(many.rate_bps as f64 / 1e6),
        many.flows,
        digits(many.least_bps / 1e6),
        digits(many.most_bps / 1e6),
        many.marked,
        many.drops,
        digits(many.attach_ms_per_port),
    )
}
