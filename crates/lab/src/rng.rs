//! Random number generator: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), enough for when clients come and machines are off.

use vmcc_units::Nanos;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64 generator.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// `number` tells several of one run apart.
    pub(crate) fn new(seed: u64, number: usize) -> Self {
        let mut rng = Self(seed ^ (number as u64).wrapping_mul(0xd134_2543_de82_ef95));
        // Seeds differ in a few bits only.
        let first = rng.next();
        Self(first)
    }

    /// A generator for one direction of a user-space link, independent of the others.
    pub(crate) fn of_link(seed: u64, number: usize) -> Self {
        Self::new(!seed, number)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to just below 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Of an exponential distribution with mean 1: the times between events of a Poisson process.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// One with this mean, in nanoseconds.
    pub(crate) fn exponential_ns(&mut self, mean: Nanos) -> u64 {
        (self.exponential() * mean.get() as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_follow_a_poisson_process() {
        let mut rng = Rng::new(7, 0);
        let gaps: Vec<f64> = (0..20_000).map(|_| rng.exponential()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.03 && (variance - 1.0).abs() < 0.06, "{mean} {variance}");
        assert_ne!(Rng::new(7, 0).uniform(), Rng::new(8, 0).uniform());
        assert_ne!(Rng::new(7, 0).uniform(), Rng::of_link(7, 0).uniform());
    }
}
