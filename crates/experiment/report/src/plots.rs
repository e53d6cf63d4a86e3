//! The data of the plots, reduced to what a screen can show.

use crate::histogram::Histogram;
use crate::rows::{EVENTS, FlowValue, RTTS, Sample, Series, flow_figures, is_flow};
use crate::titles::{metric_title, sentence_case};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use vmcc_metrics::catalogue::scale_of;
use vmcc_metrics::stats::{MeanCi, percentile_sorted};
use vmcc_metrics::unit::Scale;
use vmcc_results::figure::{case_name, columns, varying_keys};
use vmcc_results::parquet_files::plain_text;
use vmcc_results::{Case, Summary};
use vmcc_units::{BitsPerSec, Bytes, Nanos};

/// A distribution of fewer values than this is a list, not a curve.
const FEWEST_FOR_CDF: usize = 8;
/// Points of a distribution per case.
const CDF_POINTS: usize = 120;
/// Points of a time series: more than a screen has columns for.
const SERIES_POINTS: usize = 400;
/// Places at which distributions are drawn, all cases together.
const CDF_PLACES: usize = 1_200;
/// Lines of one plot that can still be told apart.
const MAX_LINES: usize = 10;
/// Values of an axis from which on it is drawn as a line.
const FEWEST_FOR_SWEEP: usize = 3;

/// Everything that the browser draws.
#[derive(Debug, Serialize)]
pub(crate) struct Plots {
    pub(crate) sweeps: Vec<Plot>,
    pub(crate) distributions: Vec<Plot>,
    pub(crate) series: Vec<SeriesPlot>,
    /// Names of the cases, for the choice of a time series.
    pub(crate) cases: Vec<String>,
    /// Settings in which the cases differ.
    pub(crate) choices: Vec<Choice>,
    /// Times for which hosts were off; drawn without the browser's help.
    #[serde(skip)]
    pub(crate) off_times: Option<Histogram>,
}

/// A setting in which cases differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Choice {
    pub(crate) key: String,
    pub(crate) values: Vec<String>,
    /// The only value whose lines are shown at first, where all would be too many.
    pub(crate) shown: Option<String>,
}

/// One plot of lines over a common axis.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) xs: Vec<f64>,
    pub(crate) lines: Vec<Line>,
}

/// Subject and unit of an axis.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) unit: String,
    /// Logarithmic, because values spread over decades.
    pub(crate) log: bool,
}

/// One line; `None` where it has no value. `low` and `high` bound its 95 % confidence interval.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Line {
    pub(crate) label: String,
    /// Its values of the settings in which cases differ.
    pub(crate) set: BTreeMap<String, String>,
    pub(crate) ys: Vec<Option<f64>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) low: Vec<Option<f64>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) high: Vec<Option<f64>>,
}

/// A metric over time, one plot per case.
#[derive(Debug, Serialize)]
pub(crate) struct SeriesPlot {
    pub(crate) metric: String,
    /// Values are of single moments, with nothing between them.
    pub(crate) events: bool,
    /// By case; `None` when the case has no such series.
    pub(crate) cases: Vec<Option<Plot>>,
}

impl Plots {
    pub(crate) fn of(summary: &Summary, flows: &[FlowValue], samples: &Series) -> Self {
        let varying = varying_keys(summary);
        let cases: Vec<String> = summary.cases.iter().map(|case| case_name(case, &varying)).collect();
        let mut plots = Self {
            sweeps: sweeps(summary),
            distributions: distributions(summary, &cases, flows, samples),
            series: series(cases.len(), &samples.first),
            cases,
            choices: varying.iter().map(|key| Choice::of(summary, key)).collect(),
            off_times: None,
        };
        plots.choose();
        plots
    }

    /// Returns true if a choice has any effect.
    pub(crate) fn has_lines(&self) -> bool {
        !self.sweeps.is_empty() || !self.distributions.is_empty()
    }

    /// Holds settings, those of the most values first, until few enough lines are shown. What lines differ in last is what a
    /// page compares, however many they are: one line of them says nothing.
    fn choose(&mut self) {
        while self.most_lines() > MAX_LINES {
            let free = |choice: &Choice| choice.shown.is_none() && self.tells_lines_apart(choice);
            let free: Vec<usize> = (0..self.choices.len()).filter(|at| free(&self.choices[*at])).collect();
            let widest = free.iter().max_by_key(|at| (**at > free[0], self.choices[**at].values.len(), **at));
            let Some(widest) = widest.copied().filter(|_| free.len() > 1) else { return };
            self.choices[widest].shown = self.choices[widest].values.first().cloned();
        }
    }

