//! The command line that does the same again.

use crate::args::{RunOptions, ScaleChoice};
use std::path::Path;
use vmcc_scenario::Plan;
use vmcc_scenario::shell_word;

/// The command that repeats this run, with engine, seed and number of runs spelled out.
pub(crate) fn command(options: &RunOptions, plan: &Plan, engine: &str, out: Option<&Path>) -> String {
    let mut words = vec!["vmcc".to_owned(), "run".to_owned(), options.scenario.clone()];
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    add("--engine", engine.to_owned());
    for file in &options.common.algorithms {
        add("--algorithm", file.display().to_string());
    }
    for setting in &options.common.set {
        add("--set", setting.clone());
    }
    match options.common.scale {
        ScaleChoice::Full => {}
        ScaleChoice::Small => add("--scale", "small".to_owned()),
        ScaleChoice::Quick => add("--scale", "quick".to_owned()),
    }
    add("--seed", plan.seed.to_string());
    add("--runs", plan.runs.to_string());
    if let Some(out) = out {
        add("--out", out.display().to_string());
    }
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

/// The options that decide how fast it does so, and nothing else.
pub(crate) fn pace(options: &RunOptions) -> String {
    let given = [("--threads", options.common.threads), ("--jobs", options.common.jobs)];
    given.iter().filter_map(|(option, n)| n.map(|n| format!(" {option} {n}"))).collect()
}
