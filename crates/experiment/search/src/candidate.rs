//! Candidates: lists of changes, how they vary and how two become one.

use crate::change::{Bounds, Change};
use crate::draw::{Rng, below, one_in};

/// Most changes of a candidate.
const MAX_CHANGES: usize = 6;

/// A list of changes to a scenario that then lasts until `end_ms`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Candidate {
    pub(crate) changes: Vec<Change>,
    pub(crate) end_ms: u32,
}

impl Candidate {
    /// The scenario as it is.
    pub(crate) fn unchanged(bounds: &Bounds) -> Self {
        Self { changes: Vec::new(), end_ms: bounds.end_ms }
    }

    /// From one to three changes.
    pub(crate) fn draw(bounds: &Bounds, rng: &mut Rng) -> Self {
        let count = 1 + below(rng, 3);
        Self { changes: (0..count).map(|_| Change::draw(bounds, rng)).collect(), end_ms: bounds.end_ms }
    }

    /// The same with one to three mutations.
    pub(crate) fn mutated(&self, bounds: &Bounds, rng: &mut Rng) -> Self {
        let mut child = self.clone();
        for _ in 0..=below(rng, 3) {
            child.mutate(bounds, rng);
        }
        child
    }

    fn mutate(&mut self, bounds: &Bounds, rng: &mut Rng) {
        let count = self.changes.len();
        if count == 0 || (count < MAX_CHANGES && one_in(rng, 4)) {
            return self.changes.push(Change::draw(bounds, rng));
        }
        let chosen = below(rng, count);
        match below(rng, 6) {
            0 if count > 1 => drop(self.changes.remove(chosen)),
            1 => self.changes[chosen] = Change::draw(bounds, rng),
            _ => self.changes[chosen].redraw(bounds, rng),
        }
    }

    /// About half of the changes of each of the two, at least one.
    pub(crate) fn crossed(&self, other: &Self, rng: &mut Rng) -> Self {
        let all: Vec<&Change> = self.changes.iter().chain(&other.changes).collect();
        let mut changes: Vec<Change> =
            all.iter().filter(|_| one_in(rng, 2)).map(|change| (*change).clone()).take(MAX_CHANGES).collect();
        if changes.is_empty() && !all.is_empty() {
            changes.push(all[below(rng, all.len())].clone());
        }
        Self { changes, end_ms: self.end_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::rand_core::SeedableRng;

    #[test]
    fn offspring_has_a_bounded_number_of_changes() {
        let bounds = Bounds { paths: 2, start_ms: 500, end_ms: 5000 };
        let mut rng = Rng::seed_from_u64(3);
        let mut pool = vec![Candidate::unchanged(&bounds)];
        for _ in 0..3_000 {
            let (a, b) = (below(&mut rng, pool.len()), below(&mut rng, pool.len()));
            let child = pool[a].crossed(&pool[b], &mut rng).mutated(&bounds, &mut rng);
            assert!((1..=MAX_CHANGES).contains(&child.changes.len()));
            pool.push(child);
        }
        assert!(pool.iter().any(|one| one.changes.len() == MAX_CHANGES));
        assert!(pool.iter().skip(1).any(|one| one.changes.len() == 1));
    }
}