    /// Lines of some plot differ in this setting; its axis does not count.
    fn tells_lines_apart(&self, choice: &Choice) -> bool {
        self.sweeps.iter().chain(&self.distributions).any(|plot| {
            let mut values = plot.lines.iter().filter_map(|line| line.set.get(&choice.key));
            let first = values.next();
            values.any(|value| Some(value) != first)
        })
    }

    fn most_lines(&self) -> usize {
        let held = |line: &&Line| {
            let differs = |c: &Choice| {
                c.shown.is_some() && line.set.get(&c.key).is_some_and(|v| Some(v) != c.shown.as_ref())
            };
            !self.choices.iter().any(differs)
        };
        let plots = self.sweeps.iter().chain(&self.distributions);
        plots.map(|plot| plot.lines.iter().filter(held).count()).max().unwrap_or(0)
    }

    /// The plots of several engines, each beside its like.
    pub(crate) fn side_by_side(engines: Vec<(&str, Self)>) -> Self {
        let mut all = Self {
            sweeps: vec![],
            distributions: vec![],
            series: vec![],
            cases: vec![],
            choices: vec![],
            off_times: None,
        };
        for (_, plots) in &engines {
            plots.choices.iter().for_each(|choice| all.take_choice(choice));
        }
        let several = engines.len() > 1;
        let of = |list: fn(&Self) -> &Vec<Plot>| {
            let named = |engine: &str, plot: &Plot| {
                let title = if several { format!("{}, {engine}", plot.title) } else { plot.title.clone() };
                (plot.title.clone(), Plot { title, ..plot.clone() })
            };
            let mut plots: Vec<(String, Plot)> =
                engines.iter().flat_map(|(e, plots)| list(plots).iter().map(|plot| named(e, plot))).collect();
            let titles: Vec<String> = plots.iter().map(|(title, _)| title.clone()).collect();
            plots.sort_by_key(|(title, _)| titles.iter().position(|other| other == title));
            plots.into_iter().map(|(_, plot)| plot).collect()
        };
        (all.sweeps, all.distributions) = (of(|plots| &plots.sweeps), of(|plots| &plots.distributions));
        all.choices.iter_mut().for_each(|choice| choice.shown = None);
        all.choose();
        all
    }

    fn take_choice(&mut self, choice: &Choice) {
        let Some(own) = self.choices.iter_mut().find(|own| own.key == choice.key) else {
            return self.choices.push(choice.clone());
        };
        let new =
            choice.values.iter().filter(|value| !own.values.contains(value)).cloned().collect::<Vec<_>>();
        own.values.extend(new);
    }
}

impl Choice {
    fn of(summary: &Summary, key: &str) -> Self {
        let mut values: Vec<String> = Vec::new();
        for value in summary.cases.iter().filter_map(|case| case.set.get(key)).map(plain_text) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        Self { key: key.to_owned(), values, shown: None }
    }
}

/// Settings of a case, of those in which cases differ but `without`.
fn settings(case: &Case, varying: &[String], without: Option<&str>) -> BTreeMap<String, String> {
    let wanted = varying.iter().filter(|key| Some(key.as_str()) != without);
    wanted.filter_map(|key| Some((key.clone(), plain_text(case.set.get(key)?)))).collect()
}

fn distributions(summary: &Summary, cases: &[String], flows: &[FlowValue], samples: &Series) -> Vec<Plot> {
    let mut plots = Vec::new();
    for (figure, (name, title)) in flow_figures().enumerate() {
        let mut values = vec![Vec::new(); cases.len()];
        let endless = |case: u32| flows.iter().any(|f| f.case == case && f.figure == figure && f.endless);
        let only_endless: Vec<bool> =
            (0..cases.len() as u32).map(|case| name == "goodput_bps" && endless(case)).collect();
        let compared =
            |f: &&FlowValue| f.endless || !only_endless.get(f.case as usize).is_some_and(|only| *only);
        for flow in flows.iter().filter(|f| f.figure == figure).filter(compared) {
            if let Some(list) = values.get_mut(flow.case as usize) {
                list.push(flow.value);
            }
        }
        plots.extend(distribution(name, title, "Share of flows", (summary, cases), values.clone()));
        if name == "goodput_bps" {
            plots.extend(ranked(name, title, (summary, cases), values));
        }
    }
    let mut rtts = vec![Vec::new(); cases.len()];
    let measured =
        |s: &Sample| summary.cases.get(s.case as usize).is_some_and(|case| s.t_us > case.warmup_us);
    for sample in samples.all().filter(|s| s.metric == RTTS && !is_flow(&s.entity) && measured(s)) {
        if let Some(list) = rtts.get_mut(sample.case as usize) {
            list.push(sample.value);
        }
    }
    plots.extend(distribution(RTTS, "Smoothed RTT on the paths", "Share of samples", (summary, cases), rtts));
    plots
}

