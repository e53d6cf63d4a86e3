//! One sentence that says what the figures show. Every word depends on a figure.
//!
//! The last case is compared with the first (what one gets without it), with all others in what it leaves to
//! competing traffic, and in delay with the first as well, unless another carried clearly more. Transfers are judged by when
//! they are complete, not by the round trips on the way, and by what they leave unfinished.

use vmcc_metrics::catalogue::scale_of;
use vmcc_metrics::unit::digits;
use vmcc_results::figure::{case_name, over_runs, varying_keys};
use vmcc_results::{Case, Summary};

/// More cases than this do not fit into a sentence.
const MAX_CASES: usize = 8;
/// Relative differences below this are called equal.
const EQUAL: f64 = 0.05;

/// The sentence; `None` unless the cases differ in one thing that is not a number, and have goodput.
pub(crate) fn sentence(summary: &Summary) -> Option<String> {
    let (last, others) = summary.cases.split_last()?;
    let first = others.first()?;
    let keys = varying_keys(summary);
    let [key] = keys.as_slice() else { return None };
    let is_choice = |case: &Case| case.set.get(key).is_some_and(serde_json::Value::is_string);
    if summary.cases.len() > MAX_CASES || !summary.cases.iter().all(is_choice) {
        return None;
    }
    let name = |case: &Case| case_name(case, &keys);
    let mut parts = vec![goodput(first, last, &name)?];
    parts.extend(share_left(others, last, &name));
    parts.extend(completion(first, last, &name).or_else(|| delay(others, last, &name)));
    Some(format!("{}.", joined(&parts)))
}

/// Function that names a case.
type Name<'a> = &'a dyn Fn(&Case) -> String;

fn mean(case: &Case, metric: &str) -> Option<f64> {
    over_runs(case, metric).map(|ci| ci.mean)
}

fn with_unit(metric: &str, value: f64) -> String {
    let scale = scale_of(metric, value);
    format!("{} {}", digits(value / scale.divisor), scale.unit)
}

fn goodput(first: &Case, last: &Case, name: Name<'_>) -> Option<String> {
    let (before, after) = (mean(first, "goodput_bps")?, mean(last, "goodput_bps")?);
    let mut text = format!("{} carried {}", name(last), with_unit("goodput_bps", after));
    if before > 0.0 {
        text.push_str(&format!(", {} times {}", digits(after / before), name(first)));
    }
    Some(text)
}

fn share_left(others: &[Case], last: &Case, name: Name<'_>) -> Option<String> {
    let share = |case: &Case| mean(case, "competing_share").map(|share| format!("{:.0} %", share * 100.0));
    let compared: Vec<String> =
        others.iter().filter_map(|case| Some(format!("{}: {}", name(case), share(case)?))).collect();
    let ours = share(last)?;
    let compared = if compared.is_empty() { String::new() } else { format!(" ({})", compared.join(", ")) };
    Some(format!("left the competing traffic {ours} of the shared path{compared}"))
}

fn completion(first: &Case, last: &Case, name: Name<'_>) -> Option<String> {
    let (before, after) = (mean(first, "fct_us.p99")?, mean(last, "fct_us.p99")?);
    let verb = match after / before {
        ratio if ratio < 1.0 - EQUAL => "cut",
        ratio if ratio > 1.0 + EQUAL => "raised",
        _ => "left",
    };
    let to = if verb == "left" { "at" } else { "to" };
    let [after, before] = [after, before].map(|v| with_unit("fct_us", v));
    let unfinished = |case: &Case| mean(case, "unfinished").filter(|n| *n > 0.0);
    let lost = |case: &Case| unfinished(case).map(|n| format!(" ({n:.0} not finished)")).unwrap_or_default();
    Some(format!(
        "{verb} the 99th percentile of completion times {to} {after}{}, where {} had {before}{}",
        lost(last),
        name(first),
        lost(first)
    ))
}

fn delay(others: &[Case], last: &Case, name: Name<'_>) -> Option<String> {
    let carried = |case: &Case| mean(case, "goodput_bps").unwrap_or(0.0);
    let first = others.first()?;
    let more = others.iter().filter(|case| carried(case) > (1.0 + EQUAL) * carried(first));
    let rival = more.reduce(|best, case| if carried(case) > carried(best) { case } else { best });
    let rival = rival.unwrap_or(first);
    let (ours, theirs) = (mean(last, "rtt_us.p50")?, mean(rival, "rtt_us.p50")?);
    let verb = match ours / theirs {
        ratio if ratio < 1.0 - EQUAL => "cut the median RTT to",
        ratio if ratio > 1.0 + EQUAL => "raised the median RTT to",
        _ => "left the median RTT at",
    };
    let [ours, theirs] = [ours, theirs].map(|v| with_unit("rtt_us", v));
    Some(format!("{verb} {ours}, where {} had {theirs}", name(rival)))
}

