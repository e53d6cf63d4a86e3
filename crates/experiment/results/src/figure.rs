//! The figures of a summary as people read them: which of them belong into a table, over runs and cases.

use crate::parquet_files::plain_text;
use crate::{Case, ClaimResult, Summary};
use std::collections::BTreeMap;
use vmcc_metrics::catalogue::{self, Metric, Place, scale_of};
use vmcc_metrics::stats::{MeanCi, mean_ci95};
use vmcc_metrics::unit::{Scale, compact, digits};

/// More paths than this would make the table unreadable.
const MAX_PATH_COLUMNS: usize = 4;

/// A figure over all cases.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Dotted name of the figure.
    pub name: String,
    /// Title for people.
    pub title: String,
    /// Unit for all cells.
    pub scale: Scale,
    /// One per case, in the summary's order; `None` where the case has no such figure.
    pub cells: Vec<Option<MeanCi>>,
}

/// The settings in which cases differ, in the scenario's order.
pub fn varying_keys(summary: &Summary) -> Vec<String> {
    let Some(first) = summary.cases.first() else { return Vec::new() };
    let differs = |key: &&String| summary.cases.iter().any(|case| case.set.get(*key) != first.set.get(*key));
    first.set.keys().filter(differs).cloned().collect()
}

/// The settings that all cases share, as `key = value` texts.
pub fn common_settings(summary: &Summary) -> Vec<String> {
    let varying = varying_keys(summary);
    let first = summary.cases.first().into_iter().flat_map(|case| &case.set);
    first.filter(|(key, _)| !varying.contains(key)).map(|(k, v)| format!("{k} = {}", plain_text(v))).collect()
}

/// Note on transfers that completion times leave out; `None` if every transfer finished.
pub fn unfinished_note(summary: &Summary) -> Option<String> {
    let share = |case: &Case| {
        let runs = case.runs.iter().map(|run| &run.metrics);
        let (mut open, mut done) = (0, 0);
        for metrics in runs {
            open += metrics.unfinished.unwrap_or(0);
            done += metrics.fct_us.and_then(|fct| fct.samples).unwrap_or(0);
        }
        (open > 0).then(|| (open as f64 / (open + done) as f64, open, open + done))
    };
    let varying = varying_keys(summary);
    let worst = summary.cases.iter().filter_map(|case| Some((share(case)?, case)));
    let ((share, open, all), case) = worst.max_by(|a, b| a.0.0.total_cmp(&b.0.0))?;
    let of_case =
        if varying.is_empty() { String::new() } else { format!(" in case {}", case_name(case, &varying)) };
    Some(format!(
        "Completion times are those of finished transfers: {open} of {all} ({} %) did not finish{of_case}{}.",
        digits(share * 100.0),
        if summary.cases.len() > 1 { ", the most of all" } else { "" }
    ))
}

/// Name that tells a case from the others: the values in which they differ, with their keys if there are several.
pub fn case_name(case: &Case, varying: &[String]) -> String {
    let value = |key: &String| case.set.get(key).map(plain_text).unwrap_or_default();
    match varying {
        [] => "all".to_owned(),
        [only] => value(only),
        _ => varying.iter().map(|key| format!("{key} {}", value(key))).collect::<Vec<_>>().join(", "),
    }
}

/// The columns of the table of cases: those that at least one case has.
pub fn columns(summary: &Summary) -> Vec<Column> {
    let paths = path_names(summary);
    let of = |metric: &Metric| {
        let mut columns = Vec::new();
        for (statistic, title) in metric.shown {
            let figure = match *statistic {
                "" => metric.name.to_owned(),
                statistic => format!("{}.{statistic}", metric.name),
            };
            if metric.places.contains(&Place::Run) {
                columns.extend(column(summary, &figure, title));
            } else if metric.places.contains(&Place::Path) {
                let of_path = |path: &String| {
                    column(summary, &format!("paths.{path}.{figure}"), &title.replace('*', path))
                };
                columns.extend(paths.iter().filter_map(of_path));
            }
        }
        columns
    };
    catalogue::all().iter().flat_map(of).collect()
}