fn distribution(
    name: &str,
    title: &str,
    share: &str,
    (summary, cases): (&Summary, &[String]),
    mut values: Vec<Vec<f64>>,
) -> Option<Plot> {
    values.iter_mut().for_each(sort);
    let varying = varying_keys(summary);
    if values.iter().all(|list| list.len() < FEWEST_FOR_CDF) {
        return None;
    }
    let shown: Vec<usize> = (0..values.len()).filter(|i| !values[*i].is_empty()).collect();
    let mut xs: Vec<f64> = Vec::new();
    for case in shown.iter() {
        let last = CDF_POINTS.min(values[*case].len().max(2)) - 1;
        xs.extend((0..=last).map(|i| percentile_sorted(&values[*case], i as f64 / last as f64)));
    }
    xs.sort_unstable_by(f64::total_cmp);
    xs.dedup();
    thin(&mut xs);
    let (smallest, largest) = (*xs.first()?, *xs.last()?);
    let log = smallest > 0.0 && largest / smallest > 300.0;
    let scale = scale_of(name, if log { (smallest * largest).sqrt() } else { largest });
    let line = |case: usize| {
        let list = &values[case];
        let share = |x: &f64| list.partition_point(|v| v <= x) as f64 / list.len() as f64;
        Line {
            label: cases[case].clone(),
            set: settings(&summary.cases[case], &varying, None),
            ys: xs.iter().map(|x| Some(share(x))).collect(),
            low: vec![],
            high: vec![],
        }
    };
    Some(Plot {
        title: title.to_owned(),
        x: axis(title, scale, log),
        y: Axis { label: share.to_owned(), unit: String::new(), log: false },
        lines: shown.iter().map(|case| line(*case)).collect(),
        xs: xs.iter().map(|x| x / scale.divisor).collect(),
    })
}

fn sort(list: &mut Vec<f64>) {
    list.retain(|v| v.is_finite());
    list.sort_unstable_by(f64::total_cmp);
}

/// The flows of each case from the fastest to the slowest, over the share of flows that are as fast.
fn ranked(
    name: &str,
    title: &str,
    (summary, cases): (&Summary, &[String]),
    mut values: Vec<Vec<f64>>,
) -> Option<Plot> {
    values.iter_mut().for_each(sort);
    let varying = varying_keys(summary);
    let shown = || (0..values.len()).filter(|i| values[*i].len() >= FEWEST_FOR_CDF);
    let largest = shown().filter_map(|case| values[case].last().copied()).reduce(f64::max)?;
    let scale = scale_of(name, largest);
    let line = |case: usize| Line {
        label: cases[case].clone(),
        set: settings(&summary.cases[case], &varying, None),
        ys: (0..=100)
            .map(|i| Some(percentile_sorted(&values[case], 1.0 - f64::from(i) / 100.0) / scale.divisor))
            .collect(),
        low: vec![],
        high: vec![],
    };
    Some(Plot {
        title: format!("{title}, ranked"),
        x: Axis { label: "Rank".to_owned(), unit: "% of flows".to_owned(), log: false },
        y: axis(title, scale, false),
        lines: shown().map(line).collect(),
        xs: (0..=100).map(f64::from).collect(),
    })
}

/// Keeps the first, the last, and evenly as many between as a screen can show.
fn thin(xs: &mut Vec<f64>) {
    let step = xs.len().div_ceil(CDF_PLACES).max(1);
    let last = xs.len().saturating_sub(1);
    let mut index = 0..;
    xs.retain(|_| index.next().is_some_and(|i: usize| i.is_multiple_of(step) || i == last));
}

fn axis(label: &str, scale: Scale, log: bool) -> Axis {
    Axis { label: label.to_owned(), unit: scale.unit.to_owned(), log }
}

