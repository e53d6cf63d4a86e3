//! Runs every case with every seed, several at a time, in an order that does not reach the results.

use crate::{Engine, EngineError, ErrorKind};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use vmcc_results::folder::{FolderError, PartialFolder, RunIndex, StoredRun};
use vmcc_scenario::Plan;

/// Reason for which not every run was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stopped {
    /// The stop flag was set; finished runs have been kept.
    #[error("interrupted")]
    Interrupted,
    /// A run failed.
    #[error(transparent)]
    Failed(#[from] EngineError),
    /// A finished run could not be kept.
    #[error(transparent)]
    Storage(#[from] FolderError),
}

/// A part of a session's runs: every `count`-th, so that each shard has runs of all cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0, below `count`.
    index: usize,
    count: usize,
}

impl Shard {
    /// All runs.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Shard `number` of `count`, from 1 on; `None` if there is no such shard.
    pub fn new(number: usize, count: usize) -> Option<Self> {
        (1..=count).contains(&number).then(|| Self { index: number - 1, count })
    }

    /// The shard's runs of the plan, case by case.
    pub(crate) fn indices(self, plan: &Plan) -> Vec<RunIndex> {
        let cases = 0..plan.cases.len() as u32;
        let all = cases.flat_map(|case| (0..plan.runs).map(move |run| (case, run)));
        all.skip(self.index).step_by(self.count).collect()
    }
}

/// `2/8`, as [`Shard::new`] takes it.
impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

/// Settings of the execution of a session's runs.
#[derive(Clone, Copy)]
pub struct Execution<'a> {
    /// Runs at the same time, at least 1; see [`crate::jobs`].
    pub jobs: usize,
    /// Set by the caller to stop, and by the session when a run failed: the others then stop as well.
    pub stop: &'a AtomicBool,
    /// Called with the number of a run of the shard, case by case from 0, and the fraction of it that is done.
    pub progress: &'a (dyn Fn(usize, f64) + Sync),
}

/// Runs to be made, and the store of finished ones.
pub(crate) struct Executor<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) engine: &'a dyn Engine,
    pub(crate) folder: Option<&'a PartialFolder>,
    pub(crate) shard: Shard,
    pub(crate) how: &'a Execution<'a>,
}

/// Finished runs, and the reason why no more is begun.
type Results = Mutex<(BTreeMap<RunIndex, StoredRun>, Option<Stopped>)>;

impl Executor<'_> {
    /// Runs what `finished` does not have yet and adds it there.
    pub(crate) fn run(&self, finished: &mut BTreeMap<RunIndex, StoredRun>) -> Result<(), Stopped> {
        let own = self.shard.indices(self.plan).into_iter().enumerate();
        let (done, open): (Vec<_>, Vec<_>) = own.partition(|(_, index)| finished.contains_key(index));
        done.iter().for_each(|(position, _)| (self.how.progress)(*position, 1.0));
        let next = AtomicUsize::new(0);
        let results = Mutex::new((std::mem::take(finished), None));
        std::thread::scope(|scope| {
            for _ in 0..self.how.jobs.clamp(1, open.len().max(1)) {
                scope.spawn(|| self.work(&open, &next, &results));
            }
        });
        let (runs, stopped) = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        *finished = runs;
        stopped.map_or(Ok(()), Err)
    }

    fn work(&self, open: &[(usize, RunIndex)], next: &AtomicUsize, results: &Results) {
        while let Some((position, index)) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = self.one(*position, *index);
            let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match outcome {
                Ok(stored) => {
                    results.0.insert(*index, stored);
                }
                Err(stopped) => {
                    // The first reason counts: the others stop because of it.
                    results.1.get_or_insert(stopped);
                    self.how.stop.store(true, Ordering::SeqCst);
                    return;
                }
            }
        }
    }

    fn one(&self, position: usize, index: RunIndex) -> Result<StoredRun, Stopped> {
        if self.how.stop.load(Ordering::SeqCst) {
            return Err(Stopped::Interrupted);
        }
        let case = &self.plan.cases[index.0 as usize];
        let seed = seed_of(self.plan, index.1);
        let report = |fraction: f64| (self.how.progress)(position, fraction.min(0.999));
        let output =
            self.engine.run(case, seed, self.how.stop, &report).map_err(|error| match error.kind() {
                ErrorKind::Interrupted => Stopped::Interrupted,
                _ => Stopped::Failed(error),
            })?;
        let stored = match self.folder {
            Some(folder) => folder.store(index, seed, &output)?,
            None => StoredRun { seed, metrics: output.metrics, work: output.work, warnings: output.warnings },
        };
        (self.how.progress)(position, 1.0);
        Ok(stored)
    }
}

/// The seed of run `run` of every case.
pub(crate) fn seed_of(plan: &Plan, run: u32) -> u64 {
    plan.seed.wrapping_add(u64::from(run))
}
