//! Runs the cases of a scenario and prints their figures: `cargo run --release --example case -- demo seed=2`.

use std::error::Error;

use vmcc_scenario::{CaseFigures, Document, Overrides};
use vmcc_sim::{Options, run_case};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "demo".into());
    let plan = Document::open(&name)?.plan(&Overrides { set: args.collect(), ..Overrides::default() })?;
    let mut figures = Vec::new();
    for case in &plan.cases {
        println!("{}", serde_json::to_string(&case.set)?);
        let mut runs = Vec::new();
        for run in 0..u64::from(plan.runs) {
            let output = run_case(case, plan.seed + run, &Options { threads: 1, ..Options::default() })?;
            for (name, value) in output.metrics.figures() {
                println!("  {name} = {value:.4}");
            }
            println!(
                "  work {:?}, {} flows, {} points",
                output.work,
                output.flows.len(),
                output.series.len()
            );
            output.warnings.iter().for_each(|w| println!("  warning: {w}"));
            runs.push(output.metrics.figures().into_iter().collect());
        }
        figures.push(CaseFigures { set: case.set.clone(), runs });
    }
    for claim in &plan.claims {
        println!("{}: {:?}", claim.spec.id, claim.evaluate(&figures));
    }
    Ok(())
}