/// One plot per numeric axis and figure: the mean over runs with its confidence band.
fn sweeps(summary: &Summary) -> Vec<Plot> {
    let Some(NumericAxis { key, values, like }) = numeric_axis(summary) else { return Vec::new() };
    let xs = distinct(&values);
    let x_scale = scale_of(like, xs.last().copied().unwrap_or(1.0));
    let varying = varying_keys(summary);
    let others = |case: &Case| {
        let rest: Vec<String> = case
            .set
            .iter()
            .filter(|(k, _)| **k != key && varying.contains(k))
            .map(|(_, v)| plain_text(v))
            .collect();
        if rest.is_empty() { "all".to_owned() } else { rest.join(", ") }
    };
    let mut labels: Vec<(String, BTreeMap<String, String>)> = Vec::new();
    for case in &summary.cases {
        let label = others(case);
        if !labels.iter().any(|(other, _)| *other == label) {
            labels.push((label, settings(case, &varying, Some(&key))));
        }
    }
    let spread = xs.first().zip(xs.last()).is_some_and(|(a, b)| *a > 0.0 && b / a >= 30.0);
    let mut plots = Vec::new();
    for column in columns(summary) {
        let cell = |label: &str, x: f64| {
            let at = (0..values.len()).find(|i| values[*i] == x && others(&summary.cases[*i]) == label)?;
            column.cells[at]
        };
        let divisor = column.scale.divisor;
        let line = |(label, set): &(String, BTreeMap<String, String>)| {
            let cells: Vec<_> = xs.iter().map(|x| cell(label, *x)).collect();
            let bound = |sign: f64| {
                let edge = |c: &MeanCi| Some((c.mean + sign * c.half_width?) / divisor);
                cells.iter().map(|c| c.as_ref().and_then(edge)).collect::<Vec<_>>()
            };
            let has_interval = cells.iter().flatten().any(|c| c.half_width.is_some());
            Line {
                label: label.clone(),
                set: set.clone(),
                ys: cells.iter().map(|c| c.map(|c| c.mean / divisor)).collect(),
                low: if has_interval { bound(-1.0) } else { vec![] },
                high: if has_interval { bound(1.0) } else { vec![] },
            }
        };
        plots.push(Plot {
            title: sentence_case(&column.title),
            x: axis(&key, x_scale, spread),
            y: axis(&sentence_case(&column.title), column.scale, false),
            lines: labels.iter().map(line).collect(),
            xs: xs.iter().map(|x| x / x_scale.divisor).collect(),
        });
    }
    plots
}

/// A swept key whose values are numbers, or quantities of one kind.
struct NumericAxis {
    key: String,
    /// By case.
    values: Vec<f64>,
    /// Name of a figure with the same unit.
    like: &'static str,
}

/// The swept key with the most values, if it has enough of them for a line and they have an order.
fn numeric_axis(summary: &Summary) -> Option<NumericAxis> {
    let keys: Vec<&String> = summary.cases.first()?.set.keys().collect();
    let axes = keys.iter().filter_map(|key| {
        let texts: Option<Vec<String>> =
            summary.cases.iter().map(|case| case.set.get(*key).map(plain_text)).collect();
        let (values, like) = quantities(&texts?)?;
        Some(NumericAxis { key: (*key).clone(), values, like })
    });
    let best = axes.max_by_key(|axis| distinct(&axis.values).len())?;
    (distinct(&best.values).len() >= FEWEST_FOR_SWEEP).then_some(best)
}

fn distinct(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.dedup();
    values
}

/// Plain numbers, sizes, times or rates, if all are of one kind.
fn quantities(texts: &[String]) -> Option<(Vec<f64>, &'static str)> {
    let all =
        |read: &dyn Fn(&str) -> Option<f64>| texts.iter().map(|t| read(t)).collect::<Option<Vec<f64>>>();
    // Names such as `inf` are no numbers.
    all(&|t| t.parse().ok().filter(|value: &f64| value.is_finite()))
        .map(|values| (values, ""))
        .or_else(|| Some((all(&|t| Some(t.parse::<BitsPerSec>().ok()?.get() as f64))?, "rate_bps")))
        .or_else(|| Some((all(&|t| Some(t.parse::<Bytes>().ok()?.get() as f64))?, "size_bytes")))
        .or_else(|| Some((all(&|t| Some(t.parse::<Nanos>().ok()?.get() as f64 / 1e3))?, "time_us")))
}

