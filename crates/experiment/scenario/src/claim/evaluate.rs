//! Evaluating a claim over the figures of all runs.

use std::collections::BTreeMap;

use evalexpr::{ContextWithMutableVariables, HashMapContext, Value as Computed, eval_with_context};
use indexmap::IndexMap;
use serde_json::Value;
use vmcc_metrics::stats;

use super::parse::variable;
use super::{BadClaim, Claim, Function, Selector};
use crate::value::plain;

/// The figures of one case.
#[derive(Debug, Clone, Default)]
pub struct CaseFigures {
    /// The value of each axis of the sweep.
    pub set: IndexMap<String, Value>,
    /// Every metric of every run by dotted name (`rtt_us.p50`, `paths.a.goodput_bps`).
    pub runs: Vec<BTreeMap<String, f64>>,
}

/// Outcome of a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// True if the expression holds.
    pub pass: bool,
    /// The left side of its first comparison.
    pub value: Option<f64>,
    /// Right side of that comparison, if the claim is this one comparison.
    pub bound: Option<Bound>,
}

/// The right side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// `<`, `>`, `<=`, `>=`, `==` or `!=`.
    pub relation: String,
    /// The value.
    pub value: f64,
}

/// Reason for which a claim could not be decided.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// No case matches the filters.
    #[error("no case of this run matches {selector}")]
    NoCase {
        /// The selector as written.
        selector: String,
    },
    /// A selected run has no such metric.
    #[error("{missing} of {runs} runs selected by {selector} did not measure `{metric}`")]
    Missing {
        /// The selector as written.
        selector: String,
        /// The metric.
        metric: String,
        /// Runs without it.
        missing: usize,
        /// Runs selected.
        runs: usize,
    },
    /// The value is not defined, such as a rank correlation of one point.
    #[error("{selector} is not defined: {why}")]
    Undefined {
        /// The selector as written.
        selector: String,
        /// The reason.
        why: &'static str,
    },
    /// The expression library refused.
    #[error("the expression failed: {0}")]
    Expression(String),
}

impl Claim {
    /// Decides the claim.
    ///
    /// # Errors
    /// The results do not have what the claim asks about; it is then neither true nor false.
    pub fn evaluate(&self, cases: &[CaseFigures]) -> Result<Verdict, ClaimError> {
        let values = self.selectors.iter().map(|s| s.evaluate(cases)).collect::<Result<Vec<_>, _>>()?;
        let context = context(&values).map_err(ClaimError::Expression)?;
        let pass = boolean(&self.expression, &context).map_err(ClaimError::Expression)?;
        let value = self.left.as_deref().and_then(|left| number(left, &context));
        let right = self.right.as_ref().filter(|_| value.is_some());
        let bound = right.and_then(|(relation, right)| {
            Some(Bound { relation: relation.clone(), value: number(right, &context)? })
        });
        Ok(Verdict { pass, value, bound })
    }
}

fn context(values: &[f64]) -> Result<HashMapContext, String> {
    let mut context = HashMapContext::new();
    for (index, value) in values.iter().enumerate() {
        context.set_value(variable(index), Computed::Float(*value)).map_err(|e| e.to_string())?;
    }
    Ok(context)
}

