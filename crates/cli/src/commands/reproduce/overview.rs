//! The result of all figures: one table of claims, each with the paper's number beside ours.

use super::figure::Figure;
use crate::args::ReproduceOptions;
use crate::run::overview::verdict;
use crate::table;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use vmcc_metrics::unit::digits;
use vmcc_results::figure::{claim_needs, claim_value};
use vmcc_results::{ClaimResult, Summary};

/// The answer for people.
pub(super) fn text(figures: &[Figure], index: &Path) -> String {
    let mut text = claims(figures);
    for figure in figures {
        match &figure.outcome {
            Ok(summary) => text.push_str(&analyses(&figure.name, summary)),
            Err(refusal) => drop(write!(text, "\n\n{}: not run: {}", figure.name, refusal.message)),
        }
    }
    let _ = write!(text, "\n\n{}\nReport: {}", total(figures), index.display());
    text
}

fn claims(figures: &[Figure]) -> String {
    let none = || "-".to_owned();
    let mut table = table::plain(&["FIGURE", "CLAIM", "", "PAPER", "OURS", "NEEDS"]);
    for (name, summary) in summaries(figures) {
        for claim in &summary.claims {
            table.add_row([
                name.to_owned(),
                claim.id.clone(),
                verdict(claim),
                claim.paper.clone().unwrap_or_else(none),
                claim_value(claim).unwrap_or_else(none),
                claim_needs(claim).unwrap_or_else(none),
            ]);
        }
    }
    table::render_keyed(&table, 2)
}

/// Reasons for which claims fail.
fn analyses(name: &str, summary: &Summary) -> String {
    let failed = summary.claims.iter().filter(|claim| claim.fails());
    let why = failed.filter_map(|claim| Some((&claim.id, claim.analysis.as_ref().or(claim.note.as_ref())?)));
    why.map(|(id, why)| format!("\n\n{name} {id}: {}", why.trim())).collect()
}

fn total(figures: &[Figure]) -> String {
    let claims = summaries(figures).flat_map(|(_, summary)| &summary.claims);
    let (hold, all) = ClaimResult::tally(claims);
    let cpu_s: f64 = summaries(figures).filter_map(|(_, summary)| summary.work.cpu_s).sum();
    let ran = summaries(figures).count();
    format!(
        "{ran} of {} figures ran, {hold} of {all} claims hold; {} s of CPU time",
        figures.len(),
        digits(cpu_s)
    )
}

fn summaries(figures: &[Figure]) -> impl Iterator<Item = (&str, &Summary)> {
    figures.iter().filter_map(|figure| Some((figure.name.as_str(), figure.outcome.as_ref().ok()?)))
}

/// The answer for programs. Cases and runs are in each figure's `summary.json`.
pub(super) fn document(figures: &[Figure], options: &ReproduceOptions, index: &Path) -> Value {
    let folder = index.parent().unwrap_or(Path::new("."));
    let one = |figure: &Figure| match &figure.outcome {
        Ok(summary) => json!({
            "figure": figure.name,
            "engine": summary.engine,
            "folder": folder.join(&figure.name).join(&summary.engine),
            "page": folder.join(&figure.name).join(vmcc_report::INDEX_FILE),
            "command": summary.environment.command,
            "claims": summary.claims,
            "work": summary.work,
        }),
        Err(refusal) => json!({ "figure": figure.name, "not_run": refusal.message }),
    };
    json!({
        "schema": 1,
        "quick": options.quick,
        "index": index,
        "figures": figures.iter().map(one).collect::<Vec<_>>(),
    })
}
