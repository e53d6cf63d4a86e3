//! `vmcc compare`: the differences between two result folders.

use crate::args::CompareOptions;
use crate::failure::{Exit, Failure, folder_failure};
use crate::table::{self, Tone, toned};
use crate::ui::Ui;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use vmcc_config::did_you_mean;
use vmcc_metrics::catalogue::scale_of;
use vmcc_metrics::unit::digits;
use vmcc_results::Summary;
use vmcc_results::compare::{Compared, Comparison, Condition, Met};
use vmcc_results::figure::columns;
use vmcc_results::folder::read_summary;

pub(crate) fn compare(options: &CompareOptions, ui: &Ui) -> Result<Exit, Failure> {
    let read = |folder: &Path| read_summary(folder).map_err(|e| folder_failure(&e, folder));
    let (before, after) = (read(&options.before)?, read(&options.after)?);
    let comparison = vmcc_results::compare::compare(&before, &after);
    if comparison.cases.is_empty() {
        let (old, new) = (options.before.display(), options.after.display());
        return Err(Failure::usage(format!("{old} and {new} have no case in common"))
            .help("compare results of one scenario that are swept over the same settings"));
    }
    options.fail_if.iter().try_for_each(|condition| check(condition, &comparison))?;
    note_differences(options, (&before, &after), &comparison, ui);
    let verdicts: Vec<Verdict> =
        options.fail_if.iter().flat_map(|condition| verdicts(condition, &comparison)).collect();
    let failed = verdicts.iter().any(|verdict| verdict.failed);
    let document = json!({
        "schema": 1,
        "before": side(&options.before, &before),
        "after": side(&options.after, &after),
        "cases": comparison.cases,
        "only_before": comparison.only_before,
        "only_after": comparison.only_after,
        "conditions": verdicts,
    });
    let columns = [&before, &after].into_iter().flat_map(columns).map(|column| column.name);
    let shown = columns.chain(verdicts.iter().map(|verdict| verdict.metric.clone())).collect();
    ui.answer(&document, || text(&comparison, &shown, &verdicts));
    Ok(if failed { Exit::CheckFailed } else { Exit::Done })
}

/// Checks that some case has the condition's metric.
fn check(condition: &Condition, comparison: &Comparison) -> Result<(), Failure> {
    let names = || comparison.cases.iter().flat_map(|case| case.metrics.keys());
    if names().any(|name| condition.is_about(name)) {
        return Ok(());
    }
    let like = did_you_mean(&condition.metric, names().map(String::as_str));
    let help = like.unwrap_or_else(|| "`vmcc compare --json` has the names of all metrics".to_owned());
    Err(Failure::usage(format!("--fail-if: neither result has a metric `{}`", condition.metric)).help(help))
}

/// Notes what the two results do not have in common.
fn note_differences(
    options: &CompareOptions,
    (before, after): (&Summary, &Summary),
    comparison: &Comparison,
    ui: &Ui,
) {
    for (what, old, new) in
        [("scenario", &before.scenario, &after.scenario), ("engine", &before.engine, &after.engine)]
    {
        if old != new {
            ui.warn(&format!("the results differ in their {what}: {old} and {new}"));
        }
    }
    for (folder, cases) in
        [(&options.before, &comparison.only_before), (&options.after, &comparison.only_after)]
    {
        if !cases.is_empty() {
            ui.warn(&format!("only in {}, and not compared: {}", folder.display(), cases.join("; ")));
        }
    }
}

fn side(folder: &Path, summary: &Summary) -> Value {
    json!({
        "folder": folder,
        "scenario": summary.scenario,
        "engine": summary.engine,
        "vmcc": summary.environment.vmcc,
    })
}

