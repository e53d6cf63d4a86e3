//! Detectors of shared bottlenecks on labelled cases:
//! `cargo run --release -p vmcc-sim --example sharing -- 1..400 [rounds=256] [correlation counts-3 events ..]`.
//!
//! Prints, by setting and detector: cases; subflows closed rightly, left though they share, NICs that lost their last
//! subflow, NICs that kept one; precision, recall and F of these; the median time from when subflows began to share to
//! the close, in round trips with queue; payload delivered, in percent more than without a detector.
//! `scenario SEED` prints a case's scenario instead.

mod cases;
mod score;

use std::collections::BTreeMap;
use std::error::Error;

use cases::Case;
use score::Score;
use vmcc_metrics::observed::Connection;
use vmcc_scenario::{Document, Overrides};
use vmcc_sim::{Options, observe_case};

/// Name and settings of an algorithm; `{rtt}` is a round trip with queue, in milliseconds, `{rtt/8}` an eighth of it.
const DETECTORS: [(&str, &str); 9] = [
    ("off", "params.vmcc.trigger = 0"),
    ("correlation", "params.vmcc.detector = \"correlation\""),
    ("pooled", "pool_routes = true\nparams.vmcc.detector = \"correlation\""),
    ("counts-3", "params.vmcc.detector = \"counts\""),
    ("counts-5", "params.vmcc = { detector = \"counts\", theta = 5, phi = 0.14 }"),
    ("events", "params.vmcc.detector = \"events\""),
    ("events-rtt", "params.vmcc = { detector = \"events\", interval = {rtt/8} }"),
    ("statistics", "params.vmcc.detector = \"statistics\""),
    ("statistics-rtt", "params.vmcc = { detector = \"statistics\", interval = {rtt} }"),
];

fn run(case: &Case, host: &str) -> Result<Vec<Connection>, Box<dyn Error>> {
    let rtt_ms = case.loaded_us as f64 / 1e3;
    let host = host.replace("{rtt}", &rtt_ms.to_string()).replace("{rtt/8}", &(rtt_ms / 8.0).to_string());
    let text = case.scenario(&host);
    let plan = Document::parse("case", &text).and_then(|d| d.plan(&Overrides::default()));
    let plan = plan.map_err(|e| format!("{e}\n{text}"))?;
    let seen = observe_case(&plan.cases[0], case.seed, &Options { threads: 1, ..Options::default() })?;
    let own = |connection: &Connection| seen.entries[connection.entry].label == "own";
    Ok(seen.connections.iter().filter(|connection| own(connection)).cloned().collect())
}

fn delivered(flows: &[Connection]) -> f64 {
    flows.iter().map(|flow| flow.delivered_bytes as f64).sum()
}

fn settings(case: &Case) -> Vec<String> {
    let apart = case.nics.iter().max().map_or(0, |most| most + 1) == case.nics.len();
    let together = case.nics.iter().all(|nic| *nic == 0);
    let partition = if apart {
        "apart"
    } else if together {
        "together"
    } else {
        "some share"
    };
    vec![
        "all".into(),
        format!("signal {:?}", case.signal),
        format!("kin {:?}", case.kin),
        format!("kin {:?}, {partition}", case.kin),
        format!("beside {:?}", case.beside),
        format!("connections {:3}", case.connections),
        format!("connections {:3}, {:?}", case.connections, case.signal),
        format!("subflows {}", case.nics.len()),
        format!("rate {}..", 10u64.pow(case.rate_mbit.ilog10())),
        format!("rtt {}..", 10u64.pow(case.rtt_us.ilog10())),
    ]
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rounds = args.iter().find_map(|a| a.strip_prefix("rounds=")).map_or(Ok(256), str::parse)?;
    if let [first, seed] = args.as_slice()
        && first == "scenario"
    {
        println!("{}", Case::new(seed.parse()?, rounds).scenario(DETECTORS[1].1));
        return Ok(());
    }
    let (from, to) = args.first().and_then(|a| a.split_once("..")).ok_or("which seeds? such as 1..400")?;
    let verbose = args.iter().any(|a| a == "verbose");
    let chosen: Vec<_> =
        DETECTORS[1..].iter().filter(|(name, _)| args.len() < 2 || args.iter().any(|a| a == name)).collect();
    let mut table: BTreeMap<(String, &str), Score> = BTreeMap::new();
    for seed in from.parse::<u64>()?..to.parse()? {
        let case = Case::new(seed, rounds);
        let undisturbed = delivered(&run(&case, DETECTORS[0].1)?);
        for (name, host) in &chosen {
            let flows = run(&case, host)?;
            let mut score = Score { cases: 1, delivered: delivered(&flows), undisturbed, ..Score::default() };
            flows.iter().for_each(|flow| score.connection(&case, flow));
            if verbose {
                println!("{} {name:14} {seed} {case:?}", score.row());
            }
            settings(&case).into_iter().for_each(|s| table.entry((s, *name)).or_default().add(&score));
        }
    }
    println!(
        "{:28} {:14} cases  right missed  wrong   kept  precis. recall     F   rounds goodput",
        "setting", "detector"
    );
    for ((setting, name), score) in &table {
        println!("{setting:28} {name:14} {}", score.row());
    }
    Ok(())
}
