//! `vmcc bench port`: how exact a port is, and what it costs.

use crate::args::BenchOptions;
use crate::failure::{Exit, Failure, agent_failure, chain};
use crate::table;
use crate::ui::Ui;
use serde_json::json;
use vmcc_lab::bench::port::{self, CASES, Cap, Cost, Many, Qdisc, Ratio, Report, Share};
use vmcc_metrics::unit::digits;

pub(super) fn bench(options: &BenchOptions, ui: &Ui) -> Result<Exit, Failure> {
    if let Some(unknown) = options.cases.iter().find(|case| !CASES.contains(&case.as_str())) {
        let known = CASES.join(", ");
        return Err(Failure::usage(format!("bench port: no case `{unknown}`; there are {known}")));
    }
    vmcc_agent::needs_root("bench port: needs root to serve ports").map_err(|e| agent_failure(&e))?;
    let wanted = |case: &str| options.cases.is_empty() || options.cases.iter().any(|named| named == case);
    let report = port::measure(&wanted, &mut |what| ui.note(what)).map_err(|e| Failure::host(chain(&e)))?;
    ui.answer(&json!(report), || text(&report));
    Ok(Exit::Done)
}

fn percent(value: f64) -> String {
    format!("{:.2} %", value * 100.0)
}

fn list(values: impl Iterator<Item = String>) -> String {
    values.collect::<Vec<_>>().join(" : ")
}

fn text(report: &Report) -> String {
    let mut parts = vec![format!("Linux {}, {} CPUs", report.kernel, report.cpus)];
    if !report.caps.is_empty() {
        parts.push(format!("Caps\n{}", caps(&report.caps)));
    }
    if !report.shares.is_empty() {
        parts.push(format!("Shares\n{}", shares(&report.shares)));
    }
    parts.extend(report.cost.as_ref().map(cost));
    if !report.uncapped.is_empty() {
        let title = "Throughput of an uncapped port with marking beside none, in turns (median of the pairs)";
        parts.push(format!("{title}\n{}", ratios(&report.uncapped)));
    }
    parts.extend(report.many.as_ref().map(many));
    parts.join("\n\n")
}

fn caps(caps: &[Cap]) -> String {
    let mut table = table::plain(&["CAP [Mbit/s]", "SENT [Mbit/s]", "ERROR", "LOOKS", "OFFLOAD"]);
    for one in caps {
        table.add_row([
            digits(one.rate_bps as f64 / 1e6),
            digits(one.sent_bps / 1e6),
            percent(one.error),
            one.looks_bps.iter().map(|bps| digits(bps / 1e6)).collect::<Vec<_>>().join(" "),
            if one.offload { "on" } else { "off" }.to_owned(),
        ]);
    }
    table::render(&table)
}

fn shares(shares: &[Share]) -> String {
    let mut table = table::plain(&["WEIGHTS", "SHARES", "LARGEST ERROR", "SENT [Mbit/s]"]);
    for one in shares {
        table.add_row([
            list(one.weights.iter().map(u32::to_string)),
            list(one.shares.iter().map(|share| percent(*share))),
            percent(one.error),
            digits(one.sent_bps / 1e6),
        ]);
    }
    table::render(&table)
}

fn cost(cost: &Cost) -> String {
    let header = ["PROGRAMS", "BACKEND", "PACKETS", "TC OUT", "TC IN", "ENQUEUE", "DEQUEUE", "CALLS"];
    let mut programs = table::plain(&header);
    for one in &cost.programs {
        let of_qdisc = |value: fn(&Qdisc) -> f64| {
            one.qdisc.as_ref().map_or_else(|| "-".to_owned(), |qdisc| digits(value(qdisc)))
        };
        programs.add_row([
            one.configuration.to_owned(),
            one.backend.to_owned(),
            one.packets.to_string(),
            digits(one.tc_out_ns),
            digits(one.tc_in_ns),
            of_qdisc(|qdisc| qdisc.enqueue_ns),
            of_qdisc(|qdisc| qdisc.dequeue_ns),
            of_qdisc(|qdisc| qdisc.dequeue_calls),
        ]);
    }
    table::align_right_from(&mut programs, 2);
    let mut end_to_end = table::plain(&["END TO END", "ns/PACKET", "QUARTILES", "THE PORT"]);
    let least = cost.end_to_end.first().map_or(0.0, |one| one.ns_per_packet);
    for one in &cost.end_to_end {
        end_to_end.add_row([
            one.configuration.clone(),
            digits(one.ns_per_packet),
            format!("{} to {}", digits(one.lower_quartile), digits(one.upper_quartile)),
            digits(one.ns_per_packet - least),
        ]);
    }
    table::align_right_from(&mut end_to_end, 1);
    format!(
        "Cost of the programs at {} Mbit/s, ns per packet by the kernel's BPF statistics; each call counts {} of its own. \
         CALLS: of dequeue, per packet\n{}\n\nA datagram's whole way through a queue that is empty, and what of it is \
         the port\n{}",
        digits(cost.rate_bps as f64 / 1e6),
        digits(cost.statistics_ns),
        table::render(&programs),
        table::render(&end_to_end),
    )
}

fn ratios(ratios: &[Ratio]) -> String {
    let header = ["OFFLOAD", "WITH / WITHOUT", "QUARTILES", "WITH [Gbit/s]", "WITHOUT", "PAIRS"];
    let mut table = table::plain(&header);
    for one in ratios {
        table.add_row([
            if one.offload { "on" } else { "off" }.to_owned(),
            percent(one.median),
            format!("{} to {}", percent(one.lower_quartile), percent(one.upper_quartile)),
            digits(one.with_bps / 1e9),
            digits(one.without_bps / 1e9),
            one.pairs_bps.len().to_string(),
        ]);
    }
    table::render(&table)
}

fn many(many: &Many) -> String {
    format!(
        "{} ports of {} Mbit/s with {} connections: each sent {} to {} Mbit/s; {} marked, {} dropped; attaching took {} \
         ms per port",
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
