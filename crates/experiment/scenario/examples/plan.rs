//! Prints the cases of a scenario: `cargo run --example plan -- demo duration=2s`.

use vmcc_scenario::{Document, Overrides, ScenarioError};

fn main() -> Result<(), ScenarioError> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "demo".into());
    let plan = Document::open(&name)?.plan(&Overrides { set: args.collect(), ..Overrides::default() })?;
    for case in &plan.cases {
        println!("{} {:?}", case.index, case.set);
    }
    Ok(())
}
