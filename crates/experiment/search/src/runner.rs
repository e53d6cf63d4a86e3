//! Simulator runs: several at a time, within a budget, in an order that does not reach the results.

use crate::candidate::Candidate;
use crate::error::SearchError;
use crate::property::Property;
use crate::subject::Subject;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use vmcc_engine::{Engine, EngineError, ErrorKind};
use vmcc_scenario::{CaseFigures, Claim, ClaimSpec, Plan};

/// Ratio of a bound and a value of zero.
const MAX_SCORE: f64 = 1_000.0;

/// Reason for which a search ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    Interrupted,
    Failed(EngineError),
}

/// Execution of runs.
pub(crate) struct Runner<'a> {
    pub(crate) engine: &'a dyn Engine,
    pub(crate) jobs: usize,
    pub(crate) stop: &'a AtomicBool,
    /// Called with the number of each finished run.
    pub(crate) progress: &'a (dyn Fn(usize) + Sync),
    /// Runs so far.
    pub(crate) used: u32,
}

/// A claim, and how badly a candidate violates it.
#[derive(Debug, Clone)]
pub(crate) struct Scored {
    pub(crate) property: Property,
    pub(crate) claim: ClaimSpec,
    /// Above 1 if it is violated: the ratio of value and bound.
    pub(crate) score: f64,
}

/// The one with the largest score, the first of equal ones.
pub(crate) fn worst(scores: impl Iterator<Item = Scored>) -> Option<Scored> {
    scores.reduce(|a, b| if b.score > a.score { b } else { a })
}

/// A candidate, and its worst claim of a property.
#[derive(Debug, Clone)]
pub(crate) struct Judgment {
    pub(crate) candidate: Candidate,
    pub(crate) worst: Scored,
}

impl Judgment {
    pub(crate) fn is_violation(&self) -> bool {
        self.worst.score > 1.0
    }
}

/// Figures of a run by name.
type Figures = BTreeMap<String, f64>;

impl Runner<'_> {
    /// Scores of each candidate's claims with `seed`, in their order. `None`: no engine takes the candidate.
    pub(crate) fn scores(
        &mut self,
        subject: &Subject,
        candidates: &[Candidate],
        properties: &[Property],
        seed: u64,
    ) -> Result<Vec<Option<Vec<Scored>>>, Stop> {
        let judged = |index: usize| Judged::new(subject, &candidates[index], properties);
        let judged: Vec<Option<Judged>> = self.parallel(candidates.len(), judged);
        let work: Vec<(&Judged, u64)> = judged.iter().flatten().map(|one| (one, seed)).collect();
        let mut figures = self.figures(&work)?.into_iter();
        let score = |judged: &Option<Judged>| Some(judged.as_ref()?.scores(&[figures.next()??]));
        Ok(judged.iter().map(score).collect())
    }

    /// Figures of every case of each plan with its seed. `None`: the engine refuses a case.
    pub(crate) fn figures(&mut self, work: &[(&Judged, u64)]) -> Result<Vec<Option<Vec<Figures>>>, Stop> {
        let units: Vec<(usize, usize)> = work
            .iter()
            .enumerate()
            .flat_map(|(n, (judged, _))| (0..judged.plan.cases.len()).map(move |case| (n, case)))
            .collect();
        let done = AtomicUsize::new(self.used as usize);
        let run = |unit: usize| -> Result<Option<Figures>, Stop> {
            let (n, case) = units[unit];
            let (judged, seed) = &work[n];
            if self.stop.load(Ordering::SeqCst) {
                return Err(Stop::Interrupted);
            }
            let result = self.engine.run(&judged.plan.cases[case], *seed, self.stop, &|_| {});
            (self.progress)(done.fetch_add(1, Ordering::Relaxed));
            match result {
                Ok(output) => Ok(Some(output.metrics.figures().into_iter().collect())),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => Err(Stop::Interrupted),
                    ErrorKind::BadInput => Ok(None),
                    _ => Err(Stop::Failed(error)),
                },
            }
        };
        let results = self.parallel(units.len(), run);
        self.used += units.len() as u32;
        let mut results = results.into_iter();
        let of = |(judged, _): &(&Judged, u64)| -> Result<Option<Vec<Figures>>, Stop> {
            let cases: Vec<Option<Figures>> =
                results.by_ref().take(judged.plan.cases.len()).collect::<Result<_, Stop>>()?;
            Ok(cases.into_iter().collect())
        };
        work.iter().map(of).collect()
    }

    /// Runs the scenario as it is, which the engine must take; only changes to it may be refused without an error.
    pub(crate) fn try_unchanged(&mut self, subject: &Subject) -> Result<(), SearchError> {
        let plan = subject.unchanged()?;
        for case in &plan.cases {
            let ended = self.engine.run(case, plan.seed, self.stop, &|_| {});
            (self.progress)(self.used as usize);
            self.used += 1;
            match ended {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// `make(0)`, `make(1)`, ... on this runner's threads.
    fn parallel<T: Send>(&self, count: usize, make: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let next = AtomicUsize::new(0);
        let made = Mutex::new(Vec::with_capacity(count));
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return;
                }
                let one = make(index);
                made.lock().unwrap_or_else(PoisonError::into_inner).push((index, one));
            }
        };
        std::thread::scope(|scope| {
            (0..self.jobs.clamp(1, count.max(1))).for_each(|_| drop(scope.spawn(work)))
        });
        let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        made.sort_by_key(|(index, _)| *index);
        made.into_iter().map(|(_, one)| one).collect()
    }
}

/// A candidate with its cases, and the claims by which it is judged.
pub(crate) struct Judged {
    pub(crate) plan: Plan,
    properties: Vec<Property>,
}

impl Judged {
    /// `None` if the candidate is no valid scenario.
    pub(crate) fn new(subject: &Subject, candidate: &Candidate, properties: &[Property]) -> Option<Self> {
        let (properties, claims): (Vec<Property>, Vec<ClaimSpec>) =
            subject.claims(candidate, properties).into_iter().unzip();
        let plan = subject.plan(candidate, &claims, 1).ok()?;
        Some(Self { plan, properties })
    }

    /// Scores of all claims over runs, each of which has figures for every case. Claims that these do not decide are left out.
    pub(crate) fn scores(&self, runs: &[Vec<Figures>]) -> Vec<Scored> {
        let figures = |index: usize| runs.iter().filter_map(|run| run.get(index).cloned()).collect();
        let cases: Vec<CaseFigures> = self
            .plan
            .cases
            .iter()
            .enumerate()
            .map(|(index, case)| CaseFigures { set: case.set.clone(), runs: figures(index) })
            .collect();
        let scored = |(claim, property): (&Claim, &Property)| {
            let score = score(claim, &cases)?;
            Some(Scored { property: *property, claim: claim.spec.clone(), score })
        };
        self.plan.claims.iter().zip(&self.properties).filter_map(scored).collect()
    }
}

/// Value over bound where the bound is an upper one, bound over value otherwise.
fn score(claim: &Claim, cases: &[CaseFigures]) -> Option<f64> {
    let verdict = claim.evaluate(cases).ok()?;
    let (value, bound) = (verdict.value?, verdict.bound?);
    let (above, below) =
        if bound.relation.starts_with('<') { (value, bound.value) } else { (bound.value, value) };
    if above <= 0.0 {
        return Some(0.0);
    }
    Some((above / below.max(f64::MIN_POSITIVE)).min(MAX_SCORE))
}
