//! Notes on traffic that something else than its congestion window limited most of the time.

use crate::{Case, Extra, Summary};
use std::collections::BTreeMap;
use vmcc_metrics::unit::digits;

/// Share of the time from which a limit dominates.
const DOMINATES: f64 = 0.5;
/// Entries that a note names.
const MAX_NAMED: usize = 3;

/// A limit: its metric, its name, and the remedy.
struct Limit {
    metric: &'static str,
    name: &'static str,
    remedy: &'static str,
    /// Counts only for connections that always have data, which are those that can stall.
    endless: bool,
}

const LIMITS: [Limit; 3] = [
    Limit {
        metric: "sndbuf_limited",
        name: "the send buffer",
        remedy: "a larger host.send_buffer may carry more",
        endless: false,
    },
    Limit {
        metric: "rwnd_limited",
        name: "the receive window",
        remedy: "a larger host.receive_buffer, or a reader without read_rate, may carry more",
        endless: false,
    },
    Limit {
        metric: "app_limited",
        name: "the sending program",
        remedy: "on a kernel engine the host's processors may be too slow for these rates",
        endless: true,
    },
];

/// One sentence for each limit that dominates some entry of traffic in some case.
pub fn limit_notes(summary: &Summary) -> Vec<String> {
    LIMITS.iter().filter_map(|limit| note(summary, limit)).collect()
}

fn note(summary: &Summary, limit: &Limit) -> Option<String> {
    let shares: Vec<BTreeMap<&str, f64>> = summary.cases.iter().map(|case| shares(case, limit)).collect();
    let mut entries: BTreeMap<&str, f64> = BTreeMap::new();
    for (entry, share) in shares.iter().flatten() {
        let most = entries.entry(entry).or_default();
        *most = most.max(*share);
    }
    let most = entries.values().copied().reduce(f64::max)?;
    let named: Vec<String> = entries.keys().take(MAX_NAMED).map(|entry| format!("`{entry}`")).collect();
    let more = match entries.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (all, concerned) = (shares.len(), shares.iter().filter(|shares| !shares.is_empty()).count());
    let of_cases = if all > 1 { format!(" in {concerned} of {all} cases") } else { String::new() };
    Some(format!(
        "Not the congestion window but {} limited {}{more}{of_cases}, for up to {} % of the time ({}): {}.",
        limit.name,
        named.join(", "),
        digits(most * 100.0),
        limit.metric,
        limit.remedy
    ))
}

/// Entries that the limit dominates in a case, with its share over the runs.
fn shares<'a>(case: &'a Case, limit: &Limit) -> BTreeMap<&'a str, f64> {
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for run in &case.runs {
        for (name, value) in &run.metrics.extra {
            let Some((entry, metric)) = name.strip_prefix("traffic.").and_then(|name| name.rsplit_once('.'))
            else {
                continue;
            };
            let Extra::Number(share) = value else { continue };
            let counts = || run.metrics.extra.contains_key(&format!("traffic.{entry}.stalled_us"));
            if metric == limit.metric && (!limit.endless || counts()) {
                let sum = sums.entry(entry).or_default();
                *sum = (sum.0 + share, sum.1 + 1.0);
            }
        }
    }
    let means = sums.into_iter().map(|(entry, (sum, runs))| (entry, sum / runs));
    means.filter(|(_, share)| *share > DOMINATES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dist, Environment, Metrics, Run, Settings, Work};

    fn summary(cases: &[&[(&str, f64)]]) -> Summary {
        let case = |figures: &&[(&str, f64)]| {
            let number = |(name, value): &(&str, f64)| {
                let value = if name.ends_with("stalled_us") {
                    Extra::Dist(Dist::default())
                } else {
                    Extra::Number(*value)
                };
                ((*name).to_owned(), value)
            };
            let extra = figures.iter().map(number).collect();
            let run = Run { seed: 1, metrics: Metrics { extra, ..Metrics::default() } };
            Case { set: Settings::new(), warmup_us: 0, runs: vec![run] }
        };
        Summary {
            schema: 1,
            scenario: "x".into(),
            title: None,
            source: None,
            engine: "sim".into(),
            environment: Environment::default(),
            cases: cases.iter().map(case).collect(),
            claims: Vec::new(),
            work: Work::default(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn dominating_limits_are_noted_with_remedy() {
        let small = [("traffic.bulk.sndbuf_limited", 0.97), ("traffic.bulk.rwnd_limited", 0.03)];
        assert_eq!(
            limit_notes(&summary(&[&small])),
            ["Not the congestion window but the send buffer limited `bulk`, for up to 97.00 % of the time \
              (sndbuf_limited): a larger host.send_buffer may carry more."]
        );
        let free = [("traffic.bulk.sndbuf_limited", 0.5), ("traffic.bulk.rwnd_limited", 0.5)];
        assert!(limit_notes(&summary(&[&free])).is_empty(), "neither dominates");
        let notes = limit_notes(&summary(&[&free, &small, &small]));
        assert!(notes[0].contains("`bulk` in 2 of 3 cases, for"), "{notes:?}");
    }

    #[test]
    fn notes_of_many_entries_are_merged() {
        let names: Vec<String> = (0..9).map(|n| format!("traffic.e{n}.rwnd_limited")).collect();
        let all: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 0.9)).collect();
        let notes = limit_notes(&summary(&[&all]));
        assert!(notes.len() == 1 && notes[0].contains("`e0`, `e1`, `e2` and 6 more, for"), "{notes:?}");
    }

    #[test]
    fn application_pauses_are_no_limit() {
        let pauses = [("traffic.web.app_limited", 0.9)];
        assert!(limit_notes(&summary(&[&pauses])).is_empty());
        let endless = [("traffic.web.app_limited", 0.9), ("traffic.web.stalled_us", 0.0)];
        assert_eq!(limit_notes(&summary(&[&endless])).len(), 1);
    }
}
