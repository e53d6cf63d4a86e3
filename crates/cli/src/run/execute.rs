//! Runs every case with every seed, several at a time, in an order that does not reach the results.

use crate::failure::Failure;
use crate::interrupt;
use crate::run::engine::{Engine, RunError};
use crate::run::progress::Progress;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use vmcc_results::folder::{FolderError, PartialFolder, RunIndex, StoredRun};
use vmcc_scenario::Plan;

/// Why not every run was done.
pub(crate) enum Stopped {
    /// A signal came; finished runs have been kept.
    Interrupted,
    /// A run failed.
    Failed(Failure),
    /// A finished run could not be kept.
    Storage(FolderError),
}

/// What is to be run, and how.
pub(crate) struct Execution<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) engine: &'a dyn Engine,
    pub(crate) jobs: usize,
    pub(crate) folder: Option<&'a PartialFolder>,
    pub(crate) progress: &'a Progress<'a>,
    pub(crate) stop: &'a AtomicBool,
}

impl Execution<'_> {
    /// Runs what `finished` does not have yet and adds it there.
    pub(crate) fn run(&self, finished: &mut BTreeMap<RunIndex, StoredRun>) -> Result<(), Stopped> {
        let all = indices(self.plan);
        let open: Vec<(usize, RunIndex)> =
            all.into_iter().enumerate().filter(|(_, index)| !finished.contains_key(index)).collect();
        for position in 0..self.plan.cases.len() * self.plan.runs as usize {
            if !open.iter().any(|(p, _)| *p == position) {
                self.progress.update(position, 1.0);
            }
        }
        let next = AtomicUsize::new(0);
        let results = Mutex::new((std::mem::take(finished), None));
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.clamp(1, open.len().max(1)) {
                scope.spawn(|| self.work(&open, &next, &results));
            }
        });
        let (runs, stopped) = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        *finished = runs;
        stopped.map_or(Ok(()), Err)
    }

    fn work(
        &self,
        open: &[(usize, RunIndex)],
        next: &AtomicUsize,
        results: &Mutex<(BTreeMap<RunIndex, StoredRun>, Option<Stopped>)>,
    ) {
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
                    self.stop.store(true, Ordering::SeqCst);
                    return;
                }
            }
        }
    }

    fn one(&self, position: usize, index: RunIndex) -> Result<StoredRun, Stopped> {
        if interrupt::stopped() {
            return Err(Stopped::Interrupted);
        }
        let case = &self.plan.cases[index.0 as usize];
        let seed = seed_of(self.plan, index.1);
        let report = |fraction: f64| self.progress.update(position, fraction.min(0.999));
        let output = self.engine.run(case, seed, self.stop, &report).map_err(|error| match error {
            RunError::Interrupted => Stopped::Interrupted,
            RunError::Failed(failure) => Stopped::Failed(failure),
        })?;
        let stored = match self.folder {
            Some(folder) => folder.store(index, seed, &output).map_err(Stopped::Storage)?,
            None => StoredRun { seed, metrics: output.metrics, work: output.work, warnings: output.warnings },
        };
        self.progress.update(position, 1.0);
        Ok(stored)
    }
}

/// Every run of the plan, case by case.
pub(crate) fn indices(plan: &Plan) -> Vec<RunIndex> {
    let cases = 0..plan.cases.len() as u32;
    cases.flat_map(|case| (0..plan.runs).map(move |run| (case, run))).collect()
}

/// The seed of run `run` of every case.
pub(crate) fn seed_of(plan: &Plan, run: u32) -> u64 {
    plan.seed.wrapping_add(u64::from(run))
}
