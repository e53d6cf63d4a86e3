//! Named random streams.
//!
//! Every consumer of randomness owns a stream derived from the run's seed and a name that says what it is
//! (`"link/a/there/loss"`, `"traffic/web/h0>any/arrivals"`). Streams are independent, so adding a flow or a link changes
//! no other's draws, and the order in which streams are made does not matter.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

use crate::time::Span;

/// One stream. Implements the traits of the `rand` crate.
pub type Stream = Xoshiro256PlusPlus;

/// The source of all streams of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    seed: u64,
}

impl Streams {
    /// Streams of the run with this seed.
    pub const fn new(seed: u64) -> Streams {
        Streams { seed }
    }

    /// The stream called `name`; always starts from its beginning.
    pub fn stream(&self, name: &str) -> Stream {
        let mut hash = Sha256::new();
        hash.update(self.seed.to_le_bytes());
        hash.update(name.as_bytes());
        Stream::from_seed(hash.finalize().into())
    }
}

/// Uniform in [0, 1).
pub(crate) fn uniform(stream: &mut Stream) -> f64 {
    (stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Exponential with this mean. The logarithm is the same on every machine.
pub(crate) fn exponential(stream: &mut Stream, mean: f64) -> f64 {
    -libm::log(1.0 - uniform(stream)) * mean
}

/// Exponential length of time with this mean.
pub(crate) fn exponential_span(stream: &mut Stream, mean: Span) -> Span {
    Span::from_ps(exponential(stream, mean.ps() as f64) as u64)
}

/// Uniform below `n`, which must not be 0; the bias is below n / 2^64.
pub(crate) fn below(stream: &mut Stream, n: usize) -> usize {
    ((u128::from(stream.next_u64()) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_depend_on_seed_and_name_only() {
        let first = |seed, name: &str| Streams::new(seed).stream(name).next_u64();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
    }
}
