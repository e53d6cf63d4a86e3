//! `vmcc bench sim`: packet-hops per CPU second.

use crate::args::BenchOptions;
use crate::failure::{Exit, Failure, chain};
use crate::table;
use crate::ui::Ui;
use serde::Serialize;
use serde_json::json;
use vmcc_metrics::unit::digits;
use vmcc_sim::bench::{self, BenchError, CASES, Case};

/// Cases that are measured when none is named: those with a floor. The others take long or show one layer.
fn chosen(options: &BenchOptions) -> Result<Vec<Case>, Failure> {
    if options.cases.is_empty() {
        return Ok(CASES.into_iter().filter(|c| c.floor_mhops.is_some()).collect());
    }
    let by_name = |name: &String| Case::by_name(name).map_err(|e| bench_failure(&e));
    options.cases.iter().map(by_name).collect()
}

fn bench_failure(error: &BenchError) -> Failure {
    Failure::usage(chain(error)).help("see `vmcc bench --help`")
}

#[derive(Serialize)]
struct Row {
    case: &'static str,
    title: &'static str,
    threads: u32,
    packet_hops: u64,
    events: u64,
    cpu_s: f64,
    wall_s: f64,
    packet_hops_per_cpu_s: f64,
    peak_rss_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    utilization: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference_packet_hops_per_cpu_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    htsim_packet_hops_per_cpu_s: Option<f64>,
}

pub(super) fn bench(options: &BenchOptions, ui: &Ui) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    for case in chosen(options)? {
        ui.note(&format!("measuring {}", case.name));
        rows.push(measure(&case, options.threads).map_err(|e| bench_failure(&e))?);
    }
    ui.answer(&json!({ "engine": "sim", "cases": rows }), || simulator_text(&rows));
    Ok(Exit::Done)
}

fn measure(case: &Case, threads: u32) -> Result<Row, BenchError> {
    let measured = bench::run(case, threads)?;
    Ok(Row {
        case: case.name,
        title: case.title,
        threads,
        packet_hops: measured.totals.packet_hops,
        events: measured.totals.events,
        cpu_s: measured.cpu_s,
        wall_s: measured.wall_s,
        packet_hops_per_cpu_s: measured.hops_per_cpu_s(),
        peak_rss_bytes: measured.peak_rss_bytes,
        utilization: measured.utilization,
        reference_packet_hops_per_cpu_s: case.floor_mhops.map(|m| m * 1e6),
        htsim_packet_hops_per_cpu_s: case.htsim_mhops.map(|m| m * 1e6),
    })
}

fn simulator_text(rows: &[Row]) -> String {
    let header = [
        "CASE",
        "M HOPS",
        "M EVENTS",
        "CPU [s]",
        "WALL [s]",
        "M HOPS/CPU s",
        "FLOOR",
        "HTSIM",
        "PEAK [MB]",
        "USED",
    ];
    let mut table = table::plain(&header);
    let optional = |v: Option<f64>, scale: f64| v.map_or_else(|| "-".to_owned(), |v| digits(v * scale));
    for r in rows {
        table.add_row([
            r.title.to_owned(),
            digits(r.packet_hops as f64 / 1e6),
            digits(r.events as f64 / 1e6),
            digits(r.cpu_s),
            digits(r.wall_s),
            digits(r.packet_hops_per_cpu_s / 1e6),
            optional(r.reference_packet_hops_per_cpu_s, 1e-6),
            optional(r.htsim_packet_hops_per_cpu_s, 1e-6),
            digits(r.peak_rss_bytes as f64 / 1e6),
            r.utilization.map_or_else(|| "-".to_owned(), |u| format!("{:.1} %", u * 100.0)),
        ]);
    }
    table::align_right_from(&mut table, 1);
    format!(
        "{}\n\nOne hop is one link traversal by a data or ACK packet. FLOOR and HTSIM (csg-htsim, same cases) are \
         figures\nof another machine; USED is the mean share of the line rate that connections got.",
        table::render(&table)
    )
}
