//! The scenario's claims, checked against what was measured.

use vmcc_metrics::catalogue::{self, Engines};
use vmcc_metrics::stats::mean_ci95;
use vmcc_results::{Case, ClaimResult, Needs};
use vmcc_scenario::{CaseFigures, Claim, ClaimError, ClaimSpec, Plan};

/// The engine that an analysis is about unless it says otherwise.
const SIMULATOR: &str = "sim";

/// Every claim that compares cases of this run, decided.
pub(crate) fn check(plan: &Plan, engine: &str, cases: &[Case]) -> Vec<ClaimResult> {
    let figures: Vec<CaseFigures> = cases
        .iter()
        .map(|case| CaseFigures {
            set: case.set.clone(),
            runs: case.runs.iter().map(|r| r.metrics.figures().into_iter().collect()).collect(),
        })
        .collect();
    plan.claims.iter().map(|claim| decide(claim, engine, &figures)).collect()
}

fn decide(claim: &Claim, engine: &str, figures: &[CaseFigures]) -> ClaimResult {
    let spec = &claim.spec;
    let evaluated = claim.evaluate(figures);
    let unmeasured = evaluated.as_ref().is_err_and(needs_counters);
    let (verdict, problem) = match evaluated {
        Ok(verdict) => (Some(verdict), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let pass = verdict.as_ref().is_some_and(|v| v.pass);
    let half_width = if verdict.is_some() { half_width(claim, figures) } else { None };
    let (value, bound) = verdict.map_or((None, None), |v| (v.value, v.bound));
    ClaimResult {
        id: spec.id.clone(),
        check: spec.check.clone(),
        paper: spec.paper.clone(),
        value,
        half_width,
        metric: value.and_then(|_| claim.left_metric().map(str::to_owned)),
        needs: bound.map(|b| Needs { relation: b.relation, value: b.value }),
        pass,
        unmeasured,
        note: problem.or_else(|| spec.note.clone()),
        analysis: analysis(spec, engine).filter(|_| !pass && !unmeasured),
    }
}

/// Returns true if nothing is missing but counters that few machines have.
fn needs_counters(error: &ClaimError) -> bool {
    let ClaimError::Missing { metric, .. } = error else { return false };
    catalogue::named(catalogue::base_name(metric)).is_some_and(|metric| metric.engines == Engines::Counters)
}

/// Known reason of a failure on this engine, or else on another.
fn analysis(spec: &ClaimSpec, engine: &str) -> Option<String> {
    let own = if engine == SIMULATOR { &spec.analysis } else { &spec.kernel_analysis };
    own.clone().or_else(|| spec.analysis.clone())
}

/// Half the width of the confidence interval of the claim's number over the seeds, each of which decides it alone.
fn half_width(claim: &Claim, figures: &[CaseFigures]) -> Option<f64> {
    let seeds = figures.iter().map(|case| case.runs.len()).min()?;
    let alone = |seed: usize| -> Vec<CaseFigures> {
        let only = |case: &CaseFigures| CaseFigures {
            set: case.set.clone(),
            runs: case.runs.get(seed).into_iter().cloned().collect(),
        };
        figures.iter().map(only).collect()
    };
    let values: Option<Vec<f64>> =
        (0..seeds).map(|seed| claim.evaluate(&alone(seed)).ok().and_then(|verdict| verdict.value)).collect();
    mean_ci95(&values?)?.half_width
}

/// Note on claims whose cases the user took out.
pub(crate) fn not_applicable(plan: &Plan) -> Option<String> {
    let names: Vec<&str> = plan.not_applicable.iter().map(|claim| claim.spec.id.as_str()).collect();
    match names.as_slice() {
        [] => None,
        [one] => Some(format!("claim {one} is not checked: --set took out cases that it compares")),
        many => Some(format!(
            "claims {} are not checked: --set took out cases that they compare",
            many.join(", ")
        )),
    }
}
