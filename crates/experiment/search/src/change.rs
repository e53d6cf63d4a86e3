//! One change to a scenario: a link that changes for a while, or traffic beside the connections under test.

use crate::draw::{Rng, below, octaves, one_in, within};

/// Resolution of drawn times.
const TIME_STEP_MS: u32 = 10;
/// Share of the time for changes that a competing TCP connection lasts at least: a shorter one never leaves slow start.
const FLOW_SHARE: u32 = 3;

/// A change to one path for a while.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Change {
    /// Index among the scenario's paths.
    pub(crate) path: usize,
    pub(crate) from_ms: u32,
    pub(crate) until_ms: u32,
    pub(crate) kind: Kind,
}

/// The kinds of changes. Numbers are integers, so a scenario file has them exactly.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Another rate of the path's bottleneck, in percent of its own.
    Rate { percent: u32 },
    /// Another one-way delay of that link.
    Delay { us: u32 },
    /// Losses on that link, in the long run and in bursts.
    Loss { per_10k: u32, burst_pkt: u32 },
    /// The link carries nothing.
    Outage,
    /// A competing TCP connection.
    Flow,
    /// Datagrams, on and off, at a share of the path's rate.
    Datagrams { percent: u32, on_ms: u32, off_ms: u32 },
}

/// Number of kinds.
const KINDS: usize = 6;

/// Limits of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) paths: usize,
    /// From here on; connections are established by then.
    pub(crate) start_ms: u32,
    /// The end of the run.
    pub(crate) end_ms: u32,
}

/// A number of a change, with its range.
pub(crate) struct Number<'a> {
    pub(crate) value: &'a mut u32,
    pub(crate) least: u32,
    pub(crate) most: u32,
}

impl Kind {
    fn draw(rng: &mut Rng) -> Self {
        let mut kind = match below(rng, KINDS) {
            0 => Self::Rate { percent: 0 },
            1 => Self::Delay { us: 0 },
            2 => Self::Loss { per_10k: 0, burst_pkt: 0 },
            3 => Self::Outage,
            4 => Self::Flow,
            _ => Self::Datagrams { percent: 0, on_ms: 0, off_ms: 0 },
        };
        for Number { value, least, most } in kind.numbers() {
            *value = octaves(rng, least, most);
        }
        kind
    }

    /// Its numbers, each from `least` to `most`.
    pub(crate) fn numbers(&mut self) -> Vec<Number<'_>> {
        let number = |value, least, most| Number { value, least, most };
        match self {
            Self::Rate { percent } => vec![number(percent, 5, 200)],
            Self::Delay { us } => vec![number(us, 100, 200_000)],
            Self::Loss { per_10k, burst_pkt } => vec![number(per_10k, 1, 1000), number(burst_pkt, 1, 50)],
            Self::Outage | Self::Flow => Vec::new(),
            Self::Datagrams { percent, on_ms, off_ms } => {
                vec![number(percent, 10, 100), number(on_ms, 10, 2000), number(off_ms, 10, 2000)]
            }
        }
    }
}

impl Change {
    pub(crate) fn draw(bounds: &Bounds, rng: &mut Rng) -> Self {
        let mut change =
            Self { path: below(rng, bounds.paths), from_ms: 0, until_ms: 0, kind: Kind::draw(rng) };
        change.draw_times(bounds, rng);
        change
    }

    /// Draws one part of it again: its times, its path or a number.
    pub(crate) fn redraw(&mut self, bounds: &Bounds, rng: &mut Rng) {
        match below(rng, 4) {
            0 => self.draw_times(bounds, rng),
            1 => self.path = below(rng, bounds.paths),
            _ => {
                let mut numbers = self.kind.numbers();
                if numbers.is_empty() {
                    return self.draw_times(bounds, rng);
                }
                let chosen = below(rng, numbers.len());
                let Number { value, least, most } = &mut numbers[chosen];
                **value = octaves(rng, *least, *most);
            }
        }
    }

    fn draw_times(&mut self, bounds: &Bounds, rng: &mut Rng) {
        let step = |ms: u32| ms / TIME_STEP_MS * TIME_STEP_MS;
        self.from_ms = step(within(rng, bounds.start_ms, bounds.end_ms));
        let longest = bounds.end_ms.saturating_sub(self.from_ms).max(TIME_STEP_MS);
        // Every fourth lasts to the end of the run.
        let lasts = if one_in(rng, 4) { longest } else { octaves(rng, TIME_STEP_MS, longest) };
        self.until_ms = step(self.from_ms.saturating_add(lasts));
        self.fit(bounds);
    }

    /// Moves its times into the bounds, and makes it as long as its kind needs.
    pub(crate) fn fit(&mut self, bounds: &Bounds) {
        let room = bounds.end_ms - bounds.start_ms;
        let least = match self.kind {
            Kind::Flow => room / FLOW_SHARE,
            _ => TIME_STEP_MS,
        };
        let least = least.clamp(1, room);
        self.from_ms = self.from_ms.clamp(bounds.start_ms, bounds.end_ms - least);
        self.until_ms = self.until_ms.clamp(self.from_ms + least, bounds.end_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::rand_core::SeedableRng;

    #[test]
    fn drawn_and_redrawn_changes_stay_within_their_bounds() {
        let mut rng = Rng::seed_from_u64(7);
        for bounds in
            [Bounds { paths: 2, start_ms: 1000, end_ms: 6000 }, Bounds { paths: 1, start_ms: 1, end_ms: 101 }]
        {
            for _ in 0..5_000 {
                let mut change = Change::draw(&bounds, &mut rng);
                change.redraw(&bounds, &mut rng);
                assert!(change.path < bounds.paths, "{change:?}");
                assert!(bounds.start_ms <= change.from_ms && change.from_ms < change.until_ms, "{change:?}");
                assert!(change.until_ms <= bounds.end_ms, "{change:?}");
                let in_range = |n: &Number<'_>| (n.least..=n.most).contains(&*n.value);
                assert!(change.kind.numbers().iter().all(in_range), "{change:?}");
            }
        }
    }
}
