//! Differences between two results: each metric of each case that both have, with its confidence interval over the seeds.

use crate::figure::{case_name, varying_keys};
use crate::{Case, Settings, Summary};
use indexmap::{IndexMap, IndexSet};
use serde::Serialize;
use serde_json::Value;
use std::str::FromStr;
use vmcc_metrics::catalogue::base_name;
use vmcc_metrics::stats::{MeanCi, mean_ci95, welch_ci95};
use vmcc_metrics::unit::Unit;
use vmcc_units::{BitsPerSec, Bytes, Nanos, Packets};

/// Two results, case by case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Cases that both results have.
    pub cases: Vec<ComparedCase>,
    /// Names of cases that only the first result has.
    pub only_before: Vec<String>,
    /// Names of cases that only the second result has.
    pub only_after: Vec<String>,
}

/// A case that both results have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedCase {
    /// Its name: the settings in which cases differ.
    pub name: String,
    /// Its settings in the second result.
    pub set: Settings,
    /// Metrics by dotted name. A distribution has its mean under `.mean`.
    pub metrics: IndexMap<String, Compared>,
}

/// One metric of a case in both results.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Compared {
    /// Mean of the first result; absent if no run has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<f64>,
    /// Mean of the second result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<f64>,
    /// Their difference; absent unless both have it.
    #[serde(flatten)]
    pub difference: Option<Difference>,
}

/// Second minus first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// In the metric's unit.
    pub difference: f64,
    /// Half the width of its 95 % confidence interval (Welch's t); absent if either has one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// Both in parts of the first mean; absent if that is zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative: Option<f64>,
    /// Half width of `relative`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative_half_width: Option<f64>,
}

/// Compares two results. Cases belong together if they have the same values of the settings that are swept in either, however
/// these are written: `10ms` is `10000us`.
pub fn compare(before: &Summary, after: &Summary) -> Comparison {
    let keys: IndexSet<String> = varying_keys(before).into_iter().chain(varying_keys(after)).collect();
    let keys: Vec<String> = keys.into_iter().collect();
    let (old, new) = (by_values(before, &keys), by_values(after, &keys));
    let both = new.iter().filter_map(|(values, index)| Some((*old.get(values)?, *index)));
    let name = |case: &Case| case_name(case, &keys);
    let one = |(old, new): (usize, usize)| {
        let (old, new) = (&before.cases[old], &after.cases[new]);
        compared(name(new), old, new)
    };
    let missing = |summary: &Summary, of: &ByValues, from: &ByValues| {
        let only = of.iter().filter(|(values, _)| !from.contains_key(*values));
        only.map(|(_, index)| name(&summary.cases[*index])).collect()
    };
    Comparison {
        only_before: missing(before, &old, &new),
        only_after: missing(after, &new, &old),
        cases: both.map(one).collect(),
    }
}

/// Cases by the values of their settings. Those with equal values, which a sweep over two spellings has, are numbered.
type ByValues = IndexMap<(Vec<Option<Value>>, usize), usize>;

fn by_values(summary: &Summary, keys: &[String]) -> ByValues {
    let mut seen: IndexMap<Vec<Option<Value>>, usize> = IndexMap::new();
    let number = |(index, case): (usize, &Case)| {
        let values: Vec<_> = keys.iter().map(|key| case.set.get(key).map(plain_value)).collect();
        let count = seen.entry(values.clone()).or_insert(0);
        *count += 1;
        ((values, *count), index)
    };
    summary.cases.iter().enumerate().map(number).collect()
}

/// A setting with its quantities in one spelling.
fn plain_value(value: &Value) -> Value {
    match value {
        Value::String(text) => plain_quantity(text).unwrap_or_else(|| text.clone()).into(),
        Value::Number(number) => number.as_f64().map_or_else(|| value.clone(), Value::from),
        Value::Array(values) => values.iter().map(plain_value).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), plain_value(value))).collect()
        }
        Value::Null | Value::Bool(_) => value.clone(),
    }
}

/// A quantity in the spelling of its type; `None` of any other text. No two types share a unit.
fn plain_quantity(text: &str) -> Option<String> {
    fn as_type<T: FromStr + ToString>(text: &str) -> Option<String> {
        text.parse::<T>().ok().map(|value| value.to_string())
    }
    as_type::<Nanos>(text)
        .or_else(|| as_type::<Bytes>(text))
        .or_else(|| as_type::<BitsPerSec>(text))
        .or_else(|| as_type::<Packets>(text))
}

