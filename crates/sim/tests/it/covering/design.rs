//! Pairwise covering arrays, built greedily.

use std::collections::BTreeSet;

/// Rows of one level per axis.
pub(crate) struct Design {
    sizes: Vec<usize>,
    pub(crate) rows: Vec<Vec<usize>>,
}

/// Two axes and a level of each.
type Pair = (usize, usize, usize, usize);

fn pairs_of(row: &[usize]) -> impl Iterator<Item = Pair> + '_ {
    (0..row.len()).flat_map(move |a| (a + 1..row.len()).map(move |b| (a, row[a], b, row[b])))
}

fn all_pairs(sizes: &[usize]) -> BTreeSet<Pair> {
    let axes = 0..sizes.len();
    let couples = axes.clone().flat_map(|a| axes.clone().skip(a + 1).map(move |b| (a, b)));
    couples
        .flat_map(|(a, b)| (0..sizes[a]).flat_map(move |i| (0..sizes[b]).map(move |j| (a, i, b, j))))
        .collect()
}

/// A number that depends on everything in `words` (`SplitMix64`'s steps).
fn mixed(words: [usize; 3]) -> u64 {
    words.into_iter().fold(0x9e37_79b9_7f4a_7c15, |state: u64, word| {
        let mut z = (state ^ word as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

impl Design {
    /// Each row starts from a pair not yet met and takes on every other axis the level that meets most such pairs; among
    /// equals `seed` decides.
    pub(crate) fn pairwise(sizes: &[usize], seed: u64) -> Design {
        let mut open = all_pairs(sizes);
        let mut rows = Vec::new();
        while let Some(&(a, i, b, j)) =
            open.iter().min_by_key(|p| mixed([p.0 * 64 + p.1, p.2 * 64 + p.3, seed as usize]))
        {
            let mut row: Vec<Option<usize>> = vec![None; sizes.len()];
            (row[a], row[b]) = (Some(i), Some(j));
            for axis in 0..sizes.len() {
                if row[axis].is_none() {
                    let gain = |level: usize| {
                        let meets = |(other, chosen): (usize, &Option<usize>)| {
                            chosen.is_some_and(|c| {
                                open.contains(&if other < axis {
                                    (other, c, axis, level)
                                } else {
                                    (axis, level, other, c)
                                })
                            })
                        };
                        row.iter().enumerate().filter(|&p| meets(p)).count()
                    };
                    let best = |level: &usize| {
                        (gain(*level), mixed([*level, axis + 64 * rows.len(), seed as usize]))
                    };
                    row[axis] = (0..sizes[axis]).max_by_key(best);
                }
            }
            let row: Vec<usize> = row.into_iter().flatten().collect();
            for pair in pairs_of(&row) {
                open.remove(&pair);
            }
            rows.push(row);
        }
        Design { sizes: sizes.to_vec(), rows }
    }

    pub(crate) fn is_covering(&self) -> bool {
        let mut open = all_pairs(&self.sizes);
        for pair in self.rows.iter().flat_map(|row| pairs_of(row)) {
            open.remove(&pair);
        }
        open.is_empty()
    }
}
