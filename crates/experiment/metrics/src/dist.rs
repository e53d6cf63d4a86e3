//! Samples reduced to what a table needs.

use crate::stats::percentile_sorted;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A distribution, reduced to the figures a table needs. The unit is that of the field's name.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Dist {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999: Option<f64>,
    /// Smallest sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Largest sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Number of samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
}

impl Dist {
    /// Reduces `samples`, sorting them in place. `None` when there are none. Samples must be finite.
    ///
    /// Percentiles interpolate linearly between the two nearest ranks, as NumPy and R do by default.
    pub fn from_samples(samples: &mut [f64]) -> Option<Self> {
        samples.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*samples.first()?, *samples.last()?);
        Some(Self {
            mean: samples.iter().sum::<f64>() / samples.len() as f64,
            p50: percentile_sorted(samples, 0.50),
            p99: percentile_sorted(samples, 0.99),
            p999: Some(percentile_sorted(samples, 0.999)),
            min: Some(min),
            max: Some(max),
            samples: Some(samples.len() as u64),
        })
    }

    /// Reduces histograms in nanoseconds, of equal precision, to microseconds. `None` when they are empty.
    pub(crate) fn from_nanoseconds<'a>(mut all: impl Iterator<Item = &'a Histogram<u64>>) -> Option<Self> {
        let mut sum = all.next()?.clone();
        for other in all {
            // One that does not fit would have other bounds, which nobody makes.
            let _ = sum.add(other);
        }
        let us = |ns: u64| ns as f64 / 1e3;
        (!sum.is_empty()).then(|| Self {
            mean: sum.mean() / 1e3,
            p50: us(sum.value_at_quantile(0.5)),
            p99: us(sum.value_at_quantile(0.99)),
            p999: Some(us(sum.value_at_quantile(0.999))),
            min: Some(us(sum.min())),
            max: Some(us(sum.max())),
            samples: Some(sum.len()),
        })
    }
}

/// A metric beyond the named ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Extra {
    /// One figure.
    Number(f64),
    /// A distribution.
    Dist(Dist),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_requires_samples() {
        assert_eq!(Dist::from_samples(&mut []), None);
        let dist = Dist::from_samples(&mut [3.0, 1.0, 2.0]).unwrap();
        assert!(dist.p999.is_some_and(|p999| (p999 - 2.998).abs() < 1e-9), "{dist:?}");
        assert_eq!(
            (dist.mean, dist.p50, dist.min, dist.max, dist.samples),
            (2.0, 2.0, Some(1.0), Some(3.0), Some(3))
        );
    }
}