fn compared(name: String, before: &Case, after: &Case) -> ComparedCase {
    let (old, new) = (means(before), means(after));
    let names: IndexSet<&String> = old.keys().chain(new.keys()).collect();
    let one = |name: &String| {
        let (before, after) = (old.get(name).copied(), new.get(name).copied());
        let difference = before.zip(after).map(|(before, after)| Difference::of(before, after));
        let (before, after) = (before.map(|one| one.mean), after.map(|one| one.mean));
        (name.clone(), Compared { before, after, difference })
    };
    ComparedCase { name, set: after.set.clone(), metrics: names.into_iter().map(one).collect() }
}

/// Means of a case's metrics over its runs.
fn means(case: &Case) -> IndexMap<String, MeanCi> {
    let mut values: IndexMap<String, Vec<f64>> = IndexMap::new();
    for (name, value) in case.runs.iter().flat_map(|run| run.metrics.figures()) {
        values.entry(name).or_default().push(value);
    }
    values.into_iter().filter_map(|(name, values)| Some((name, mean_ci95(&values)?))).collect()
}

impl Difference {
    fn of(before: MeanCi, after: MeanCi) -> Self {
        let (difference, half_width) = (after.mean - before.mean, welch_ci95(before, after));
        let part = |value: f64| (before.mean != 0.0).then(|| value / before.mean.abs());
        let (relative, relative_half_width) = (part(difference), half_width.and_then(part));
        Self { difference, half_width, relative, relative_half_width }
    }

    /// True if zero is outside of its confidence interval.
    pub fn is_certain(&self) -> bool {
        self.half_width.is_some_and(|half| self.difference.abs() > half)
    }
}

/// A condition on a difference, such as `goodput < -2%`: a percentage of the first result, or a number in the metric's unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Condition {
    /// Dotted name of the metric; the ending that says its unit may be left out.
    pub metric: String,
    /// True if a difference above the limit meets it, false if one below.
    pub above: bool,
    /// The limit, which does not meet it.
    pub limit: f64,
    /// True if the limit is in parts of the first mean.
    pub relative: bool,
}

/// Answer to a [`Condition`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// The whole confidence interval meets it; of single runs, the difference.
    Yes,
    /// The difference meets it, and a part of its confidence interval does not.
    Uncertain,
    /// The difference does not meet it.
    No,
    /// One result has no such value, or a percentage of zero is asked for.
    Unknown,
}

impl Condition {
    /// True if it is about the metric of this dotted name.
    pub fn is_about(&self, name: &str) -> bool {
        let without_mean = name.strip_suffix(".mean").unwrap_or(name);
        let base = base_name(name);
        let short = |name: &str| name.replacen(base, Unit::cut_from(base), 1);
        [name, without_mean].iter().any(|name| self.metric == *name || self.metric == short(name))
    }