fn joined(parts: &[String]) -> String {
    match parts {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        parts => parts.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmcc_results::{Dist, Environment, Extra, Metrics, Run, Settings, Work};

    fn case(cc: &str, goodput_bps: f64, p50: f64, share: f64) -> Case {
        let mut metrics = Metrics {
            goodput_bps: Some(goodput_bps),
            rtt_us: Some(Dist { p50, ..Dist::default() }),
            ..Metrics::default()
        };
        metrics.extra.insert("competing_share".into(), Extra::Number(share));
        Case {
            set: Settings::from_iter([("cc".into(), cc.into())]),
            warmup_us: 0,
            runs: vec![Run { seed: 1, metrics }],
        }
    }

    fn summary(cases: Vec<Case>) -> Summary {
        Summary {
            schema: 1,
            scenario: "x".into(),
            title: None,
            source: None,
            engine: "sim".into(),
            environment: Environment::default(),
            cases,
            claims: Vec::new(),
            work: Work::default(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn last_case_is_compared_with_the_others() {
        let cases =
            vec![case("cubic", 50e6, 9e3, 0.5), case("lia", 90e6, 7e3, 0.4), case("vmcc", 100e6, 2e3, 0.55)];
        assert_eq!(
            sentence(&summary(cases)).unwrap(),
            "vmcc carried 100 Mbit/s, 2.00 times cubic, left the competing traffic 55 % of the shared path \
             (cubic: 50 %, lia: 40 %) and cut the median RTT to 2.00 ms, where lia had 7.00 ms."
        );
    }

    #[test]
    fn delay_is_compared_with_the_first_or_the_fastest_case() {
        let rival = |second: f64| {
            let cases = vec![
                case("cubic", 100e6, 9e3, 0.5),
                case("reno", second, 8e3, 0.5),
                case("lia", second, 7e3, 0.5),
                case("vmcc", 100e6, 2e3, 0.5),
            ];
            sentence(&summary(cases)).unwrap().split("where ").nth(1).unwrap().to_owned()
        };
        assert_eq!(rival(100e6), "cubic had 9.00 ms.", "equal");
        assert_eq!(rival(104e6), "cubic had 9.00 ms.", "as good as equal");
        assert_eq!(rival(110e6), "reno had 8.00 ms.", "the first of the two");
    }

    #[test]
    fn transfers_are_compared_by_completion_time() {
        let transfers = |cc: &str, rtt: f64, fct: f64, unfinished: u64| {
            let mut case = case(cc, 90e6, rtt, 0.5);
            let metrics = &mut case.runs[0].metrics;
            metrics.fct_us = Some(Dist { p99: fct, ..Dist::default() });
            metrics.unfinished = Some(unfinished);
            case
        };
        let text =
            sentence(&summary(vec![transfers("reno", 2e3, 90e3, 0), transfers("vmcc", 4e3, 45e3, 12)]));
        let text = text.unwrap();
        let expected = "cut the 99th percentile of completion times to 45.00 ms (12 not finished), where reno had 90.00 ms.";
        assert!(text.ends_with(expected) && !text.contains("RTT"), "{text}");
        let text = sentence(&summary(vec![transfers("reno", 2e3, 45e3, 0), transfers("vmcc", 1e3, 90e3, 0)]));
        assert!(text.unwrap().contains("raised the 99th percentile"));
    }

    #[test]
    fn worse_result_is_not_called_better() {
        let text =
            sentence(&summary(vec![case("cubic", 90e6, 2e3, 0.5), case("vmcc", 45e6, 8e3, 0.1)])).unwrap();
        assert!(text.contains("0.500 times cubic") && text.contains("raised the median RTT"), "{text}");
    }

    #[test]
    fn single_cases_and_numeric_sweeps_have_no_conclusion() {
        assert_eq!(sentence(&summary(vec![case("vmcc", 1e6, 1e3, 0.5)])), None);
        let mut cases = vec![case("a", 1e6, 1e3, 0.5), case("b", 1e6, 1e3, 0.5)];
        for (i, case) in cases.iter_mut().enumerate() {
            case.set.insert("cc".into(), i.into());
        }
        assert_eq!(sentence(&summary(cases)), None);
    }
}
