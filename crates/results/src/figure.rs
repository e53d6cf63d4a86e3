//! Figures as people read them: names, units, digits, and which of them belong into a table.

use crate::parquet_files::plain_text;
use crate::stats::{MeanCi, mean_ci95};
use crate::{Case, ClaimResult, Summary};

/// Figures worth a column when a case has them, with the column's title. `*` stands for each path.
const COLUMNS: [(&str, &str); 17] = [
    ("goodput_bps", "goodput"),
    ("paths.*.goodput_bps", "path *"),
    ("competing_goodput_bps", "competing"),
    ("competing_share", "share left"),
    ("rtt_us.p50", "RTT p50"),
    ("rtt_us.p99", "RTT p99"),
    ("fct_us.p50", "FCT p50"),
    ("fct_us.p99", "FCT p99"),
    ("jain", "Jain index"),
    ("established", "established"),
    ("completed", "completed"),
    ("unfinished", "unfinished"),
    ("retransmits", "retransmits"),
    ("timeouts", "timeouts"),
    ("ce_marks", "CE marks"),
    ("drops", "drops"),
    ("cpu_s_per_gb", "CPU s/GB"),
];
/// More paths than this would make the table unreadable.
const MOST_PATHS: usize = 4;

/// A unit for figures: what to divide by, and its name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Divisor.
    pub divisor: f64,
    /// Name, empty for a pure number.
    pub unit: &'static str,
}

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

/// What completion times leave out; `None` if every transfer finished.
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

/// What tells a case from the others: the values in which they differ, with their keys if there are several.
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
    let mut columns = Vec::new();
    for (name, title) in COLUMNS {
        if name.contains('*') {
            for path in path_names(summary) {
                columns.extend(column(summary, &name.replace('*', &path), &title.replace('*', &path)));
            }
        } else {
            columns.extend(column(summary, name, title));
        }
    }
    columns
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

fn path_names(summary: &Summary) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for path in summary.cases.iter().flat_map(|c| &c.runs).flat_map(|r| &r.metrics.paths) {
        if !names.contains(&path.path) {
            names.push(path.path.clone());
        }
    }
    if names.len() > MOST_PATHS { Vec::new() } else { names }
}

/// The unit in which `largest` of the figure `name` reads well. The figure's own unit is the end of its name.
pub fn scale_of(name: &str, largest: f64) -> Scale {
    let mut parts = name.rsplit('.');
    let last = parts.next().unwrap_or(name);
    let is_statistic = ["mean", "p50", "p99", "min", "max"].contains(&last);
    let base = if is_statistic { parts.next().unwrap_or(name) } else { last };
    let steps: &[(f64, &'static str)] = if base.ends_with("_bps") {
        &[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")]
    } else if base.ends_with("_us") {
        &[(1e6, "s"), (1e3, "ms"), (1.0, "µs")]
    } else if base.ends_with("_bytes") {
        &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")]
    } else if base.ends_with("_pkt") {
        &[(1.0, "packets")]
    } else {
        &[(1.0, "")]
    };
    let smallest = steps[steps.len() - 1];
    let (divisor, unit) = steps.iter().find(|(from, _)| largest.abs() >= *from).copied().unwrap_or(smallest);
    Scale { divisor, unit }
}

/// A figure with as many digits as a person wants to read: about four.
pub fn digits(value: f64) -> String {
    // A sum of nothing is -0.0, which would be printed with its sign.
    let value = value + 0.0;
    let magnitude = value.abs();
    if value == 0.0 || (magnitude >= 100.0 && value.fract() == 0.0) || magnitude >= 1000.0 {
        format!("{value:.0}")
    } else if magnitude >= 100.0 {
        format!("{value:.1}")
    } else if magnitude >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// A figure whose unit is not known, with a prefix for millions and more.
pub fn compact(value: f64) -> String {
    match value.abs() {
        m if m >= 1e9 => format!("{} G", digits(value / 1e9)),
        m if m >= 1e6 => format!("{} M", digits(value / 1e6)),
        _ => digits(value),
    }
}

/// A claim's number, with its unit if that is known.
pub fn claim_value(claim: &ClaimResult) -> Option<String> {
    claim.value.map(|value| in_unit_of(claim, value))
}

/// What a claim's number must be, such as `>= 124.3 Mbit/s`.
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

    #[test]
    fn the_unit_follows_the_name_and_the_size() {
        assert_eq!(scale_of("goodput_bps", 93e6).unit, "Mbit/s");
        assert_eq!(scale_of("paths.a.goodput_bps", 2.4e9).unit, "Gbit/s");
        assert_eq!(scale_of("rtt_us.p99", 1500.0).unit, "ms");
        assert_eq!(scale_of("rtt_us", 150.0).unit, "µs");
        assert_eq!(scale_of("rtt_us", 0.0).unit, "µs");
        assert_eq!(scale_of("queue_bytes.mean", 1500.0).unit, "kB");
        assert_eq!(scale_of("jain", 0.9).unit, "");
        assert_eq!(scale_of("retransmits", 1e7), Scale { divisor: 1.0, unit: "" });
    }

    #[test]
    fn the_number_of_a_claim_has_the_unit_of_its_metric() {
        let mut claim = ClaimResult {
            id: "x".into(),
            check: "mean(goodput_bps) >= 1.5 * mean(goodput_bps, cc='lia')".into(),
            paper: None,
            value: Some(132_800_000.0),
            metric: Some("goodput_bps".into()),
            needs: Some(crate::Needs { relation: ">=".into(), value: 124_300_000.0 }),
            pass: true,
            note: None,
        };
        assert_eq!(claim_value(&claim).unwrap(), "132.8 Mbit/s");
        assert_eq!(claim_needs(&claim).unwrap(), ">= 124.3 Mbit/s");
        (claim.metric, claim.needs) = (None, None);
        assert_eq!((claim_value(&claim).unwrap(), claim_needs(&claim)), ("132.8 M".into(), None));
    }

    #[test]
    fn figures_have_about_four_digits() {
        assert_eq!(
            [-0.0, 0.1234, 1.0, 93.456, 123.456, 123.0, 12345.6].map(digits),
            ["0", "0.123", "1.00", "93.46", "123.5", "123", "12346"]
        );
        assert_eq!([1.5, 2606.0, 153_586_333.0, 2e10].map(compact), ["1.50", "2606", "153.6 M", "20.00 G"]);
    }
}
