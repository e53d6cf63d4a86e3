//! Confirmation with other seeds of the simulator, and smaller candidates that violate the same property.

use crate::candidate::Candidate;
use crate::change::{Bounds, Change, Kind};
use crate::property::Property;
use crate::runner::{Judged, Judgment, Runner, Stop, worst};
use crate::subject::Subject;

/// Seeds with each of which a finding must violate its claim; also the runs of its scenario.
pub(crate) const SEEDS: u32 = 3;
/// Further seeds, with which a finding is counted.
pub(crate) const HELD_OUT_SEEDS: u32 = 5;
/// Least score with each seed: a bound that is missed by less is luck.
const MIN_SCORE: f64 = 1.05;
/// Score that shrinking need not retain: beyond it a simpler finding is worth more than a worse one.
const CLEAR_SCORE: f64 = 1.5;
/// Shortest duration after the warm-up.
const MIN_ROOM_MS: u32 = 1_000;

/// Confirmation and shrinking for one property.
pub(crate) struct Shrinker<'a, 'b> {
    pub(crate) subject: &'a Subject,
    pub(crate) runner: &'a mut Runner<'b>,
    pub(crate) property: Property,
    /// Runs that the budget has for it.
    pub(crate) until: u32,
}

impl Shrinker<'_, '_> {
    /// The worst claim that a candidate violates with each seed alone and with all, by `least` with all. `None`: there is none, or runs are
    /// used up.
    pub(crate) fn confirm(&mut self, candidate: &Candidate, least: f64) -> Result<Option<Judgment>, Stop> {
        let Some(judged) = Judged::new(self.subject, candidate, &[self.property]) else { return Ok(None) };
        let each = self.subject.runs_per_candidate();
        let mut runs = Vec::new();
        let mut failing: Option<Vec<String>> = None;
        for run in 0..SEEDS {
            if self.runner.used + each > self.until {
                return Ok(None);
            }
            let work = [(&judged, self.subject.seed(run))];
            let Some(figures) = self.runner.figures(&work)?.pop().flatten() else {
                return Ok(None);
            };
            let alone = judged.scores(std::slice::from_ref(&figures));
            let violated =
                alone.into_iter().filter(|scored| scored.score >= MIN_SCORE).map(|scored| scored.claim.id);
            let still: Vec<String> =
                violated.filter(|id| failing.as_ref().is_none_or(|before| before.contains(id))).collect();
            if still.is_empty() {
                return Ok(None);
            }
            failing = Some(still);
            runs.push(figures);
        }
        let failing = failing.unwrap_or_default();
        let together = judged.scores(&runs).into_iter().filter(|scored| failing.contains(&scored.claim.id));
        let worst = worst(together).filter(|scored| scored.score >= least.max(MIN_SCORE));
        Ok(worst.map(|worst| Judgment { candidate: candidate.clone(), worst }))
    }

    /// A smaller candidate that violates the property still, with at least the square root of its score or [`CLEAR_SCORE`].
    pub(crate) fn shrink(&mut self, mut found: Judgment) -> Result<Judgment, Stop> {
        let least = found.worst.score.sqrt().min(CLEAR_SCORE);
        loop {
            let before = found.candidate.clone();
            self.drop_changes(&mut found, least)?;
            self.shorten(&mut found, least)?;
            self.simplify(&mut found, least)?;
            if found.candidate == before {
                return Ok(found);
            }
        }
    }

    fn accept(&mut self, found: &mut Judgment, smaller: &Candidate, least: f64) -> Result<bool, Stop> {
        let Some(confirmed) = self.confirm(smaller, least)? else { return Ok(false) };
        *found = confirmed;
        Ok(true)
    }

    fn drop_changes(&mut self, found: &mut Judgment, least: f64) -> Result<(), Stop> {
        for index in (0..found.candidate.changes.len()).rev() {
            let mut smaller = found.candidate.clone();
            smaller.changes.remove(index);
            self.accept(found, &smaller, least)?;
        }
        Ok(())
    }

    /// The shortest of some durations.
    fn shorten(&mut self, found: &mut Judgment, least: f64) -> Result<(), Stop> {
        let full = found.candidate.end_ms;
        let start_ms = self.subject.bounds().start_ms;
        for quarters in 1..4 {
            let end_ms = (full / 4 * quarters).next_multiple_of(500);
            if end_ms >= full || end_ms < start_ms + MIN_ROOM_MS {
                continue;
            }
            let mut smaller = Candidate { end_ms, ..found.candidate.clone() };
            let bounds = self.bounds(&smaller);
            smaller.changes.iter_mut().for_each(|change| change.fit(&bounds));
            if self.accept(found, &smaller, least)? {
                break;
            }
        }
        Ok(())
    }

    fn simplify(&mut self, found: &mut Judgment, least: f64) -> Result<(), Stop> {
        for index in 0..found.candidate.changes.len() {
            for simpler in SIMPLER {
                let mut smaller = found.candidate.clone();
                let bounds = self.bounds(&smaller);
                simpler(&mut smaller.changes[index], &bounds);
                smaller.changes[index].fit(&bounds);
                if smaller != found.candidate {
                    self.accept(found, &smaller, least)?;
                }
            }
        }
        Ok(())
    }

    fn bounds(&self, candidate: &Candidate) -> Bounds {
        Bounds { end_ms: candidate.end_ms, ..self.subject.bounds().clone() }
    }

    /// Number of further seeds with which the finding's claim fails.
    pub(crate) fn held_out(&mut self, found: &Judgment) -> Result<u32, Stop> {
        let Some(judged) = Judged::new(self.subject, &found.candidate, &[self.property]) else {
            return Ok(0);
        };
        let further = SEEDS..SEEDS + HELD_OUT_SEEDS;
        let work: Vec<(&Judged, u64)> = further.map(|run| (&judged, self.subject.seed(run))).collect();
        let fails = |figures: Option<Vec<_>>| {
            let scores = figures.map(|figures| judged.scores(&[figures])).unwrap_or_default();
            scores.iter().any(|scored| scored.claim.id == found.worst.claim.id && scored.score > 1.0)
        };
        let figures = self.runner.figures(&work)?;
        Ok(figures.into_iter().map(fails).filter(|failed| *failed).count() as u32)
    }
}

/// Simpler forms of a change, the simplest of a kind first.
const SIMPLER: [fn(&mut Change, &Bounds); 9] = [
    |change, bounds| change.until_ms = bounds.end_ms,
    |change, bounds| change.from_ms = bounds.start_ms,
    |change, _| round_numbers(change, 1),
    |change, _| round_numbers(change, 2),
    |change, _| {
        if let Kind::Loss { burst_pkt, .. } = &mut change.kind {
            *burst_pkt = 1;
        }
    },
    |change, _| change.from_ms = round(change.from_ms, 1_000),
    |change, _| change.until_ms = round(change.until_ms, 1_000),
    |change, _| change.from_ms = round(change.from_ms, 100),
    |change, _| change.until_ms = round(change.until_ms, 100),
];

/// To the nearest multiple of `step`.
fn round(value: u32, step: u32) -> u32 {
    value.saturating_add(step / 2) / step * step
}

/// Rounds every number of a change to this many digits.
fn round_numbers(change: &mut Change, digits: u32) {
    for number in change.kind.numbers() {
        let step = 10u32.saturating_pow((number.value.max(&mut 1).ilog10() + 1).saturating_sub(digits));
        *number.value = round(*number.value, step).clamp(number.least, number.most);
    }
}
