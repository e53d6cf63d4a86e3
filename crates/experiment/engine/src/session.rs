//! One plan on one engine, from the first run to the result folder.

use crate::environment;
use crate::executor::{Execution, Executor, Shard, Stopped};
use crate::{Engine, summary};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vmcc_results::Summary;
use vmcc_results::folder::{AssembledFolder, FolderError, PartialFolder, RunIndex, StoredRun};
use vmcc_scenario::Plan;

/// Name of the copy of the scenario inside a result folder.
pub const SCENARIO_FILE: &str = "scenario.toml";

/// Runs of this many `threads` at the same time: as many as are `wanted`, else what the processors are enough for, but never
/// more than `engine` bears.
pub fn jobs(engine: &dyn Engine, wanted: Option<usize>, threads: usize) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let wanted = wanted.unwrap_or_else(|| (processors() / threads.max(1)).max(1));
    engine.most_jobs().map_or(wanted, |most| wanted.min(most))
}

/// One plan on one engine. Dropped before its end it keeps what is finished in its folder, to be resumed.
pub struct Session<'a> {
    plan: &'a Plan,
    engine: &'a dyn Engine,
    folder: Option<PartialFolder>,
    shard: Shard,
    finished: BTreeMap<RunIndex, StoredRun>,
    /// CPU time of this process before the session, and what an interrupted predecessor took.
    cpu_before_s: Option<f64>,
    cpu_resumed_s: f64,
}

impl<'a> Session<'a> {
    /// A session that keeps each finished run in `folder`, and goes on with what is finished there
    /// (see [`crate::open`]); without a folder only the summary is left of it.
    pub fn new(plan: &'a Plan, engine: &'a dyn Engine, folder: Option<PartialFolder>) -> Self {
        let finished = folder.as_ref().map(|f| f.finished().clone()).unwrap_or_default();
        let cpu_resumed_s = finished.values().filter_map(|run| run.work.cpu_s).sum();
        let cpu_before_s = environment::process_cpu_s();
        Self { plan, engine, folder, shard: Shard::WHOLE, finished, cpu_before_s, cpu_resumed_s }
    }

    /// The session with a part of its runs; other sessions share the folder ([`vmcc_results::folder::Access::Shared`]).
    pub fn with_shard(self, shard: Shard) -> Self {
        Self { shard, ..self }
    }

    /// Number of runs of the shard, which is the whole plan by default.
    pub fn runs(&self) -> usize {
        self.shard.indices(self.plan).len()
    }

    /// Number of these that are finished, by this session or by one that it resumes.
    pub fn finished(&self) -> usize {
        self.shard.indices(self.plan).iter().filter(|index| self.finished.contains_key(index)).count()
    }

    /// Folder of finished runs, until the result has its name.
    pub fn partial_path(&self) -> Option<&Path> {
        self.folder.as_ref().map(PartialFolder::partial_path)
    }

    /// Number of finished runs of the whole plan, also by processes that share the folder, and of all its runs.
    pub fn count_all(&self) -> (usize, usize) {
        let finished = self.folder.as_ref().map_or(self.finished.len(), PartialFolder::count_finished);
        (finished, Shard::WHOLE.indices(self.plan).len())
    }

    /// Runs what is not finished yet of the shard.
    ///
    /// # Errors
    /// The first thing that kept a run from being done and kept; those finished before stay so.
    pub fn execute(&mut self, how: &Execution<'_>) -> Result<(), Stopped> {
        let executor = Executor {
            plan: self.plan,
            engine: self.engine,
            folder: self.folder.as_ref(),
            shard: self.shard,
            how,
        };
        executor.run(&mut self.finished)
    }

    /// Finished runs as cases, with claims checked; `command` repeats the session.
    pub fn summary(&self, command: String) -> Summary {
        let now_s = environment::process_cpu_s();
        let cpu_s = now_s.zip(self.cpu_before_s).map(|(now, before)| now - before + self.cpu_resumed_s);
        summary::of(self.plan, self.engine, &self.finished, cpu_s, command)
    }

    /// The result folder but for its name, with `inputs`, such as the scenario's text, in it: a report can be put there before it is
    /// published. `None` when nothing is kept.
    ///
    /// # Errors
    /// The folder cannot be written, or a run is missing.
    pub fn assemble(
        self,
        summary: &Summary,
        inputs: &[(String, &[u8])],
    ) -> Result<Option<AssembledFolder>, FolderError> {
        let files: Vec<(&str, &[u8])> = inputs.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        self.folder.map(|folder| folder.assemble(summary, &files)).transpose()
    }

    /// Ends a session that did not come to its end. Returns where its finished runs are kept, if there are any.
    ///
    /// # Errors
    /// The folder cannot be removed.
    pub fn abandon(self) -> Result<Option<PathBuf>, FolderError> {
        self.folder.map_or(Ok(None), PartialFolder::abandon)
    }
}
