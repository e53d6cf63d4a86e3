//! A (mu + lambda) evolution with one population for each property.
//!
//! Every candidate is scored for all properties, and may enter each population.

use crate::candidate::Candidate;
use crate::draw::{Rng, below, one_in};
use crate::property::Property;
use crate::runner::{Judgment, Runner, Scored, Stop, worst};
use crate::subject::Subject;
use rand_xoshiro::rand_core::SeedableRng;
use serde::Serialize;
use std::collections::HashSet;

/// Parents of a population.
const PARENTS: usize = 6;
/// Candidates of a generation.
const OFFSPRING: usize = 24;
/// Attempts at a child that was not tried before.
const ATTEMPTS: usize = 20;

/// Way to new candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// From the worst ones so far.
    Evolve,
    /// At random, as a comparison.
    Random,
}

/// The best candidates for each property.
pub(crate) struct Evolution<'a> {
    subject: &'a Subject,
    strategy: Strategy,
    rng: Rng,
    tried: HashSet<Candidate>,
    pub(crate) populations: Vec<(Property, Vec<Judgment>)>,
}

impl<'a> Evolution<'a> {
    pub(crate) fn new(subject: &'a Subject, properties: &[Property], strategy: Strategy, seed: u64) -> Self {
        Self {
            subject,
            strategy,
            rng: Rng::seed_from_u64(seed),
            tried: HashSet::new(),
            populations: properties.iter().map(|property| (*property, Vec::new())).collect(),
        }
    }

    /// Scores generations until the runner has used `until` runs. The first begins with the scenario as it is.
    pub(crate) fn run(&mut self, runner: &mut Runner<'_>, until: u32) -> Result<(), Stop> {
        let each = self.subject.runs_per_candidate();
        let mut next = vec![Candidate::unchanged(self.subject.bounds())];
        loop {
            // Each may be run with two seeds.
            let room = (until.saturating_sub(runner.used) / (2 * each)) as usize;
            while next.len() < OFFSPRING.min(room) {
                next.push(self.child(next.len()));
            }
            next.truncate(room);
            if next.is_empty() {
                return Ok(());
            }
            let scores = self.scores(runner, &next)?;
            for (candidate, scores) in next.drain(..).zip(scores) {
                self.enter(&candidate, &scores);
            }
        }
    }

    /// Scores of each candidate's claims: with the first seed, or the lower of two seeds for candidates that violate one, so that luck with a
    /// seed is not bred.
    fn scores(&self, runner: &mut Runner<'_>, candidates: &[Candidate]) -> Result<Vec<Vec<Scored>>, Stop> {
        let properties: Vec<Property> = self.populations.iter().map(|(property, _)| *property).collect();
        let first = runner.scores(self.subject, candidates, &properties, self.subject.seed(0))?;
        let mut scores: Vec<Vec<Scored>> = first.into_iter().map(Option::unwrap_or_default).collect();
        let (violating, again): (Vec<&mut Vec<Scored>>, Vec<Candidate>) = scores
            .iter_mut()
            .zip(candidates)
            .filter(|(scores, _)| scores.iter().any(|scored| scored.score > 1.0))
            .map(|(scores, candidate)| (scores, candidate.clone()))
            .unzip();
        let second = runner.scores(self.subject, &again, &properties, self.subject.seed(1))?;
        for (scores, second) in violating.into_iter().zip(second) {
            let second = second.unwrap_or_default();
            for scored in scores {
                let same = second.iter().find(|other| other.claim.id == scored.claim.id);
                scored.score = scored.score.min(same.map_or(0.0, |other| other.score));
            }
        }
        Ok(scores)
    }

    /// Number of properties that some candidate violates.
    pub(crate) fn violated(&self) -> u32 {
        self.populations.iter().filter(|(_, parents)| violation(parents).is_some()).count() as u32
    }

    /// A child for the `index`-th place of a generation, which properties take in turn.
    fn child(&mut self, index: usize) -> Candidate {
        let bounds = self.subject.bounds();
        let (_, parents) = &self.populations[index % self.populations.len()];
        let mut child = Candidate::draw(bounds, &mut self.rng);
        for _ in 0..ATTEMPTS {
            if self.strategy == Strategy::Evolve && !parents.is_empty() && !one_in(&mut self.rng, 6) {
                let first = &parents[tournament(parents.len(), &mut self.rng)].candidate;
                let second = &parents[tournament(parents.len(), &mut self.rng)].candidate;
                let crossed = if one_in(&mut self.rng, 3) {
                    first.crossed(second, &mut self.rng)
                } else {
                    first.clone()
                };
                child = crossed.mutated(bounds, &mut self.rng);
            }
            if self.tried.insert(child.clone()) {
                break;
            }
            child = Candidate::draw(bounds, &mut self.rng);
        }
        child
    }

    /// Puts a candidate into each population that it is good enough for.
    fn enter(&mut self, candidate: &Candidate, scores: &[Scored]) {
        for (property, parents) in &mut self.populations {
            let own = scores.iter().filter(|scored| scored.property == *property);
            let Some(worst) = worst(own.cloned()) else { continue };
            // Of equal ones the smaller, then the earlier.
            let size = candidate.changes.len();
            let stays = |parent: &Judgment| {
                let score = parent.worst.score;
                score > worst.score || (score == worst.score && parent.candidate.changes.len() <= size)
            };
            let place = parents.iter().position(|parent| !stays(parent)).unwrap_or(parents.len());
            parents.insert(place, Judgment { candidate: candidate.clone(), worst });
            parents.truncate(PARENTS);
        }
    }
}

/// The worst candidate of a population, if it violates the property.
pub(crate) fn violation(parents: &[Judgment]) -> Option<&Judgment> {
    parents.first().filter(|worst| worst.is_violation())
}

/// The better of two drawn places.
fn tournament(count: usize, rng: &mut Rng) -> usize {
    below(rng, count).min(below(rng, count))
}
