//! A search: evolution, confirmation, shrinking.

use crate::error::SearchError;
use crate::evolution::{Evolution, Strategy, violation};
use crate::minimal::minimize;
use crate::property::Property;
use crate::runner::{Judgment, Runner, Scored, Stop};
use crate::shrink::{HELD_OUT_SEEDS, SEEDS, Shrinker};
use crate::subject::{Subject, text};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::atomic::AtomicBool;
use vmcc_engine::Engine;

/// Least budget, in candidates: one generation with two seeds, and the confirmation of one finding.
const MIN_CANDIDATES: u32 = 72;

/// Parts of the budget for confirmation and shrinking: the first, or the second where nothing is violated by then.
const RESERVES: [u32; 2] = [3, 9];

/// Settings that decide what a search finds.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Properties to break.
    pub properties: Vec<Property>,
    /// Most simulator runs.
    pub budget: u32,
    /// Seed of the search's own draws.
    pub seed: u64,
    /// Way to new candidates.
    pub strategy: Strategy,
}

impl Settings {
    /// Checks that a search of `subject` can be made with them.
    ///
    /// # Errors
    /// The budget is too small, or there is no property.
    pub fn check(&self, subject: &Subject) -> Result<(), SearchError> {
        if self.properties.is_empty() {
            return Err(SearchError::unsuitable("no property is to be broken", "name at least one"));
        }
        let each = subject.runs_per_candidate();
        let least = MIN_CANDIDATES * each;
        if self.budget >= least {
            return Ok(());
        }
        Err(SearchError::unsuitable(
            format!("a budget of {} runs is too small: each candidate takes {each}", self.budget),
            format!("give at least {least}"),
        ))
    }
}

/// Execution of a search, which does not reach its results.
#[derive(Clone, Copy)]
pub struct Execution<'a> {
    /// Runs at the same time, at least 1.
    pub jobs: usize,
    /// Set by the caller to stop.
    pub stop: &'a AtomicBool,
    /// Called with the number of each finished run, from 0.
    pub progress: &'a (dyn Fn(usize) + Sync),
}

/// Result of a search.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Simulator runs.
    pub runs: u32,
    /// True if it was stopped before its end.
    pub interrupted: bool,
    /// Results for each property, in the order of the settings.
    pub properties: Vec<PropertyOutcome>,
}

/// Result for one property.
#[derive(Debug, Clone, Serialize)]
pub struct PropertyOutcome {
    /// The property.
    pub property: Property,
    /// Worst score of the search itself, the lower one of two seeds above 1. Absent: nothing could be judged.
    pub worst_score: Option<f64>,
    /// Confirmed and shrunk violation.
    pub finding: Option<Finding>,
}

/// A scenario with a claim that fails.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// Name of the claim.
    pub claim: String,
    /// Its expression.
    pub check: String,
    /// Ratio of value and bound over all its seeds.
    pub score: f64,
    /// Number of changes to the scenario.
    pub changes: usize,
    /// Outcome with further seeds. Absent: the search was interrupted before, and the finding is neither confirmed nor shrunk.
    pub held_out: Option<HeldOut>,
    /// Text of the scenario file.
    #[serde(skip)]
    pub scenario: String,
}

/// Seeds that had no part in the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HeldOut {
    /// Those with which the claim fails.
    pub failed: u32,
    /// All of them.
    pub seeds: u32,
}

/// Searches for changes to `subject` that break properties. The same settings give the same outcome for any number of jobs.
///
/// # Errors
/// The settings are not possible, or the engine cannot run the scenario.
pub fn search(
    subject: &Subject,
    engine: &dyn Engine,
    settings: &Settings,
    how: &Execution<'_>,
) -> Result<Outcome, SearchError> {
    settings.check(subject)?;
    let Execution { jobs, stop, progress } = *how;
    let mut runner = Runner { engine, jobs, stop, progress, used: 0 };
    runner.try_unchanged(subject)?;
    let mut search = Search { subject, settings, runner, results: Vec::new() };
    let mut evolution = Evolution::new(subject, &settings.properties, settings.strategy, settings.seed);
    let ended = search.perform(&mut evolution);
    if let Err(Stop::Failed(error)) = ended {
        return Err(error.into());
    }
    search.keep_unfinished(&evolution);
    Ok(Outcome { runs: search.runner.used, interrupted: ended.is_err(), properties: search.results })
}

