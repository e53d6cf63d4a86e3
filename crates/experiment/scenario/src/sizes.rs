//! Distributions of transfer sizes, published and given in a scenario.
//!
//! The published ones are the piecewise linear discretizations of the papers' plots that the field's load
//! generators share; a plot cannot be read more exactly than to a few percent.

use serde::Serialize;
use vmcc_units::Bytes;

/// A published distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Named {
    /// Flows of a web-search cluster (Alizadeh et al., DCTCP, SIGCOMM 2010, figure 4): mean 1.7 MB, most bytes in
    /// flows of 1 to 30 MB.
    WebSearch,
    /// Flows of a data-mining cluster (Greenberg et al., VL2, SIGCOMM 2009, figure 2): 80 % below 10 kB, a few up
    /// to 1 GB.
    DataMining,
    /// Flows of a cache cluster (Roy et al., Inside the Social Network's (Datacenter) Network, SIGCOMM 2015,
    /// figure 6), in units of 1460-byte segments.
    Cache,
    /// Flows of a Hadoop cluster (Roy et al., SIGCOMM 2015, figure 6, with the points of the HPCC paper's simulations, SIGCOMM 2019): 60 % up to
    /// 1 kB, 99 % up to 2 MB.
    Hadoop,
}

const WEB_SEARCH: &[(u64, f64)] = &[
    (1, 0.0),
    (10_000, 0.15),
    (20_000, 0.20),
    (30_000, 0.30),
    (50_000, 0.40),
    (80_000, 0.53),
    (200_000, 0.60),
    (1_000_000, 0.70),
    (2_000_000, 0.80),
    (5_000_000, 0.90),
    (10_000_000, 0.97),
    (30_000_000, 1.0),
];

const DATA_MINING: &[(u64, f64)] = &[
    (1, 0.0),
    (180, 0.10),
    (216, 0.20),
    (560, 0.30),
    (900, 0.40),
    (1_100, 0.50),
    (1_870, 0.60),
    (3_160, 0.70),
    (10_000, 0.80),
    (400_000, 0.90),
    (3_160_000, 0.95),
    (100_000_000, 0.98),
    (1_000_000_000, 1.0),
];

const CACHE: &[(u64, f64)] = &[
    (1_460, 0.36),
    (2_920, 0.40),
    (10_220, 0.46),
    (18_980, 0.50),
    (97_820, 0.60),
    (194_180, 0.70),
    (973_820, 0.78),
    (1_946_180, 0.80),
    (2_920_000, 0.90),
    (3_893_820, 0.99),
    (48_666_180, 1.0),
];

const HADOOP: &[(u64, f64)] = &[
    (1, 0.0),
    (100, 0.01),
    (200, 0.02),
    (300, 0.05),
    (350, 0.15),
    (400, 0.20),
    (500, 0.30),
    (600, 0.40),
    (700, 0.50),
    (1_000, 0.60),
    (2_000, 0.67),
    (7_000, 0.70),
    (30_000, 0.72),
    (50_000, 0.82),
    (80_000, 0.87),
    (120_000, 0.90),
    (300_000, 0.95),
    (1_000_000, 0.975),
    (2_000_000, 0.99),
    (10_000_000, 1.0),
];

impl Named {
    /// The names in the language.
    pub const NAMES: &'static [&'static str] = &["web-search", "data-mining", "cache", "hadoop"];

    /// The distribution of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "web-search" => Some(Self::WebSearch),
            "data-mining" => Some(Self::DataMining),
            "cache" => Some(Self::Cache),
            "hadoop" => Some(Self::Hadoop),
            _ => None,
        }
    }

    /// Sizes in bytes with the share of transfers up to each.
    pub fn points(self) -> &'static [(u64, f64)] {
        match self {
            Self::WebSearch => WEB_SEARCH,
            Self::DataMining => DATA_MINING,
            Self::Cache => CACHE,
            Self::Hadoop => HADOOP,
        }
    }
}

/// A distribution ready to be drawn from: linear between its points.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizes {
    points: Vec<(u64, f64)>,
}

impl Sizes {
    /// Linear between these points: sizes in bytes with the share of transfers up to each.
    pub(crate) fn new(points: Vec<(u64, f64)>) -> Self {
        Self { points }
    }

    /// The size below which a share `u` (0 to 1) of transfers lies; at least one byte.
    pub fn quantile(&self, u: f64) -> Bytes {
        let above = self.points.partition_point(|(_, cdf)| *cdf < u);
        let size = match (above.checked_sub(1).map(|i| self.points[i]), self.points.get(above).copied()) {
            (Some((s0, c0)), Some((s1, c1))) => {
                s0 as f64 + (s1 as f64 - s0 as f64) * ((u - c0) / (c1 - c0)).clamp(0.0, 1.0)
            }
            (None, Some((s, _))) | (Some((s, _)), None) => s as f64,
            (None, None) => 1.0,
        };
        Bytes::new((size.round() as u64).max(1))
    }

    /// The mean size in bytes.
    pub fn mean(&self) -> f64 {
        let first = self.points.first().map_or(0.0, |(size, cdf)| *size as f64 * cdf);
        let between =
            self.points.windows(2).map(|w| (w[1].1 - w[0].1) * (w[0].0 as f64 + w[1].0 as f64) / 2.0);
        first + between.sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SizeDist;

    #[test]
    fn quantiles_interpolate_between_the_points() {
        let web = Sizes::from(&SizeDist::Named(Named::WebSearch));
        assert_eq!(web.quantile(0.53), Bytes::new(80_000));
        assert_eq!(web.quantile(0.35), Bytes::new(40_000));
        assert_eq!(web.quantile(1.0), Bytes::new(30_000_000));
        assert_eq!(web.quantile(0.0), Bytes::new(1));
        assert_eq!(Sizes::from(&SizeDist::Named(Named::Cache)).quantile(0.2), Bytes::new(1_460));
        assert_eq!(Sizes::from(&SizeDist::Fixed(Bytes::new(7))).quantile(0.5), Bytes::new(7));
    }

    #[test]
    fn means_match_the_sampled_distribution() {
        for named in [Named::WebSearch, Named::DataMining, Named::Cache, Named::Hadoop] {
            let sizes = Sizes::from(&SizeDist::Named(named));
            let n = 1_000_000;
            let sampled = (0..n).map(|i| sizes.quantile((f64::from(i) + 0.5) / f64::from(n)).get() as f64);
            let sampled = sampled.sum::<f64>() / f64::from(n);
            assert!(
                (sampled / sizes.mean() - 1.0).abs() < 1e-3,
                "{named:?}: {sampled} against {}",
                sizes.mean()
            );
        }
        // The DCTCP workload's mean is about 1.7 MB.
        let web = Sizes::from(&SizeDist::Named(Named::WebSearch)).mean();
        assert!((1.6e6..1.8e6).contains(&web), "{web}");
        // That of the HPCC paper's Hadoop workload about 120 kB.
        let hadoop = Sizes::from(&SizeDist::Named(Named::Hadoop)).mean();
        assert!((115e3..130e3).contains(&hadoop), "{hadoop}");
    }

    #[test]
    fn published_distributions_are_monotone_up_to_one() {
        for named in Named::NAMES.iter().filter_map(|name| Named::by_name(name)) {
            let points = named.points();
            assert!(points.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1));
            assert_eq!(points.last().map(|p| p.1), Some(1.0));
        }
    }
}
