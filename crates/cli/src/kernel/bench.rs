//! `vmcc bench kernel`: what each algorithm costs in the kernel.

use crate::args::BenchOptions as Options;
use crate::failure::{Exit, Failure, chain};
use crate::kernel::veth::Veth;
use crate::table;
use crate::ui::Ui;
use serde_json::json;
use std::time::Duration;
use vmcc_cc::Algorithm;
use vmcc_host::bench::{self, AlgorithmBench, BenchOptions, REFERENCE, Traffic};
use vmcc_metrics::unit::digits;

/// Longer than the kernel's shortest retransmission timeout: what overshoots in slow start is over by then.
const WARMUP: Duration = Duration::from_millis(250);

/// MPTCP over unshaped veth pairs; a network per number of subflows.
#[derive(Default)]
struct Networks(Vec<Veth>);

impl Traffic for Networks {
    fn transfer(&mut self, kernel_name: &str, subflows: usize, duration: Duration) -> Result<f64, String> {
        if self.0.iter().all(|n| n.paths() != subflows) {
            self.0.push(Veth::new(subflows)?);
        }
        let network = self.0.iter_mut().find(|n| n.paths() == subflows).ok_or("no network")?;
        network.select(kernel_name)?;
        network.throughput(WARMUP, duration)
    }
}

pub(crate) fn bench(options: &Options, ui: &Ui) -> Result<Exit, Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::host("bench kernel: needs root to load BPF programs").help("run it with sudo"));
    }
    let by_name = |name: &String| Algorithm::by_name(name).map_err(Failure::usage);
    let named: Vec<Algorithm> = options.cases.iter().map(by_name).collect::<Result<_, _>>()?;
    let algorithms = if named.is_empty() { Algorithm::all().collect() } else { named };
    let wanted = BenchOptions { algorithms, ..BenchOptions::default() };
    let results = bench::run(&wanted, &mut Networks::default(), &mut |what| ui.note(what))
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
