//! Random draws in integers, the same on every machine.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng as _;

/// The generator of a search.
pub(crate) type Rng = Xoshiro256PlusPlus;

/// Uniform below `n`, which must not be 0.
pub(crate) fn below(rng: &mut Rng, n: usize) -> usize {
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}

/// Uniform from `least` to `most`.
pub(crate) fn within(rng: &mut Rng, least: u32, most: u32) -> u32 {
    least + below(rng, (most.saturating_sub(least) + 1) as usize) as u32
}

/// From `least` (above 0) to `most`, each octave alike.
pub(crate) fn octaves(rng: &mut Rng, least: u32, most: u32) -> u32 {
    let count = (most / least).max(1).ilog2() + 1;
    let low = least << below(rng, count as usize);
    within(rng, low, low.saturating_mul(2).saturating_sub(1).min(most).max(low))
}

/// True once in `n` draws.
pub(crate) fn one_in(rng: &mut Rng, n: usize) -> bool {
    below(rng, n) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::rand_core::SeedableRng;

    #[test]
    fn draws_stay_within_their_ranges_and_reach_both_ends() {
        let mut rng = Rng::seed_from_u64(1);
        let drawn: Vec<u32> = (0..20_000).map(|_| octaves(&mut rng, 5, 200)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&5), Some(&200)));
        assert!(
            drawn.iter().filter(|value| **value < 20).count() > 5_000,
            "small values are as likely as large ones"
        );
        assert_eq!(octaves(&mut rng, 7, 7), 7);
        assert!((0..100).map(|_| within(&mut rng, 3, 4)).all(|value| (3..=4).contains(&value)));
    }
}
