//! Finished runs as one summary.

use crate::environment::{self, environment};
use crate::{Engine, claims};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use vmcc_results::folder::{RunIndex, StoredRun};
use vmcc_results::{Case, Environment, Run, SCHEMA_VERSION, Summary, Work};
use vmcc_scenario::Plan;

type Finished = BTreeMap<RunIndex, StoredRun>;

/// The summary of what is `finished`, which took `cpu_s` of this process.
pub(crate) fn of(
    plan: &Plan,
    engine: &dyn Engine,
    finished: &Finished,
    cpu_s: Option<f64>,
    command: String,
) -> Summary {
    let cases = cases(plan, finished);
    Summary {
        schema: SCHEMA_VERSION,
        scenario: plan.name.clone(),
        title: Some(plan.title.clone()),
        source: plan.source.clone(),
        engine: engine.name().to_owned(),
        environment: with_facts(environment(command), engine),
        claims: claims::check(plan, engine.name(), &cases),
        cases,
        work: work(finished, cpu_s),
        warnings: warnings(plan, finished),
    }
}

fn cases(plan: &Plan, finished: &Finished) -> Vec<Case> {
    let of = |index: usize| {
        let runs = (0..plan.runs).filter_map(|run| finished.get(&(index as u32, run)));
        runs.map(|r| Run { seed: r.seed, metrics: r.metrics.clone() }).collect()
    };
    let case = |(index, case): (usize, &vmcc_scenario::ResolvedCase)| Case {
        set: case.set.clone(),
        warmup_us: case.scenario.warmup.get() / 1_000,
        runs: of(index),
    };
    plan.cases.iter().enumerate().map(case).collect()
}

fn work(finished: &Finished, cpu_s: Option<f64>) -> Work {
    let mut work = finished.values().map(|r| r.work).fold(Work::default(), Work::plus);
    work.cpu_s = cpu_s.or(work.cpu_s);
    work.peak_rss_bytes = work.peak_rss_bytes.max(environment::peak_rss_bytes());
    work
}

fn with_facts(mut environment: Environment, engine: &dyn Engine) -> Environment {
    for (key, value) in engine.facts() {
        match key.as_str() {
            "kernel" => environment.kernel = Some(value),
            _ => drop(environment.extra.insert(key, json!(value))),
        }
    }
    environment
}

/// Each warning once, in the order of the runs.
fn warnings(plan: &Plan, finished: &Finished) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let all = finished.values().flat_map(|run| &run.warnings);
    let mut warnings: Vec<String> = all.filter(|w| seen.insert(w.as_str())).cloned().collect();
    warnings.extend(claims::not_applicable(plan));
    warnings
}