fn boolean(expression: &str, context: &HashMapContext) -> Result<bool, String> {
    match eval_with_context(expression, context) {
        Ok(Computed::Boolean(value)) => Ok(value),
        Ok(_) => Err("it is not a comparison; a claim is true or false".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn number(expression: &str, context: &HashMapContext) -> Option<f64> {
    eval_with_context(expression, context).ok()?.as_number().ok().filter(|v| v.is_finite())
}

/// Evaluates with every selector 1, to find faults before anything is run.
pub(super) fn dry_run(claim: &Claim) -> Result<(), BadClaim> {
    let whole = |message: String| BadClaim {
        offset: 0,
        length: claim.spec.check.len(),
        message: format!("not a valid expression: {message}"),
        help: Some("for example: mean(goodput_bps, cc='vmcc') >= 1.03 * mean(goodput_bps, cc='lia')".into()),
    };
    let context = context(&vec![1.0; claim.selectors.len()]).map_err(whole)?;
    boolean(&claim.expression, &context).map(|_| ()).map_err(whole)?;
    if claim.selectors.is_empty() {
        return Err(whole("it uses no metric".into()));
    }
    Ok(())
}

impl Selector {
    pub(super) fn matches(&self, set: &IndexMap<String, Value>) -> bool {
        self.filters.iter().all(|f| set.get(&f.key).is_some_and(|value| same(value, &f.value)))
    }

    /// True if cases with these values are enough to evaluate it; a rank correlation needs two points.
    pub(super) fn finds_cases(&self, cases: &[IndexMap<String, Value>]) -> bool {
        let mut found = cases.iter().filter(|set| self.matches(set));
        let Some(first) = found.next() else { return false };
        match &self.axis {
            Some((axis, _)) => found.any(|set| set.get(axis) != first.get(axis)),
            None => true,
        }
    }

    /// The same for a full sweep over `axes`.
    pub(super) fn fits_axes(&self, axes: &[(String, Vec<Value>)]) -> bool {
        let values = |key: &str| axes.iter().find(|(k, _)| k == key).map_or(&[][..], |(_, v)| v.as_slice());
        let allowed = |key: &str, value: &Value| {
            self.filters.iter().filter(|f| f.key == *key).all(|f| same(value, &f.value))
        };
        let satisfiable = |key: &str| values(key).iter().any(|value| allowed(key, value));
        let spread = |axis: &str| values(axis).len() > 1;
        self.filters.iter().all(|f| satisfiable(&f.key)) && self.axis.as_ref().is_none_or(|(a, _)| spread(a))
    }

    fn metric_of(&self, run: &BTreeMap<String, f64>) -> Option<f64> {
        run.get(&self.metric).or_else(|| run.get(&format!("{}.mean", self.metric))).copied()
    }

    fn evaluate(&self, cases: &[CaseFigures]) -> Result<f64, ClaimError> {
        let selected: Vec<&CaseFigures> = cases.iter().filter(|case| self.matches(&case.set)).collect();
        let runs: usize = selected.iter().map(|case| case.runs.len()).sum();
        if runs == 0 {
            return Err(ClaimError::NoCase { selector: self.text.clone() });
        }
        let values: Vec<f64> =
            selected.iter().flat_map(|case| &case.runs).filter_map(|run| self.metric_of(run)).collect();
        if self.function == Function::Count {
            return Ok(values.len() as f64);
        }
        if values.len() < runs {
            let missing = runs - values.len();
            let (selector, metric) = (self.text.clone(), self.metric.clone());
            return Err(ClaimError::Missing { selector, metric, missing, runs });
        }
        let undefined = |why| ClaimError::Undefined { selector: self.text.clone(), why };
        if self.function == Function::Spearman {
            return self.spearman(&selected).map_err(undefined);
        }
        reduce(self.function, values).map_err(undefined)
    }

    fn spearman(&self, cases: &[&CaseFigures]) -> Result<f64, &'static str> {
        let axis = self.axis.as_ref().map_or("", |(axis, _)| axis.as_str());
        let mut points = Vec::new();
        for case in cases {
            let x = case.set.get(axis).and_then(numeric).ok_or("the axis is not numeric")?;
            let values: Vec<f64> = case.runs.iter().filter_map(|run| self.metric_of(run)).collect();
            points.push((x, values.iter().sum::<f64>() / values.len().max(1) as f64));
        }
        let xs = ranks(&points.iter().map(|p| p.0).collect::<Vec<_>>());
        let ys = ranks(&points.iter().map(|p| p.1).collect::<Vec<_>>());
        correlation(&xs, &ys).ok_or("it needs at least two different values on both sides")
    }
}

/// A number, or the number at the start of a quantity with a unit (units of one axis may differ in scale,
/// so those are compared by their size).
fn numeric(value: &Value) -> Option<f64> {
    let text = match value {
        Value::Number(number) => return number.as_f64(),
        Value::String(text) => text,
        _ => return None,
    };
    let quantity = text.parse().map(vmcc_units::Nanos::get);
    let quantity = quantity.or_else(|_| text.parse().map(vmcc_units::BitsPerSec::get));
    let quantity = quantity.or_else(|_| text.parse().map(vmcc_units::Bytes::get));
    let quantity = quantity.or_else(|_| text.parse().map(vmcc_units::Packets::get));
    quantity.ok().map(|v| v as f64).or_else(|| text.parse().ok())
}

fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => plain(a) == plain(b),
    }
}

/// True if a filter's value is one of an axis's values.
pub(super) fn contains(values: &[Value], wanted: &Value) -> bool {
    values.iter().any(|value| same(value, wanted))
}

fn reduce(function: Function, mut values: Vec<f64>) -> Result<f64, &'static str> {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let sum: f64 = values.iter().sum();
    let (first, last) = (values.first().copied(), values.last().copied());
    match function {
        Function::Mean => Ok(sum / n),
        Function::Sum => Ok(sum),
        Function::Min => first.ok_or("no values"),
        Function::Max => last.ok_or("no values"),
        Function::Median => percentile(&values, 50),
        Function::Percentile(p) => percentile(&values, p),
        Function::Stddev => stats::mean_ci95(&values)
            .and_then(|over| over.sd)
            .ok_or("a standard deviation needs at least two runs"),
        Function::Jain => stats::jain(&values).ok_or("all values are zero"),
        Function::Count => Ok(n),
        Function::Spearman => Err("it needs an axis"),
    }
}

fn percentile(sorted: &[f64], p: u8) -> Result<f64, &'static str> {
    if sorted.is_empty() {
        Err("no values")
    } else {
        Ok(stats::percentile_sorted(sorted, f64::from(p) / 100.0))
    }
}

/// Ranks from 1; equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |v: &f64| {
        let below = values.iter().filter(|o| *o < v).count() as f64;
        let equal = values.iter().filter(|o| *o == v).count() as f64;
        below + (equal + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

fn correlation(xs: &[f64], ys: &[f64]) -> Option<f64> {
    let n = xs.len() as f64;
    let (mx, my) = (xs.iter().sum::<f64>() / n, ys.iter().sum::<f64>() / n);
    let pairs = || xs.iter().zip(ys);
    let covariance: f64 = pairs().map(|(x, y)| (x - mx) * (y - my)).sum();
    let spread = |values: &[f64], mean: f64| values.iter().map(|v| (v - mean).powi(2)).sum::<f64>().sqrt();
    let product = spread(xs, mx) * spread(ys, my);
    (product > 0.0).then(|| covariance / product)
}