fn series(cases: usize, samples: &[Sample]) -> Vec<SeriesPlot> {
    let mut metrics: Vec<&str> = Vec::new();
    let mut grouped: BTreeMap<(&str, u32), Vec<&Sample>> = BTreeMap::new();
    for sample in samples.iter().filter(|s| s.value.is_finite()) {
        if !metrics.contains(&sample.metric.as_str()) {
            metrics.push(&sample.metric);
        }
        grouped.entry((&sample.metric, sample.case)).or_default().push(sample);
    }
    let plot = |metric: &str| SeriesPlot {
        metric: metric.to_owned(),
        events: metric == EVENTS,
        cases: (0..cases as u32)
            .map(|case| grouped.get(&(metric, case)).and_then(|list| over_time(metric, list)))
            .collect(),
    };
    metrics.into_iter().map(plot).collect()
}

fn over_time(metric: &str, samples: &[&Sample]) -> Option<Plot> {
    let mut times: Vec<u64> = samples.iter().map(|sample| sample.t_us).collect();
    times.sort_unstable();
    times.dedup();
    let chunk = times.len().div_ceil(SERIES_POINTS).max(1);
    let points = times.len().div_ceil(chunk);
    let largest = samples.iter().map(|s| s.value.abs()).reduce(f64::max)?;
    let (scale, time_scale) = (scale_of(metric, largest), scale_of("t_us", *times.last()? as f64));
    // Lines in the order of their first samples.
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut sums: Vec<(&str, Vec<(f64, u32)>)> = Vec::new();
    for sample in samples {
        let place = *places.entry(&sample.entity).or_insert_with(|| {
            sums.push((&sample.entity, vec![(0.0, 0); points]));
            sums.len() - 1
        });
        if let Ok(at) = times.binary_search(&sample.t_us) {
            sums[place].1[at / chunk].0 += sample.value;
            sums[place].1[at / chunk].1 += 1;
        }
    }
    let mean = |(sum, n): &(f64, u32)| (*n > 0).then(|| sum / f64::from(*n) / scale.divisor);
    let line = |(entity, sums): (&str, Vec<(f64, u32)>)| Line {
        label: entity.to_owned(),
        set: BTreeMap::new(),
        ys: sums.iter().map(mean).collect(),
        low: vec![],
        high: vec![],
    };
    Some(Plot {
        title: metric_title(metric),
        x: axis("Time", time_scale, false),
        y: axis(&metric_title(metric), scale, false),
        lines: sums.into_iter().map(line).collect(),
        xs: times.chunks(chunk).filter_map(|c| c.last()).map(|t| *t as f64 / time_scale.divisor).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(run: u64, entity: &str) -> Sample {
        Sample { case: 0, t_us: 2, entity: entity.into(), metric: RTTS.into(), value: 1e3 * (run + 1) as f64 }
    }

    #[test]
    fn rtt_distribution_has_all_runs_and_the_time_series_the_first() {
        let summary: Summary = serde_json::from_value(serde_json::json!({
            "schema": 1, "scenario": "s", "engine": "sim", "work": {}, "cases": [{ "set": {}, "runs": [] }],
            "environment": { "vmcc": "0", "os": "l", "cpus": 1 },
        }))
        .expect("a summary");
        let of = |run| (0..8).map(move |_| sample(run, "a"));
        let series = Series { first: of(0).chain([sample(9, "flow0/0")]).collect(), others: of(1).collect() };
        let plots = Plots::of(&summary, &[], &series);
        let [rtts] = &plots.distributions[..] else { panic!("{:?}", plots.distributions) };
        assert_eq!((&rtts.xs[..], &rtts.lines[0].ys[..]), (&[1.0, 2.0][..], &[Some(0.5), Some(1.0)][..]));
        let over_time = plots.series[0].cases[0].as_ref().expect("a plot");
        assert_eq!(over_time.lines[0].ys, [Some(1.0)]);
    }

    #[test]
    fn names_like_inf_and_nan_are_no_numeric_axis() {
        let texts = |texts: [&str; 3]| quantities(&texts.map(str::to_owned)).map(|(values, _)| values);
        assert_eq!(texts(["1", "2.5", "-3"]), Some(vec![1.0, 2.5, -3.0]));
        assert_eq!((texts(["inf", "nan", "3"]), texts(["infinity", "1", "2"])), (None, None));
    }
}
