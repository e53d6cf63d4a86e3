//! The demo's result for people: one table, and one sentence computed from it.

use vmcc_results::{Extra, Metrics};

/// What the demo shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoReport {
    /// Titles of the columns, with units.
    pub header: Vec<String>,
    /// One row per variant; the first cell is its name. A figure that was not measured is `-`.
    pub rows: Vec<Vec<String>>,
    /// What the figures say, in one sentence.
    pub conclusion: String,
}

/// Draws up the report of the demo's variants, in their order: the first is the single path, the last is vMCC.
/// `None` without variants.
pub fn report(variants: &[(&str, &Metrics)]) -> Option<DemoReport> {
    let paths: Vec<&str> = variants.first()?.1.paths.iter().map(|path| path.path.as_str()).collect();
    let mut header = vec!["".to_owned(), "goodput [Mbit/s]".to_owned()];
    header.extend(paths.iter().map(|path| format!("path {path}")));
    let rest = ["left to competitor", "RTT p50 [ms]", "RTT p99 [ms]", "retransmits", "CE marks"];
    header.extend(rest.map(str::to_owned));
    let rows = variants.iter().map(|(name, metrics)| row(name, metrics, &paths)).collect();
    Some(DemoReport { header, rows, conclusion: conclusion(variants)? })
}

fn row(name: &str, metrics: &Metrics, paths: &[&str]) -> Vec<String> {
    let path_goodput = |wanted: &&str| {
        let found = metrics.paths.iter().find(|path| path.path == **wanted);
        found.and_then(|path| path.goodput_bps).map(mbit)
    };
    let mut cells = vec![Some(name.to_owned()), metrics.goodput_bps.map(mbit)];
    cells.extend(paths.iter().map(path_goodput));
    cells.extend([
        competitor(metrics),
        metrics.rtt_us.map(|rtt| ms(rtt.p50)),
        metrics.rtt_us.map(|rtt| ms(rtt.p99)),
        metrics.retransmits.map(|count| count.to_string()),
        metrics.ce_marks.map(|count| count.to_string()),
    ]);
    cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned())).collect()
}

fn competitor(metrics: &Metrics) -> Option<String> {
    let rate = mbit(metrics.competing_goodput_bps?);
    Some(match competing_share(metrics) {
        Some(share) => format!("{} ({rate} Mbit/s)", percent(share)),
        None => format!("{rate} Mbit/s"),
    })
}

/// The competing flow's share of its path while it was active, 0 to 1.
fn competing_share(metrics: &Metrics) -> Option<f64> {
    match metrics.extra.get("competing_share")? {
        Extra::Number(share) => Some(*share),
        Extra::Dist(dist) => Some(dist.mean),
    }
}

/// Every word depends on a figure: the sentence says what happened, not what was hoped for.
fn conclusion(variants: &[(&str, &Metrics)]) -> Option<String> {
    let ((single, first), (name, last)) = (*variants.first()?, *variants.last()?);
    let mut parts = Vec::new();
    if let (Some(ours), Some(theirs)) = (last.goodput_bps, first.goodput_bps.filter(|bps| *bps > 0.0)) {
        let ratio = ours / theirs;
        parts.push(format!("{name} carried {} Mbit/s, {ratio:.1} times {single}", mbit(ours)));
    }
    if let Some(share) = competing_share(last) {
        let others = variants[..variants.len() - 1].iter();
        let others = others.filter_map(|(name, m)| Some(format!("{name}: {}", percent(competing_share(m)?))));
        let others: Vec<_> = others.collect();
        let compared = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
        parts.push(format!("left the competing flow {} of the shared path{compared}", percent(share)));
    }
    parts.extend(rtt_part(variants, last));
    (!parts.is_empty()).then(|| format!("{}.", join(&parts)))
}

/// Compares with the other variant that carried the most.
fn rtt_part(variants: &[(&str, &Metrics)], last: &Metrics) -> Option<String> {
    let others = variants[..variants.len() - 1].iter();
    let (rival, metrics) =
        others.max_by(|(_, a), (_, b)| f64::total_cmp(&goodput(a), &goodput(b))).copied()?;
    let (ours, theirs) = (last.rtt_us?.p50, metrics.rtt_us?.p50);
    let verb = match ours / theirs {
        ratio if ratio < 0.95 => "cut the median RTT to",
        ratio if ratio > 1.05 => "raised the median RTT to",
        _ => "left the median RTT at",
    };
    Some(format!("{verb} {} ms, where {rival} had {} ms", ms(ours), ms(theirs)))
}

fn goodput(metrics: &Metrics) -> f64 {
    metrics.goodput_bps.unwrap_or(0.0)
}

fn join(parts: &[String]) -> String {
    match parts {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        parts => parts.concat(),
    }
}

fn mbit(bps: f64) -> String {
    format!("{:.1}", bps / 1e6)
}

fn ms(us: f64) -> String {
    format!("{:.1}", us / 1e3)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmcc_results::{Dist, PathMetrics};

    fn metrics(goodput_mbit: f64, rtt_ms: f64, share: f64) -> Metrics {
        let mut metrics = Metrics {
            goodput_bps: Some(goodput_mbit * 1e6),
            competing_goodput_bps: Some(share * 95e6),
            rtt_us: Some(Dist { p50: rtt_ms * 1e3, p99: rtt_ms * 2e3, ..Dist::default() }),
            retransmits: Some(7),
            paths: vec![PathMetrics {
                path: "a".into(),
                goodput_bps: Some(goodput_mbit * 5e5),
                ..PathMetrics::default()
            }],
            ..Metrics::default()
        };
        metrics.extra.insert("competing_share".to_owned(), Extra::Number(share));
        metrics
    }

    #[test]
    fn the_table_and_the_sentence_follow_the_figures() {
        let (single, lia, vmcc) =
            (metrics(70.0, 9.0, 0.5), metrics(150.0, 8.0, 0.4), metrics(147.0, 2.0, 0.55));
        let report = report(&[("cubic", &single), ("lia", &lia), ("vmcc", &vmcc)]).unwrap();
        assert_eq!(report.header.len(), report.rows[0].len());
        assert_eq!(report.rows[2], ["vmcc", "147.0", "73.5", "55 % (52.2 Mbit/s)", "2.0", "4.0", "7", "-"]);
        assert_eq!(
            report.conclusion,
            "vmcc carried 147.0 Mbit/s, 2.1 times cubic, left the competing flow 55 % of the shared path \
             (cubic: 50 %, lia: 40 %) and cut the median RTT to 2.0 ms, where lia had 8.0 ms."
        );
    }

    #[test]
    fn a_bad_result_is_not_praised() {
        let (single, vmcc) = (metrics(90.0, 2.0, 0.5), metrics(45.0, 8.0, 0.1));
        let report = report(&[("cubic", &single), ("vmcc", &vmcc)]).unwrap();
        assert!(
            report.conclusion.contains("0.5 times") && report.conclusion.contains("raised the median RTT")
        );
    }

    #[test]
    fn nothing_measured_is_nothing_said() {
        assert_eq!(report(&[]), None);
        assert_eq!(report(&[("a", &Metrics::default()), ("b", &Metrics::default())]), None);
    }
}
