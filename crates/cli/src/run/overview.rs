//! The result for people: a table of cases with confidence intervals, and the claims.

use crate::table::{self, Tone, toned};
use crate::ui::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use vmcc_metrics::catalogue::base_name;
use vmcc_results::figure::{
    Column, claim_needs, claim_value, column, columns, common_settings, entries, mean_text, varying_keys,
};
use vmcc_results::parquet_files::plain_text;
use vmcc_results::{ClaimResult, Summary};
use vmcc_scenario::Claim;

/// The table of cases, with the metrics that are `chosen`, or else those that the catalogue shows.
pub(crate) fn cases(summary: &Summary, chosen: &[String]) -> String {
    let (keys, shown) = (varying_keys(summary), columns(summary));
    let of = |name: &String| {
        let own = shown.iter().find(|column| column.name == *name).cloned();
        own.or_else(|| column(summary, name, name))
    };
    let columns = if chosen.is_empty() { shown.clone() } else { chosen.iter().filter_map(of).collect() };
    let mut header: Vec<String> = keys.clone();
    header.extend(columns.iter().map(|c| match c.scale.unit {
        "" => c.title.clone(),
        unit => format!("{}\n{unit}", c.title),
    }));
    let mut table = table::plain(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for (row, case) in summary.cases.iter().enumerate() {
        let settings = keys.iter().map(|k| case.set.get(k).map_or_else(String::new, plain_text));
        let figures =
            columns.iter().map(|c| c.cells[row].map_or_else(String::new, |v| mean_text(v, c.scale)));
        table.add_row(settings.chain(figures).collect::<Vec<String>>());
    }
    table::align_right_from(&mut table, keys.len());
    table::render_keyed(&table, keys.len())
}

/// Warnings of metrics that were chosen and that no run has: one for each place, with the metrics that were measured there.
pub(crate) fn unmeasured(summary: &Summary, chosen: &[String]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for name in chosen.iter().filter(|name| column(summary, name, name).is_none()) {
        places.entry(place_of(name)).or_default().push(format!("`{name}`"));
    }
    let one = |(place, missing): (&str, Vec<String>)| {
        let there = measured(summary, place);
        let there = if there.is_empty() { "nothing".to_owned() } else { there.join(", ") };
        format!("--columns: no run measured {}; measured there: {there}", missing.join(", "))
    };
    places.into_iter().map(one).collect()
}

/// Beginning of a metric's dotted name, up to the metric: `paths.a.`, and nothing for the whole run.
fn place_of(name: &str) -> &str {
    name.rfind(base_name(name)).map_or("", |at| &name[..at])
}

/// Dotted names of the metrics of a place that some run has, without their statistics.
fn measured(summary: &Summary, place: &str) -> Vec<String> {
    let runs = summary.cases.iter().flat_map(|case| &case.runs);
    let figures: BTreeSet<String> =
        runs.flat_map(|run| run.metrics.figures()).map(|(name, _)| name).collect();
    let of_place = figures.iter().filter(|name| place_of(name) == place);
    let metrics: BTreeSet<String> = of_place.map(|name| format!("{place}{}", base_name(name))).collect();
    metrics.into_iter().collect()
}

/// Rows of the table of traffic that a terminal still shows.
const MAX_ROWS: usize = 24;

/// The table of the entries of traffic, a row for each in each case; empty where there are too many, or only one.
pub(crate) fn traffic(summary: &Summary) -> String {
    let (keys, entries) = (varying_keys(summary), entries(summary));
    let Some((_, columns)) = entries.first().filter(|_| entries.len() * summary.cases.len() <= MAX_ROWS)
    else {
        return String::new();
    };
    let titles = columns.iter().map(|column| column.title.clone());
    let header: Vec<String> = keys.iter().cloned().chain(["entry".to_owned()]).chain(titles).collect();
    let mut table = table::plain(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for (row, case) in summary.cases.iter().enumerate() {
        for (name, columns) in &entries {
            let settings = keys.iter().map(|k| case.set.get(k).map_or_else(String::new, plain_text));
            let cell = |column: &Column| {
                column.cells[row].map(|v| format!("{} {}", mean_text(v, column.scale), column.scale.unit))
            };
            let figures = columns.iter().map(|column| cell(column).unwrap_or_default().trim_end().to_owned());
            table.add_row(settings.chain([name.clone()]).chain(figures).collect::<Vec<String>>());
        }
    }
    table::align_right_from(&mut table, keys.len() + 1);
    table::render_keyed(&table, keys.len() + 1)
}

/// One line per claim; `not_applicable` are those that nothing is said about.
pub(crate) fn claims(claims: &[ClaimResult], not_applicable: &[Claim]) -> String {
    let none = || "-".to_owned();
    let mut table = table::plain(&["CLAIM", "", "OURS", "NEEDS", "PAPER", "CHECK"]);
    for claim in claims {
        let check = match &claim.note {
            Some(note) if !claim.pass => format!("{} ({note})", claim.check),
            _ => claim.check.clone(),
        };
        table.add_row([
            claim.id.clone(),
            verdict(claim),
            claim_value(claim).unwrap_or_else(none),
            claim_needs(claim).unwrap_or_else(none),
            claim.paper.clone().unwrap_or_else(none),
            check,
        ]);
    }
    for Claim { spec, .. } in not_applicable {
        let paper = spec.paper.as_deref().unwrap_or("-");
        table.add_row([spec.id.as_str(), "-", "-", "-", paper, &spec.check]);
    }
    let analyses = claims.iter().filter_map(|claim| {
        claim.analysis.as_ref().map(|analysis| format!("\n\n{}: {}", claim.id, analysis.trim()))
    });
    table::render(&table) + &analyses.collect::<String>()
}

/// A claim's verdict in a table.
pub(crate) fn verdict(claim: &ClaimResult) -> String {
    match claim {
        ClaimResult { unmeasured: true, .. } => toned("not measured here", Tone::Unknown),
        ClaimResult { pass: true, .. } => toned("pass", Tone::Good),
        _ => toned("FAIL", Tone::Bad),
    }
}

/// Summary of what ran, in two lines.
pub(crate) fn headline(summary: &Summary) -> String {
    let runs: usize = summary.cases.iter().map(|c| c.runs.len()).sum();
    let mut line = summary.scenario.clone();
    if let Some(title) = &summary.title {
        let _ = write!(line, ": {title}");
    }
    let interval = if runs > summary.cases.len() { ", mean ± 95 % confidence interval" } else { "" };
    let common = common_settings(summary);
    let common = if common.is_empty() { String::new() } else { format!(", {}", common.join(", ")) };
    let _ = write!(line, "\n{}, engine {}{common}{interval}", counted(runs, "run"), summary.engine);
    line
}