struct Search<'a> {
    subject: &'a Subject,
    settings: &'a Settings,
    runner: Runner<'a>,
    results: Vec<PropertyOutcome>,
}

impl Search<'_> {
    fn perform(&mut self, evolution: &mut Evolution<'_>) -> Result<(), Stop> {
        let budget = self.settings.budget;
        for reserve in RESERVES {
            evolution.run(&mut self.runner, budget - budget / reserve)?;
            if evolution.violated() > 0 {
                break;
            }
        }
        let mut open = evolution.violated();
        for (property, parents) in &evolution.populations {
            let mut finding = None;
            if violation(parents).is_some() {
                let share = (budget - self.runner.used) / open.max(1);
                open -= 1;
                finding = self.finding(*property, parents, self.runner.used + share)?;
            }
            self.results.push(outcome(*property, parents, finding));
        }
        Ok(())
    }

    /// The worst candidate that is confirmed, shrunk.
    fn finding(
        &mut self,
        property: Property,
        parents: &[Judgment],
        until: u32,
    ) -> Result<Option<Finding>, Stop> {
        let held_out = HELD_OUT_SEEDS * self.subject.runs_per_candidate();
        let mut shrinker = Shrinker {
            subject: self.subject,
            runner: &mut self.runner,
            property,
            until: until.saturating_sub(held_out),
        };
        for parent in parents.iter().filter(|parent| parent.is_violation()) {
            let Some(confirmed) = shrinker.confirm(&parent.candidate, 1.0)? else { continue };
            let shrunk = shrinker.shrink(confirmed)?;
            let failed = shrinker.held_out(&shrunk)?;
            let held_out = HeldOut { failed, seeds: HELD_OUT_SEEDS };
            return Ok(Some(self.written(&shrunk, SEEDS, Some(held_out))));
        }
        Ok(None)
    }

    /// After an interruption: the worst candidates of properties that were not finished, as they are.
    fn keep_unfinished(&mut self, evolution: &Evolution<'_>) {
        for (property, parents) in evolution.populations.iter().skip(self.results.len()) {
            let finding = violation(parents).map(|parent| self.written(parent, 1, None));
            self.results.push(outcome(*property, parents, finding));
        }
    }

    /// A finding with its scenario file.
    fn written(&self, found: &Judgment, runs: u32, held_out: Option<HeldOut>) -> Finding {
        let (candidate, Scored { claim, score, .. }) = (&found.candidate, &found.worst);
        let mut tree = self.subject.candidate_tree(candidate, std::slice::from_ref(claim), runs);
        tree.insert("title".into(), json!(self.title(found)));
        tree.shift_insert(1, "description".into(), json!(self.description(found, held_out)));
        let meaning = |tree: &Map<String, Value>| Some(self.subject.plan_of(tree).ok()?.cases);
        let whole = meaning(&tree);
        minimize(&mut tree, &|smaller| whole.is_some() && meaning(smaller) == whole);
        Finding {
            claim: claim.id.clone(),
            check: claim.check.clone(),
            score: *score,
            changes: candidate.changes.len(),
            held_out,
            scenario: text(&tree),
        }
    }

    fn title(&self, found: &Judgment) -> String {
        format!("{}: {}", self.subject.algorithm(), found.worst.property.violation())
    }

    fn description(&self, found: &Judgment, held_out: Option<HeldOut>) -> String {
        let (name, seed, control) = (self.subject.name(), self.settings.seed, self.subject.control());
        let changes = match found.candidate.changes.len() {
            0 => "unchanged".to_owned(),
            1 => "with 1 change".to_owned(),
            several => format!("with {several} changes"),
        };
        let further = match held_out {
            Some(HeldOut { failed, seeds }) => format!("{failed} of {seeds} further seeds fail it, too."),
            None => {
                "The search was interrupted: it is neither confirmed with other seeds nor shrunk.".to_owned()
            }
        };
        format!(
            "Found by `vmcc search` (seed {seed}): the scenario {name} {changes}. The claim compares it with one TCP connection \
             ({control}) on each path. {further}"
        )
    }
}

fn outcome(property: Property, parents: &[Judgment], finding: Option<Finding>) -> PropertyOutcome {
    PropertyOutcome { property, worst_score: parents.first().map(|parent| parent.worst.score), finding }
}