/// The figure `name` over all cases; `None` when no case has it.
pub fn column(summary: &Summary, name: &str, title: &str) -> Option<Column> {
    let cells: Vec<Option<MeanCi>> = summary.cases.iter().map(|case| over_runs(case, name)).collect();
    let largest = cells.iter().flatten().map(|c| c.mean.abs()).reduce(f64::max)?;
    Some(Column { name: name.to_owned(), title: title.to_owned(), scale: scale_of(name, largest), cells })
}

/// A figure of one case over its runs.
pub fn over_runs(case: &Case, name: &str) -> Option<MeanCi> {
    let values: Vec<f64> = case.runs.iter().filter_map(|run| run.metrics.get(name)).collect();
    mean_ci95(&values)
}

/// More entries of traffic than this would make a list.
pub const MAX_ENTRIES: usize = 64;

/// The figures of each entry of traffic over all cases, where there are several: the entry's name, and columns that at least one
/// entry has.
pub fn entries(summary: &Summary) -> Vec<(String, Vec<Column>)> {
    let runs =
        |case: &Case| case.runs.iter().map(|run| run.metrics.figures().into_iter().collect()).collect();
    let cases: Vec<Vec<BTreeMap<String, f64>>> = summary.cases.iter().map(runs).collect();
    let mut names: Vec<&str> = Vec::new();
    for figure in cases.iter().flatten().flat_map(BTreeMap::keys) {
        let name = figure.strip_prefix("traffic.").and_then(|rest| rest.split('.').next());
        names.extend(name.filter(|name| names.last() != Some(name) && !names.contains(name)));
        if names.len() > MAX_ENTRIES {
            break;
        }
    }
    if names.len() < 2 {
        return Vec::new();
    }
    let column = |name: &str, title: &str| {
        let mean = |runs: &Vec<BTreeMap<String, f64>>| {
            mean_ci95(&runs.iter().filter_map(|figures| figures.get(name).copied()).collect::<Vec<_>>())
        };
        let cells: Vec<Option<MeanCi>> = cases.iter().map(mean).collect();
        let largest = cells.iter().flatten().map(|c| c.mean.abs()).reduce(f64::max);
        let scale = scale_of(name, largest.unwrap_or(0.0));
        Column { name: name.to_owned(), title: title.to_owned(), scale, cells }
    };
    let shown =
        || catalogue::of(Place::Traffic).flat_map(|m| m.shown.iter().map(move |shown| (m.name, shown)));
    let of_entry = |entry: &&str| {
        let one = |(name, (statistic, title)): (&str, &(&str, &str))| match *statistic {
            "" => column(&format!("traffic.{entry}.{name}"), title),
            statistic => column(&format!("traffic.{entry}.{name}.{statistic}"), title),
        };
        ((*entry).to_owned(), shown().map(one).collect::<Vec<_>>())
    };
    let mut all: Vec<(String, Vec<Column>)> = names.iter().take(MAX_ENTRIES).map(of_entry).collect();
    let is_there = |at: usize| all.iter().any(|(_, columns)| columns[at].cells.iter().any(Option::is_some));
    let there: Vec<bool> = (0..shown().count()).map(is_there).collect();
    for (_, columns) in &mut all {
        let mut there = there.iter();
        columns.retain(|_| there.next() == Some(&true));
    }
    all
}

fn path_names(summary: &Summary) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for path in summary.cases.iter().flat_map(|c| &c.runs).flat_map(|r| &r.metrics.paths) {
        if !names.contains(&path.path) {
            names.push(path.path.clone());
        }
    }
    if names.len() > MAX_PATH_COLUMNS { Vec::new() } else { names }
}

/// A claim's number with its confidence interval over the seeds, and with its unit if that is known.
pub fn claim_value(claim: &ClaimResult) -> Option<String> {
    let value = claim.value?;
    let Some(half) = claim.half_width else { return Some(in_unit_of(claim, value)) };
    Some(match claim.metric.as_ref().map(|name| scale_of(name, value)) {
        Some(scale) if !scale.unit.is_empty() => {
            format!("{} ± {} {}", digits(value / scale.divisor), digits(half / scale.divisor), scale.unit)
        }
        _ => format!("{} ± {}", compact(value), compact(half)),
    })
}

