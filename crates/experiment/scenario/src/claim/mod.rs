//! Claims: expressions over the results, such as
//! `mean(goodput_bps, cc='vmcc') >= 1.03 * mean(goodput_bps, cc='lia')`.
//!
//! A selector, `function(metric, key='value', ...)`, reduces one metric over the runs of the cases whose sweep
//! values match. The arithmetic between selectors is the expression library's (`evalexpr`); all its
//! functions (`math::abs`, `min` of numbers, ...) may be used.
//!
//! | function | over the selected runs |
//! |---|---|
//! | `mean`, `median`, `min`, `max`, `sum`, `stddev` | as named (`stddev`: of a sample, n - 1) |
//! | `p50`, `p90`, `p95`, `p99` | percentile, interpolated |
//! | `jain` | Jain's fairness index |
//! | `count` | number of runs that have the metric |
//! | `spearman(metric, axis, ...)` | rank correlation of the case means with the values of an axis |

mod evaluate;
mod names;
mod parse;

pub use evaluate::{Bound, CaseFigures, ClaimError, Verdict};
pub use names::metrics;

use indexmap::IndexMap;
use serde_json::Value;

use crate::model::{ClaimSpec, Scenario};

/// A claim whose expression was read.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The claim as written in the file.
    pub spec: ClaimSpec,
    selectors: Vec<Selector>,
    /// The expression with each selector replaced by a variable.
    expression: String,
    /// The left side of the first comparison, likewise.
    left: Option<String>,
    /// If the whole is one comparison: its operator and its right side, likewise.
    right: Option<(String, String)>,
}

/// A fault in an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadClaim {
    /// In bytes from the start of the expression.
    pub(crate) offset: usize,
    pub(crate) length: usize,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

/// Reduction of the values that a selector selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Mean,
    Median,
    Min,
    Max,
    Sum,
    Stddev,
    Percentile(u8),
    Jain,
    Count,
    Spearman,
}

const FUNCTIONS: [(&str, Function); 13] = [
    ("mean", Function::Mean),
    ("median", Function::Median),
    ("min", Function::Min),
    ("max", Function::Max),
    ("sum", Function::Sum),
    ("stddev", Function::Stddev),
    ("p50", Function::Percentile(50)),
    ("p90", Function::Percentile(90)),
    ("p95", Function::Percentile(95)),
    ("p99", Function::Percentile(99)),
    ("jain", Function::Jain),
    ("count", Function::Count),
    ("spearman", Function::Spearman),
];

/// One `function(metric, key='value', ...)` of an expression.
#[derive(Debug, Clone, PartialEq)]
struct Selector {
    function: Function,
    metric: String,
    metric_at: usize,
    /// The axis of `spearman`, and where it is written.
    axis: Option<(String, usize)>,
    filters: Vec<Filter>,
    text: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    key: String,
    key_at: usize,
    value: Value,
    value_at: usize,
}

impl Claim {
    /// Reads the expression of a claim.
    pub(crate) fn parse(spec: ClaimSpec) -> Result<Self, BadClaim> {
        let parsed = parse::parse(&spec.check)?;
        let claim = Self {
            spec,
            selectors: parsed.selectors,
            expression: parsed.expression,
            left: parsed.left,
            right: parsed.right,
        };
        evaluate::dry_run(&claim)?;
        Ok(claim)
    }

    /// Checks metric names against the network and filters against the axes of the sweep.
    pub(crate) fn check_names(
        &self,
        scenario: &Scenario,
        axes: &[(String, Vec<Value>)],
    ) -> Result<(), BadClaim> {
        self.selectors.iter().try_for_each(|selector| names::check(selector, scenario, axes))
    }

    /// The metric whose unit the left side of the comparison has: that of its only selector, if it is nothing else.
    pub fn left_metric(&self) -> Option<&str> {
        let only = self.left.as_deref()?.trim();
        let index = (0..self.selectors.len()).find(|index| parse::variable(*index) == only)?;
        let selector = &self.selectors[index];
        let pure = matches!(selector.function, Function::Jain | Function::Count | Function::Spearman);
        (!pure).then_some(selector.metric.as_str())
    }

    /// True if the claim compares a case with these values.
    pub(crate) fn looks_at(&self, set: &IndexMap<String, Value>) -> bool {
        self.selectors.iter().any(|selector| selector.matches(set))
    }

    /// True if these cases (the values of each) have everything that the claim compares.
    pub(crate) fn selects(&self, cases: &[IndexMap<String, Value>]) -> bool {
        self.selectors.iter().all(|selector| selector.finds_cases(cases))
    }

    /// True if a full sweep over these axes has everything that the claim compares.
    pub(crate) fn could_select(&self, axes: &[(String, Vec<Value>)]) -> bool {
        self.selectors.iter().all(|selector| selector.fits_axes(axes))
    }

    /// The metrics that the claim needs, by dotted name.
    pub fn metrics(&self) -> impl Iterator<Item = &str> {
        self.selectors.iter().map(|s| s.metric.as_str())
    }
}

#[cfg(test)]
mod tests;
