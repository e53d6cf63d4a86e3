//! The statistics that tables, claims and the report share.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean over independent runs with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanCi {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval (Student's t); `None` below two runs.
    pub half_width: Option<f64>,
    /// Sample standard deviation (n - 1); `None` below two runs.
    pub sd: Option<f64>,
    /// Number of runs.
    pub n: usize,
}

/// Mean and 95 % confidence interval over independent runs. `None` without values.
pub fn mean_ci95(values: &[f64]) -> Option<MeanCi> {
    let n = values.len();
    if n == 0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    if n == 1 {
        return Some(MeanCi { mean, half_width: None, sd: None, n });
    }
    let degrees = (n - 1) as f64;
    let sd = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / degrees).sqrt();
    let half_width =
        StudentsT::new(0.0, 1.0, degrees).ok().map(|t| t.inverse_cdf(0.975) * sd / (n as f64).sqrt());
    Some(MeanCi { mean, half_width, sd: Some(sd), n })
}

/// Half the width of the 95 % confidence interval of a difference of two means whose variances may differ (Welch's t); `None` if
/// either is of one run.
pub fn welch_ci95(a: MeanCi, b: MeanCi) -> Option<f64> {
    let degrees = |one: MeanCi| (one.n - 1) as f64;
    let (of_a, of_b) = (a.sd?.powi(2) / a.n as f64, b.sd?.powi(2) / b.n as f64);
    let variance = of_a + of_b;
    if variance == 0.0 {
        return Some(0.0);
    }
    let freedom = variance.powi(2) / (of_a.powi(2) / degrees(a) + of_b.powi(2) / degrees(b));
    StudentsT::new(0.0, 1.0, freedom).ok().map(|t| t.inverse_cdf(0.975) * variance.sqrt())
}

/// The `q` quantile (0 to 1) of ascending `sorted`, by linear interpolation between the nearest ranks.
///
/// # Panics
/// When `sorted` is empty.
pub fn percentile_sorted(sorted: &[f64], q: f64) -> f64 {
    let rank = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    below + (above - below) * rank.fract()
}

/// Jain's fairness index, (sum x)^2 / (n * sum x^2): 1 when all are equal, 1/n when one has everything.
/// `None` without values or when all are zero.
pub fn jain(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_interval_matches_the_printed_table() {
        // t(0.975, 4 degrees) = 2.776; sd of 1..5 is sqrt(2.5).
        let ci = mean_ci95(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(ci.mean, 3.0);
        let expected = 2.776_445 * 2.5_f64.sqrt() / 5_f64.sqrt();
        assert!((ci.half_width.unwrap() - expected).abs() < 1e-5, "{ci:?}");
    }

    #[test]
    fn one_run_has_no_interval_and_none_has_no_mean() {
        assert_eq!(mean_ci95(&[7.0]).unwrap().half_width, None);
        assert_eq!(mean_ci95(&[]), None);
    }

    #[test]
    fn welch_interval_matches_the_integrated_density() {
        // t(0.975, 7.0469 degrees) = 2.361_439, by numerical integration.
        let a = mean_ci95(&[27.5, 21.0, 19.0, 23.6, 17.0, 17.9]).unwrap();
        let b = mean_ci95(&[27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0]).unwrap();
        assert!((welch_ci95(a, b).unwrap() - 4.196_094).abs() < 1e-4, "{:?}", welch_ci95(a, b));
        assert_eq!(welch_ci95(a, mean_ci95(&[1.0]).unwrap()), None);
        let same = mean_ci95(&[2.0, 2.0]).unwrap();
        assert_eq!(welch_ci95(same, same), Some(0.0));
    }

    #[test]
    fn percentiles_interpolate() {
        let v = [10.0, 20.0, 30.0, 40.0];
        assert_eq!(percentile_sorted(&v, 0.0), 10.0);
        assert_eq!(percentile_sorted(&v, 0.5), 25.0);
        assert_eq!(percentile_sorted(&v, 1.0), 40.0);
    }

    #[test]
    fn jain_is_one_when_equal_and_one_over_n_when_one_has_all() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[0.0]), None);
        assert_eq!(jain(&[]), None);
    }
}