/// Condition on a claim's number, such as `>= 124.3 Mbit/s`.
pub fn claim_needs(claim: &ClaimResult) -> Option<String> {
    claim.needs.as_ref().map(|needs| format!("{} {}", needs.relation, in_unit_of(claim, needs.value)))
}

fn in_unit_of(claim: &ClaimResult, value: f64) -> String {
    match claim.metric.as_ref().map(|name| scale_of(name, value)) {
        Some(scale) if !scale.unit.is_empty() => format!("{} {}", digits(value / scale.divisor), scale.unit),
        _ => compact(value),
    }
}

/// A mean with its confidence interval, in the column's unit.
pub fn mean_text(figure: MeanCi, scale: Scale) -> String {
    let is_count = scale.unit.is_empty() && figure.mean.fract() == 0.0;
    let mean =
        if is_count { format!("{:.0}", figure.mean + 0.0) } else { digits(figure.mean / scale.divisor) };
    match figure.half_width {
        Some(half) => format!("{mean} ± {}", digits(half / scale.divisor)),
        None => mean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(entries: &[(&str, f64)]) -> Summary {
        let figures: Vec<String> =
            entries.iter().map(|(name, bps)| format!("\"traffic.{name}.goodput_bps\":{bps}")).collect();
        let text = format!(
            "{{\"schema\":1,\"scenario\":\"s\",\"engine\":\"sim\",\"environment\":{{\"vmcc\":\"0\",\"os\":\"l\",\"cpus\":1}},\
             \"cases\":[{{\"set\":{{}},\"runs\":[{{\"seed\":1,\"metrics\":{{{}}}}}]}}],\"work\":{{}}}}",
            figures.join(",")
        );
        serde_json::from_str(&text).expect("a summary")
    }

    #[test]
    fn traffic_entries_have_separate_figures() {
        let all = entries(&summary(&[("mp", 12e6), ("tcp1", 5e6), ("tcp2", 3e6)]));
        let goodput = |(name, columns): &(String, Vec<Column>)| {
            (
                name.clone(),
                columns.iter().map(|c| c.title.clone()).collect::<Vec<_>>(),
                columns[0].cells[0].map(|c| c.mean),
            )
        };
        let one = |name: &str, mean| (name.to_owned(), vec!["goodput".to_owned()], Some(mean));
        let found: Vec<_> = all.iter().map(goodput).collect();
        assert_eq!(found, [one("mp", 12e6), one("tcp1", 5e6), one("tcp2", 3e6)]);
        assert!(entries(&summary(&[("mp", 12e6)])).is_empty(), "the run's own row says it");
        let many: Vec<String> = (0..1_000).map(|n| format!("e{n}")).collect();
        let many: Vec<(&str, f64)> = many.iter().map(|name| (name.as_str(), 1.0)).collect();
        assert_eq!(entries(&summary(&many)).len(), MAX_ENTRIES);
    }

    #[test]
    fn claim_value_has_the_unit_of_its_metric() {
        let mut claim = ClaimResult {
            id: "x".into(),
            check: "mean(goodput_bps) >= 1.5 * mean(goodput_bps, cc='lia')".into(),
            paper: None,
            value: Some(132_800_000.0),
            half_width: None,
            metric: Some("goodput_bps".into()),
            needs: Some(crate::Needs { relation: ">=".into(), value: 124_300_000.0 }),
            pass: true,
            unmeasured: false,
            note: None,
            analysis: None,
        };
        assert_eq!(claim_value(&claim).unwrap(), "132.8 Mbit/s");
        claim.half_width = Some(2_500_000.0);
        assert_eq!(claim_value(&claim).unwrap(), "132.8 ± 2.50 Mbit/s");
        claim.half_width = None;
        assert_eq!(claim_needs(&claim).unwrap(), ">= 124.3 Mbit/s");
        (claim.metric, claim.needs) = (None, None);
        assert_eq!((claim_value(&claim).unwrap(), claim_needs(&claim)), ("132.8 M".into(), None));
    }
}
