//! Running scenarios in tests.

use std::collections::BTreeMap;

use vmcc_results::RunOutput;
use vmcc_scenario::{CaseFigures, Document, Overrides, Plan, Scale};
use vmcc_sim::{Options, run_case};

pub(crate) fn plan(name_or_text: &str, set: &[&str]) -> Plan {
    plan_at(Scale::Full, name_or_text, set)
}

pub(crate) fn plan_at(scale: Scale, name_or_text: &str, set: &[&str]) -> Plan {
    let document = if name_or_text.contains('\n') {
        Document::parse("test", name_or_text)
    } else {
        Document::open(name_or_text)
    };
    let overrides =
        Overrides { set: set.iter().map(|s| (*s).to_owned()).collect(), scale, ..Overrides::default() };
    document.and_then(|d| d.plan(&overrides)).unwrap_or_else(|e| panic!("{e}"))
}

/// The first case of a plan, with seed 1.
pub(crate) fn run(name_or_text: &str, set: &[&str]) -> RunOutput {
    run_threads(&plan(name_or_text, set), 0, 1, 1)
}

pub(crate) fn run_threads(plan: &Plan, case: usize, seed: u64, threads: u32) -> RunOutput {
    run_case(&plan.cases[case], seed, &Options { threads, ..Options::default() })
        .unwrap_or_else(|e| panic!("{e}"))
}

pub(crate) fn figures(output: &RunOutput) -> BTreeMap<String, f64> {
    output.metrics.figures().into_iter().collect()
}

pub(crate) fn case_figures(plan: &Plan) -> Vec<CaseFigures> {
    let case = |index: usize| CaseFigures {
        set: plan.cases[index].set.clone(),
        runs: vec![figures(&run_threads(plan, index, plan.seed, 1))],
    };
    (0..plan.cases.len()).map(case).collect()
}

/// A figure that the run must have.
#[track_caller]
pub(crate) fn get(output: &RunOutput, name: &str) -> f64 {
    output.metrics.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", output.metrics.figures()))
}

/// A scenario of LIA over two paths alike, which lasts so long; entries of traffic follow.
pub(crate) fn two_paths(duration: &str, rate: &str, delay: &str) -> String {
    format!(
        "title = 't'\nduration = '{duration}'\nwarmup = '1s'\n[host]\ncc = 'lia'\n[topology]\nkind = 'parallel-paths'\npaths = 2\n\
         rate = '{rate}'\ndelay = '{delay}'\nbuffer = '50pkt'\n"
    )
}

/// `got` within a share `tolerance` of `want`.
#[track_caller]
pub(crate) fn near(what: &str, got: f64, want: f64, tolerance: f64) {
    assert!((got / want - 1.0).abs() <= tolerance, "{what}: {got}, expected {want} within {tolerance}");
}