    /// Judges a difference.
    pub fn judge(&self, compared: &Compared) -> Met {
        let Some(found) = compared.difference else { return Met::Unknown };
        let (value, half) = match (self.relative, found.relative) {
            (false, _) => (found.difference, found.half_width),
            (true, Some(relative)) => (relative, found.relative_half_width),
            (true, None) if found.difference == 0.0 => (0.0, None),
            (true, None) => return Met::Unknown,
        };
        let meets = |value: f64| if self.above { value > self.limit } else { value < self.limit };
        let half = half.unwrap_or(0.0);
        let nearest = if self.above { value - half } else { value + half };
        match (meets(value), meets(nearest)) {
            (true, true) => Met::Yes,
            (true, false) => Met::Uncertain,
            (false, _) => Met::No,
        }
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |cause: &str| {
            format!("{cause}; write METRIC < NUMBER or METRIC > NUMBER%, such as \"goodput < -2%\"")
        };
        let (at, _) = text.match_indices(['<', '>']).next().ok_or_else(|| refused("there is no < or >"))?;
        let (metric, value) = (text[..at].trim(), text[at + 1..].trim());
        let (number, relative) = match value.strip_suffix('%') {
            Some(number) => (number.trim_end(), true),
            None => (value, false),
        };
        let limit = number.parse::<f64>().ok().filter(|limit| limit.is_finite());
        let limit = limit.ok_or_else(|| refused(&format!("{value:?} is no number")))?;
        if metric.is_empty() {
            return Err(refused("there is no metric before the comparison"));
        }
        let limit = if relative { limit / 100.0 } else { limit };
        Ok(Self { metric: metric.to_owned(), above: text[at..].starts_with('>'), limit, relative })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(cases: &[(&str, &[f64])]) -> Summary {
        let case = |(cc, rates): &(&str, &[f64])| {
            let run =
                |rate: &f64| serde_json::json!({ "seed": 1, "metrics": { "goodput_bps": rate, "drops": 0 } });
            serde_json::json!({ "set": { "cc": cc }, "runs": rates.iter().map(run).collect::<Vec<_>>() })
        };
        serde_json::from_value(serde_json::json!({
            "schema": 1, "scenario": "s", "engine": "sim", "environment": { "vmcc": "0", "os": "l", "cpus": 1 },
            "cases": cases.iter().map(case).collect::<Vec<_>>(), "work": {},
        }))
        .unwrap()
    }

    fn judged(condition: &str, before: &[f64], after: &[f64]) -> Met {
        let comparison = compare(&summary(&[("lia", before)]), &summary(&[("lia", after)]));
        let condition: Condition = condition.parse().unwrap();
        let (_, found) =
            comparison.cases[0].metrics.iter().find(|(name, _)| condition.is_about(name)).unwrap();
        condition.judge(found)
    }

    #[test]
    fn cases_are_paired_by_swept_values() {
        let (old, new) =
            (summary(&[("lia", &[1e6]), ("olia", &[2e6])]), summary(&[("olia", &[3e6]), ("vmcc", &[1e6])]));
        let comparison = compare(&old, &new);
        assert_eq!(
            (&comparison.only_before[..], &comparison.only_after[..]),
            (&["lia".to_owned()][..], &["vmcc".to_owned()][..])
        );
        assert_eq!(comparison.cases.len(), 1);
        let goodput = comparison.cases[0].metrics["goodput_bps"];
        assert_eq!((goodput.before, goodput.after), (Some(2e6), Some(3e6)));
        let difference = goodput.difference.unwrap();
        assert_eq!(
            (difference.difference, difference.half_width, difference.relative),
            (1e6, None, Some(0.5))
        );
        // One case each has no swept setting: it is the same case.
        assert_eq!(compare(&summary(&[("lia", &[1e6])]), &summary(&[("vmcc", &[1e6])])).cases.len(), 1);
    }

    /// A result whose cases have these delays, with their positions as goodput.
    fn delays(delays: &[Value]) -> Summary {
        let names: Vec<String> = (0..delays.len()).map(|index| index.to_string()).collect();
        let values: Vec<[f64; 1]> = (0..delays.len()).map(|index| [index as f64]).collect();
        let cases: Vec<(&str, &[f64])> =
            names.iter().zip(&values).map(|(name, value)| (name.as_str(), &value[..])).collect();
        let mut summary = summary(&cases);
        for (case, delay) in summary.cases.iter_mut().zip(delays) {
            case.set = Settings::from_iter([("delay".to_owned(), delay.clone())]);
        }
        summary
    }

    /// Positions of the cases that belong together, and numbers of those that have no counterpart.
    fn pairs(before: &[Value], after: &[Value]) -> (Vec<(f64, f64)>, usize, usize) {
        let found = compare(&delays(before), &delays(after));
        let one =
            |case: &ComparedCase| case.metrics["goodput_bps"].before.zip(case.metrics["goodput_bps"].after);
        (found.cases.iter().filter_map(one).collect(), found.only_before.len(), found.only_after.len())
    }

    #[test]
    fn spelling_of_a_value_does_not_matter() {
        let of = |texts: &[&str]| texts.iter().map(|text| Value::from(*text)).collect::<Vec<_>>();
        for (one, other) in [
            ("10ms", "10000us"),
            ("0.5s", "500ms"),
            ("1.5mbit", "1500kbit"),
            ("64KiB", "65536B"),
            ("1_000pkt", "1000pkt"),
            ("µ", "µ"),
        ] {
            let (before, after) = (of(&[one, "lia"]), of(&["lia", other]));
            assert_eq!(pairs(&before, &after), (vec![(1.0, 0.0), (0.0, 1.0)], 0, 0), "{one} {other}");
        }
        // A duration, an amount and a name are not each other.
        assert_eq!(pairs(&of(&["10ms", "10s"]), &of(&["10MB", "tens"])), (vec![], 2, 2));
        let table = |text| serde_json::from_str::<Value>(text).unwrap();
        let before = [table(r#"{ "rule": "red", "at": ["1ms", 2] }"#), 1.into()];
        let after = [table("1.0"), table(r#"{ "at": ["1000us", 2.0], "rule": "red" }"#)];
        assert_eq!(pairs(&before, &after), (vec![(1.0, 0.0), (0.0, 1.0)], 0, 0));
    }

    #[test]
    fn sweeps_over_two_spellings_keep_both_cases() {
        let of = |texts: &[&str]| texts.iter().map(|text| Value::from(*text)).collect::<Vec<_>>();
        let twice = of(&["10ms", "10000us"]);
        assert_eq!(pairs(&twice, &twice), (vec![(0.0, 0.0), (1.0, 1.0)], 0, 0));
        assert_eq!(pairs(&twice, &of(&["10ms", "1s"])), (vec![(0.0, 0.0)], 1, 1));
    }

    #[test]
    fn conditions_hold_for_the_whole_interval() {
        let steady = [100e6, 101e6, 99e6];
        assert_eq!(judged("goodput < -2%", &steady, &[90e6, 91e6, 89e6]), Met::Yes);
        assert_eq!(judged("goodput_bps < -2%", &steady, &[99e6, 100e6, 98e6]), Met::No);
        assert_eq!(judged("goodput < -2%", &steady, &[80e6, 120e6, 90e6]), Met::Uncertain);
        assert_eq!(judged("goodput<-5000000", &steady, &[90e6, 91e6, 89e6]), Met::Yes);
        assert_eq!(judged("goodput > 2%", &[100e6], &[103e6]), Met::Yes, "single runs have no interval");
        assert_eq!(judged("goodput > 3%", &[100e6], &[103e6]), Met::No, "the limit itself");
        assert_eq!(judged("drops > 0%", &[1.0], &[1.0]), Met::No, "zero stays zero");
    }

    #[test]
    fn values_missing_from_one_result_are_unknown() {
        let half = Compared { before: Some(1.0), after: None, difference: None };
        let condition: Condition = "drops > 5".parse().unwrap();
        assert_eq!(condition.judge(&half), Met::Unknown);
        let from_zero =
            Difference { difference: 3.0, half_width: None, relative: None, relative_half_width: None };
        let from_zero = Compared { before: Some(0.0), after: Some(3.0), difference: Some(from_zero) };
        assert_eq!(condition.judge(&from_zero), Met::No);
        assert_eq!("drops > 5%".parse::<Condition>().unwrap().judge(&from_zero), Met::Unknown);
    }

    #[test]
    fn metric_names_without_unit_or_mean_match() {
        let about =
            |metric: &str, name: &str| format!("{metric} > 0").parse::<Condition>().unwrap().is_about(name);
        for metric in ["rtt_us.p99", "rtt.p99"] {
            assert!(
                about(metric, "rtt_us.p99")
                    && !about(metric, "rtt_us.p50")
                    && !about(metric, "paths.a.rtt_us.p99")
            );
        }
        for metric in ["rtt", "rtt_us", "rtt_us.mean", "rtt.mean"] {
            assert!(about(metric, "rtt_us.mean"), "{metric}");
        }
        assert!(about("paths.a.goodput", "paths.a.goodput_bps"));
    }

    #[test]
    fn faulty_conditions_are_refused_with_an_example() {
        for text in [
            "",
            "goodput",
            "goodput < ",
            "< 2",
            "goodput < x%",
            "goodput < inf",
            "goodput <= 2",
            "goodput < NaN%",
        ] {
            let refused = text.parse::<Condition>().unwrap_err();
            assert!(refused.contains("goodput < -2%"), "{text}: {refused}");
        }
    }
}