/// A condition in one case.
#[derive(Debug, Serialize)]
struct Verdict {
    condition: Condition,
    case: String,
    metric: String,
    failed: bool,
    /// Reason why the condition is met or could not be judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

fn verdicts(condition: &Condition, comparison: &Comparison) -> Vec<Verdict> {
    let mut all = Vec::new();
    for case in &comparison.cases {
        for (name, compared) in case.metrics.iter().filter(|(name, _)| condition.is_about(name)) {
            let met = condition.judge(compared);
            all.push(Verdict {
                condition: condition.clone(),
                case: case.name.clone(),
                metric: name.clone(),
                failed: matches!(met, Met::Yes | Met::Unknown),
                note: match met {
                    Met::Yes | Met::No => None,
                    Met::Uncertain => Some(
                        "the difference is beyond the limit, a part of its interval is not: more runs decide",
                    ),
                    Met::Unknown => Some("one result has no value, or a percentage of zero is asked for"),
                },
            });
        }
    }
    all
}

/// Mark of a difference whose confidence interval leaves out zero.
const DIFFERS: &str = "*";

/// The metrics of the table of cases and those of conditions.
fn text(comparison: &Comparison, shown: &BTreeSet<String>, verdicts: &[Verdict]) -> String {
    let mut lines = table::plain(&["CASE", "METRIC", "BEFORE", "AFTER", "DIFFERENCE"]);
    let mut any_differs = false;
    for case in &comparison.cases {
        let is_shown = |name: &str| {
            shown.contains(name) || name.strip_suffix(".mean").is_some_and(|name| shown.contains(name))
        };
        for (name, compared) in case.metrics.iter().filter(|(name, _)| is_shown(name)) {
            lines.add_row(row(&case.name, name, compared));
            any_differs |= differs(compared);
        }
    }
    let mut text = table::render_keyed(&lines, 2);
    if any_differs {
        text.push_str(&format!("\n\n {DIFFERS} differs: the 95 % confidence interval leaves out zero"));
    }
    if !verdicts.is_empty() {
        let mut lines = table::plain(&["FAIL IF", "CASE", "", "NOTE"]);
        for Verdict { condition, case, metric, failed, note } in verdicts {
            let verdict = if *failed { toned("FAIL", Tone::Bad) } else { toned("pass", Tone::Good) };
            let condition = format!("{metric} {}", limit(condition));
            lines.add_row([condition.as_str(), case.as_str(), verdict.as_str(), note.unwrap_or_default()]);
        }
        text.push_str(&format!("\n\n{}", table::render_keyed(&lines, 2)));
    }
    text
}

fn differs(compared: &Compared) -> bool {
    compared.difference.is_some_and(|found| found.is_certain())
}

fn limit(condition: &Condition) -> String {
    let relation = if condition.above { ">" } else { "<" };
    match condition.relative {
        true => format!("{relation} {} %", digits(condition.limit * 100.0)),
        false => format!("{relation} {}", digits(condition.limit)),
    }
}

/// A row: means in the unit in which the larger reads well, the difference in per cent where there is a first mean to relate it to.
fn row(case: &str, name: &str, compared: &Compared) -> [String; 5] {
    let values = [compared.before, compared.after];
    let scale =
        scale_of(name, values.iter().flatten().fold(0.0, |largest: f64, value| largest.max(value.abs())));
    let mean = |value: Option<f64>| {
        value.map_or_else(
            || "-".to_owned(),
            |v| format!("{} {}", digits(v / scale.divisor), scale.unit).trim_end().to_owned(),
        )
    };
    let found = compared.difference;
    let difference = found.map_or_else(String::new, |found| {
        let (value, half, unit) = match found.relative {
            Some(relative) => (100.0 * relative, found.relative_half_width.map(|half| 100.0 * half), "%"),
            None => (
                found.difference / scale.divisor,
                found.half_width.map(|half| half / scale.divisor),
                scale.unit,
            ),
        };
        let half = half.map_or_else(String::new, |half| format!(" ± {}", digits(half)));
        let shown = digits(value);
        let sign =
            if value > 0.0 && shown.contains(|digit: char| ('1'..='9').contains(&digit)) { "+" } else { "" };
        let mark = if differs(compared) { DIFFERS } else { "" };
        let text = format!("{sign}{shown}{half} {unit}");
        format!("{} {mark}", text.trim_end()).trim_end().to_owned()
    });
    [case.to_owned(), name.to_owned(), mean(values[0]), mean(values[1]), difference]
}
