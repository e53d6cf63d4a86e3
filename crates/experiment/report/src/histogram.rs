//! Histogram of times for which hosts were off their processors: a table of counts, shaded by them.

use crate::rows::{EVENTS, Sample};
use crate::titles::sentence_case;
use maud::{Markup, html};
use std::collections::BTreeMap;
use vmcc_metrics::catalogue::{self, scale_of};
use vmcc_metrics::unit::digits;
use vmcc_results::figure::{case_name, varying_keys};
use vmcc_results::{Run, Summary};

/// Bounds per decade: columns as wide as a quarter of what is in them, which tells apart what was asked for and what came of it.
const PER_DECADE: f64 = 10.0;
/// Decades beyond which columns become wider.
const MAX_COLUMNS: usize = 16;

/// Counts by case and column.
#[derive(Debug)]
pub(crate) struct Histogram {
    /// The lower bound of each column, in microseconds.
    bounds: Vec<f64>,
    /// Of cases that have any.
    rows: Vec<Row>,
}

/// One case.
#[derive(Debug)]
struct Row {
    name: String,
    /// Count in all runs, of which those are in columns that were kept one by one: the first ones of each run.
    all: f64,
    kept: u32,
    /// By column.
    counts: Vec<u32>,
}

impl Histogram {
    /// `None` where nobody was ever off.
    pub(crate) fn of<'a>(summary: &Summary, samples: impl Iterator<Item = &'a Sample>) -> Option<Self> {
        let mut values: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for sample in samples.filter(|sample| sample.metric == EVENTS && sample.value > 0.0) {
            values.entry(sample.case).or_default().push(sample.value);
        }
        let all = || values.values().flatten().copied();
        let (least, most) = (all().reduce(f64::min)?, all().reduce(f64::max)?);
        let decades = (most / least).log10();
        let step = (decades / MAX_COLUMNS as f64).max(1.0 / PER_DECADE);
        let first = (least.log10() / step).floor();
        let column = |value: f64| ((value.log10() / step).floor() - first).max(0.0) as usize;
        let bounds = (0..=column(most)).map(|n| 10_f64.powf((first + n as f64) * step)).collect();
        let varying = varying_keys(summary);
        let row = |(case, values): (u32, Vec<f64>)| {
            let case = summary.cases.get(case as usize)?;
            let mut counts = vec![0; column(most) + 1];
            values.iter().for_each(|value| counts[column(*value)] += 1);
            let kept = u32::try_from(values.len()).unwrap_or(u32::MAX);
            let of_run = |run: &Run| run.metrics.get(&format!("{EVENTS}.samples"));
            let all = case.runs.iter().filter_map(of_run).sum::<f64>().max(f64::from(kept));
            Some(Row { name: case_name(case, &varying), all, kept, counts })
        };
        let rows = values.clone().into_iter().filter_map(row).collect();
        Some(Self { bounds, rows })
    }

    /// `whose` ends the title.
    pub(crate) fn section(&self, whose: &str) -> Markup {
        let title = catalogue::named(EVENTS).map_or(EVENTS, |metric| metric.title);
        let largest = self.bounds.last().copied().unwrap_or(1.0);
        let scale = scale_of(EVENTS, largest);
        html! {
            section {
                h2 { (sentence_case(title)) ": histogram" (whose) }
                p.hint { "How often hosts were off their processors for so long, all runs of a case together; columns begin at the time above \
                          them [" (scale.unit) "] and are as wide as the next one says." }
                @if self.rows.iter().any(Row::is_cut) {
                    p.note { "There were more than are in the columns: of each run and host only the first are kept one by one." }
                }
                div.scroll { table {
                    thead { tr {
                        th { "Case" } th.number { "Times" }
                        @for bound in &self.bounds { th.number { (digits(bound / scale.divisor)) } }
                    } }
                    tbody { @for row in &self.rows { tr {
                        td { (row.name) }
                        td.number { @if row.is_cut() { "first " (row.kept) " of " } (row.all) }
                        @for count in &row.counts { td.number style=(shade(*count, row.kept)) { @if *count > 0 { (count) } } }
                    } } }
                } }
            }
        }
    }
}

impl Row {
    fn is_cut(&self) -> bool {
        self.all > f64::from(self.kept)
    }
}

/// The more of all, the darker.
fn shade(count: u32, all: u32) -> String {
    let share = (100.0 * f64::from(count) / f64::from(all.max(1))).round();
    format!("background: color-mix(in srgb, currentColor {:.0}%, transparent)", share * 0.4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(case: u32, value: f64) -> Sample {
        Sample { case, t_us: 1, entity: "vm".into(), metric: EVENTS.into(), value }
    }

    fn summary(cases: usize) -> Summary {
        let case = |n: usize| format!("{{\"set\":{{\"vm\":\"c{n}\"}},\"runs\":[]}}");
        let cases = (0..cases).map(case).collect::<Vec<_>>().join(",");
        let text = format!(
            "{{\"schema\":1,\"scenario\":\"s\",\"engine\":\"sim\",\"environment\":{{\"vmcc\":\"0\",\"os\":\"l\",\"cpus\":1}},\
             \"cases\":[{cases}],\"work\":{{}}}}"
        );
        serde_json::from_str(&text).expect("a summary")
    }

    #[test]
    fn every_sample_is_in_its_bin() {
        let samples = [90e3, 91e3, 360e3, 1440e3].map(|us| sample(1, us));
        let other = Sample { metric: "srtt_us".into(), ..sample(1, 5.0) };
        let histogram = Histogram::of(&summary(2), samples.iter().chain([&other])).expect("some");
        let Row { name, all, kept, counts } = &histogram.rows[0];
        let shown = (name.as_str(), *all, *kept, counts.iter().sum::<u32>(), histogram.rows.len());
        assert_eq!(shown, ("c1", 4.0, 4, 4, 1));
        for (value, count) in [(90e3, 2), (360e3, 1), (1440e3, 1)] {
            let column = histogram.bounds.iter().rposition(|bound| *bound <= value).expect("a column");
            assert_eq!(counts[column], count, "{value}");
        }
        assert!(histogram.section("").into_string().contains("VM off time: histogram"));
        assert!(Histogram::of(&summary(1), [other].iter()).is_none());
    }

    #[test]
    fn histogram_of_a_prefix_of_samples_is_labelled() {
        let mut summary = summary(1);
        let samples = [sample(0, 100.0), sample(0, 200.0)];
        let page = |summary: &Summary| {
            Histogram::of(summary, samples.iter()).expect("some").section("").into_string()
        };
        assert!(!page(&summary).contains("first"));
        let run =
            |samples: f64| serde_json::json!({ "seed": 1, "metrics": { "vm_off_us.samples": samples } });
        summary.cases[0].runs = [3.0, 4.0].map(|n| serde_json::from_value(run(n)).expect("a run")).to_vec();
        assert!(
            page(&summary).contains("first 2 of 7") && page(&summary).contains("only the first are kept")
        );
    }
}
