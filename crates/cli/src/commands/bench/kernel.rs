//! `vmcc bench kernel`: what each algorithm costs in the kernel.

use crate::args::BenchOptions;
use crate::failure::{Exit, Failure, agent_failure, chain};
use crate::table;
use crate::ui::Ui;
use serde_json::json;
use vmcc_bpf::bench::{AlgorithmBench, REFERENCE};
use vmcc_cc::Algorithm;
use vmcc_metrics::unit::digits;

pub(super) fn bench(options: &BenchOptions, ui: &Ui) -> Result<Exit, Failure> {
    if let Some(count) = options.connections {
        return super::connections::bench(count as usize, ui);
    }
    vmcc_agent::needs_root("bench kernel: needs root to load BPF programs").map_err(|e| agent_failure(&e))?;
    let by_name = |name: &String| Algorithm::by_name(name).map_err(Failure::usage);
    let named: Vec<Algorithm> = options.cases.iter().map(by_name).collect::<Result<_, _>>()?;
    let algorithms = if named.is_empty() { Algorithm::all().collect() } else { named };
    let results = vmcc_lab::bench::algorithms(algorithms, &mut |what| ui.note(what))
        .map_err(|e| Failure::host(chain(&e)))?;
    ui.answer(&json!({ "engine": "kernel", "algorithms": results }), || text(&results));
    Ok(Exit::Done)
}

fn text(results: &[AlgorithmBench]) -> String {
    let mut hooks = table::plain(&["ALGORITHM", "SUBFLOWS", "ACKS", "ns/ACK", "Gbit/s", "ns PER CALL"]);
    let mut ratios = table::plain(&["ALGORITHM", "SUBFLOWS", "RATIO", "MIN", "MAX", "PAIRS", "B/CONNECTION"]);
    for one in results {
        for cost in &one.costs {
            let calls = cost.callbacks.iter().map(|c| format!("{} {:.0}", c.callback, c.ns_per_call));
            hooks.add_row([
                one.kernel_name.to_owned(),
                cost.subflows.to_string(),
                cost.acks.to_string(),
                digits(cost.ns_per_ack),
                digits(cost.goodput_bps / 1e9),
                calls.collect::<Vec<_>>().join(", "),
            ]);
        }
        let goodput = &one.goodput;
        ratios.add_row([
            one.kernel_name.to_owned(),
            goodput.subflows.to_string(),
            digits(goodput.median),
            digits(goodput.min),
            digits(goodput.max),
            goodput.pairs_bps.len().to_string(),
            one.bytes_per_connection.map_or_else(|| "-".to_owned(), |b| b.to_string()),
        ]);
    }
    format!(
        "Cost of the callbacks, from the kernel's BPF statistics\n{}\n\nGoodput beside the kernel's own {REFERENCE}, \
         in turns (median of the pairs)\n{}",
        table::render(&hooks),
        table::render(&ratios)
    )
}
