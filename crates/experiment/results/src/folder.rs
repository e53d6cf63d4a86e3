//! A result folder: complete or not there.
//!
//! While a run is going on, everything is kept in a sibling, `<folder>.partial`:
//!
//! ```text
//! <folder>.partial/plan.json            what is being run; locked while somebody runs it
//! <folder>.partial/parts/0003-0001.*    case 3, run 1: JSON, flows, series; the JSON is written last
//! <folder>.partial/result/              the finished folder, renamed to <folder> as the last step
//! ```
//!
//! An interrupted run leaves the sibling with its finished parts, and the same command can resume it. Several processes may add
//! parts to one sibling ([`Access::Shared`]).

use crate::parquet_files::{self, RunKey, SetColumns, TableError};
use crate::{Metrics, RunOutput, Settings, Summary, Work};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use vmcc_config::ReadError;

/// Name of the summary inside a result folder.
pub const SUMMARY_FILE: &str = "summary.json";
/// Name of the flow records inside a result folder.
pub const FLOWS_FILE: &str = "flows.parquet";
/// Name of the time series inside a result folder.
pub const SERIES_FILE: &str = "series.parquet";

const PLAN_FILE: &str = "plan.json";
const PARTS_DIR: &str = "parts";
const RESULT_DIR: &str = "result";
/// The largest JSON file that is read. A hundred thousand runs need less.
const MAX_JSON_BYTES: u64 = 256 << 20;

/// Error of making or reading a result folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The folder holds something already.
    #[error("{}: the result folder exists and is not empty", .0.display())]
    Exists(PathBuf),
    /// The name belongs to something that is no folder.
    #[error("{}: not a folder", .0.display())]
    NotAFolder(PathBuf),
    /// There is no summary where one was to be read.
    #[error("{}: not a result folder (it has no {SUMMARY_FILE})", .0.display())]
    NotAResult(PathBuf),
    /// An earlier run was interrupted and its finished parts are still there.
    #[error("{}: holds the finished runs of an interrupted run", .0.display())]
    Unfinished(PathBuf),
    /// Asked to resume, but there is nothing to resume.
    #[error("{}: nothing to resume, there is no such folder", .0.display())]
    NothingToResume(PathBuf),
    /// The interrupted run was of something else.
    #[error("{}: belongs to another run ({differs} differs)", path.display())]
    OtherPlan {
        /// The partial folder.
        path: PathBuf,
        /// Which part of the plan differs.
        differs: String,
    },
    /// Another process is running it.
    #[error("{}: in use by another vmcc", .0.display())]
    InUse(PathBuf),
    /// The disk is full.
    #[error("{}: no space left on the device", .0.display())]
    DiskFull(PathBuf),
    /// Any other failure to read or write.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file of the folder is not what this version of vmcc writes.
    #[error("{}: not a file of this version of vmcc ({reason})", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
}

impl FolderError {
    fn io(path: &Path, source: io::Error) -> Self {
        let full = matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        if full { Self::DiskFull(path.to_owned()) } else { Self::Io { path: path.to_owned(), source } }
    }

    fn read(path: &Path, error: ReadError) -> Self {
        match error {
            ReadError::Io(source) => Self::io(path, source),
            other => Self::Format { path: path.to_owned(), reason: other.to_string() },
        }
    }

    fn json(path: &Path, error: &serde_json::Error) -> Self {
        Self::Format { path: path.to_owned(), reason: error.to_string() }
    }
}

impl From<TableError> for FolderError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Io { path, source } => Self::io(&path, source),
            TableError::Format { path, reason } => Self::Format { path, reason },
        }
    }
}

/// Runs to be made. Resuming requires an equal plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of vmcc: another version may give other results.
    pub vmcc: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Engine that runs it.
    pub engine: String,
    /// The scenario after overrides, in any form that changes when the experiment changes.
    pub definition: Value,
    /// Users' own algorithms, by name, each with what tells its code from another's.
    #[serde(default)]
    pub algorithms: BTreeMap<String, String>,
    /// Settings of each case.
    pub cases: Vec<Settings>,
    /// Seeds of the runs of every case.
    pub seeds: Vec<u64>,
}

impl Plan {
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let checks = [
            ("version of vmcc", self.vmcc == other.vmcc),
            ("scenario", self.scenario == other.scenario),
            ("engine", self.engine == other.engine),
            // Before the definition, which has them too.
            ("seed or number of runs", self.seeds == other.seeds),
            ("list of cases", self.cases == other.cases),
            ("definition of the scenario", self.definition == other.definition),
            ("code of the algorithms", self.algorithms == other.algorithms),
        ];
        checks.iter().find(|(_, same)| !same).map(|(name, _)| *name)
    }
}

/// Use of a partial folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A new one, for this process alone.
    New,
    /// That of an interrupted run, for this process alone.
    Resumed,
    /// A new one or that of other processes, which add parts at the same time.
    Shared,
}

/// The figures of a finished run; its flows and series lie beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredRun {
    /// Seed of the run.
    pub seed: u64,
    /// Measured figures.
    pub metrics: Metrics,
    /// Its cost.
    pub work: Work,
    /// Warnings that readers must know.
    pub warnings: Vec<String>,
}

/// Index of a case and of a run within it.
pub type RunIndex = (u32, u32);

/// A result folder that is being made.
#[derive(Debug)]
pub struct PartialFolder {
    target: PathBuf,
    partial: PathBuf,
    plan: Plan,
    columns: SetColumns,
    finished: BTreeMap<RunIndex, StoredRun>,
    access: Access,
    /// Held for its lock.
    _lock: File,
}

impl PartialFolder {
    /// Prepares to make `target`, or takes up a run of the same plan.
    ///
    /// # Errors
    /// When `target` exists and is not empty, an interrupted run is in the way (or, resuming, is missing or of
    /// another plan), another process is at it, or the file system refuses.
    pub fn open(target: &Path, plan: Plan, access: Access) -> Result<Self, FolderError> {
        check_target(target)?;
        let partial = sibling(target)?;
        let exists = fs::exists(&partial).map_err(|e| FolderError::io(&partial, e))?;
        let (lock, is_new) = match (exists, access) {
            (true, Access::New) => return Err(in_the_way(partial)),
            (false, Access::Resumed) => return Err(FolderError::NothingToResume(partial)),
            (true, _) => (lock(&partial, access)?, false),
            (false, _) => create_partial(&partial, &plan, access)?,
        };
        if is_new {
            // A run of the same name may have come to its end after the first look.
            check_target(target).inspect_err(|_| drop(fs::remove_dir_all(&partial)))?;
        } else {
            check_plan(&partial, &plan)?;
        }
        let columns = SetColumns::of(&plan.cases);
        let finished = read_parts(&partial, &plan)?;
        Ok(Self { target: target.to_owned(), partial, plan, columns, finished, access, _lock: lock })
    }

    /// Runs that others finished before: an interrupted predecessor, or processes that share the folder.
    pub fn finished(&self) -> &BTreeMap<RunIndex, StoredRun> {
        &self.finished
    }

    /// Folder of finished runs until the whole is done.
    pub fn partial_path(&self) -> &Path {
        &self.partial
    }

    /// Keeps a finished run. May be called from several threads and, where the folder is shared, processes.
    ///
    /// # Errors
    /// It cannot be written; then the run does not count as finished.
    pub fn store(&self, index: RunIndex, seed: u64, output: &RunOutput) -> Result<StoredRun, FolderError> {
        let stored = StoredRun {
            seed,
            metrics: output.metrics.clone(),
            work: output.work,
            warnings: output.warnings.clone(),
        };
        self.write_part(index, &stored, output)?;
        Ok(stored)
    }

    fn write_part(&self, index: RunIndex, stored: &StoredRun, output: &RunOutput) -> Result<(), FolderError> {
        let no_settings = Settings::new();
        let set = self.plan.cases.get(index.0 as usize).unwrap_or(&no_settings);
        let key = RunKey { case: index.0, run: index.1, seed: stored.seed, set };
        let staged =
            temporary(0o777).tempdir_in(&self.partial).map_err(|e| FolderError::io(&self.partial, e))?;
        let (flows, series) = (staged.path().join(FLOWS_FILE), staged.path().join(SERIES_FILE));
        parquet_files::write_flows(&flows, &self.columns, key, output)?;
        parquet_files::write_series(&series, &self.columns, key, &output.series)?;
        for (made, extension) in [(flows, "flows.parquet"), (series, "series.parquet")] {
            let part = self.part(index, extension);
            fs::rename(&made, &part).map_err(|e| FolderError::io(&part, e))?;
        }
        write_json(&self.part(index, "json"), stored)
    }

    fn part(&self, (case, run): RunIndex, extension: &str) -> PathBuf {
        self.partial.join(PARTS_DIR).join(format!("{case:04}-{run:04}.{extension}"))
    }

    /// Assembles the result from the parts; `files` are further files (name, content). Returns the folder in
    /// which a report can still be put before [`AssembledFolder::publish`].
    ///
    /// # Errors
    /// When a part is missing or something cannot be written.
    pub fn assemble(
        self,
        summary: &Summary,
        files: &[(&str, &[u8])],
    ) -> Result<AssembledFolder, FolderError> {
        let result = self.partial.join(RESULT_DIR);
        remove_dir(&result)?;
        fs::create_dir(&result).map_err(|e| FolderError::io(&result, e))?;
        let assembled = AssembledFolder { partial: self, result };
        assembled.partial.fill(&assembled.result, summary, files).inspect_err(|_| {
            // The parts stay, so that the run can be resumed; the half-made result goes.
            let _ = fs::remove_dir_all(&assembled.result);
        })?;
        Ok(assembled)
    }

    fn fill(&self, result: &Path, summary: &Summary, files: &[(&str, &[u8])]) -> Result<(), FolderError> {
        for (extension, name) in [("flows.parquet", FLOWS_FILE), ("series.parquet", SERIES_FILE)] {
            let parts: Vec<PathBuf> = self.indices().map(|index| self.part(index, extension)).collect();
            parquet_files::concatenate(&result.join(name), &parts)?;
        }
        for (name, content) in files {
            let path = result.join(name);
            write_new(&path, content).map_err(|e| FolderError::io(&path, e))?;
        }
        write_json(&result.join(SUMMARY_FILE), summary)
    }

    fn indices(&self) -> impl Iterator<Item = RunIndex> {
        let (cases, runs) = (self.plan.cases.len() as u32, self.plan.seeds.len() as u32);
        (0..cases).flat_map(move |case| (0..runs).map(move |run| (case, run)))
    }

    /// Number of runs that are finished now, by all processes.
    pub fn count_finished(&self) -> usize {
        self.indices().filter(|index| self.part(*index, "json").exists()).count()
    }

    /// Ends an interrupted run. Keeps the finished runs and returns where, or removes everything when there is
    /// none and no other process shares it.
    ///
    /// # Errors
    /// The folder cannot be removed.
    pub fn abandon(self) -> Result<Option<PathBuf>, FolderError> {
        if self.access != Access::Shared && self.count_finished() == 0 {
            remove_dir(&self.partial)?;
            return Ok(None);
        }
        Ok(Some(self.partial))
    }
}

/// A complete result that has not got its name yet.
#[derive(Debug)]
pub struct AssembledFolder {
    partial: PartialFolder,
    result: PathBuf,
}

impl AssembledFolder {
    /// Present folder of the files.
    pub fn path(&self) -> &Path {
        &self.result
    }

    /// Gives the result its name and removes the parts.
    ///
    /// # Errors
    /// When somebody made the target meanwhile, or the file system refuses.
    pub fn publish(self) -> Result<PathBuf, FolderError> {
        let target = self.partial.target.clone();
        check_target(&target)?;
        fs::rename(&self.result, &target).map_err(|e| FolderError::io(&target, e))?;
        remove_dir(&self.partial.partial)?;
        Ok(target)
    }

    /// Gives up: removes the assembled result, keeps the parts.
    pub fn discard(self) -> PathBuf {
        // Called on the way out with an error that matters more.
        let _ = fs::remove_dir_all(&self.result);
        self.partial.partial
    }
}

/// Reads the summary of a result folder.
///
/// # Errors
/// When there is none, or it is not one of this version.
pub fn read_summary(folder: &Path) -> Result<Summary, FolderError> {
    let path = folder.join(SUMMARY_FILE);
    let text = vmcc_config::read_regular(&path, MAX_JSON_BYTES).map_err(|e| match e {
        ReadError::Io(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            FolderError::NotAResult(folder.to_owned())
        }
        other => FolderError::read(&path, other),
    })?;
    let summary: Summary = serde_json::from_slice(&text).map_err(|e| FolderError::json(&path, &e))?;
    if summary.schema != crate::SCHEMA_VERSION {
        let reason = format!("schema {} instead of {}", summary.schema, crate::SCHEMA_VERSION);
        return Err(FolderError::Format { path, reason });
    }
    Ok(summary)
}

/// Writes `content` to `path` so that a reader sees the old content or the new, never half of it.
///
/// # Errors
/// When the file system refuses; then the old content stays.
pub fn replace_file(path: &Path, content: &[u8]) -> Result<(), FolderError> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> io::Result<()> {
        let mut file = temporary(0o666).tempfile_in(folder)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|e| e.error)?;
        Ok(())
    };
    write().map_err(|e| FolderError::io(path, e))
}

/// Builder of temporary files: private to their owner by default; results are as readable as the umask permits, from `mode` on.
fn temporary(mode: u32) -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".vmcc-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    #[cfg(not(unix))]
    let _ = mode;
    builder
}

fn check_target(target: &Path) -> Result<(), FolderError> {
    match fs::read_dir(target).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(FolderError::Exists(target.to_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Err(FolderError::NotAFolder(target.to_owned())),
        Err(e) => Err(FolderError::io(target, e)),
    }
}

/// A partial folder that is there already: somebody is at it, or was interrupted.
fn in_the_way(partial: PathBuf) -> FolderError {
    match lock(&partial, Access::Resumed) {
        Err(in_use @ FolderError::InUse(_)) => in_use,
        _ => FolderError::Unfinished(partial),
    }
}

fn sibling(target: &Path) -> Result<PathBuf, FolderError> {
    let Some(name) = target.file_name() else {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "a result folder needs a name of its own");
        return Err(FolderError::io(target, source));
    };
    let mut name = OsString::from(name);
    name.push(".partial");
    Ok(target.with_file_name(name))
}

/// Makes the partial folder and returns its lock. It gets its name when it is whole and locked: of two that start at
/// the same time one finds it there, in use, or shares it; then the result is false.
fn create_partial(partial: &Path, plan: &Plan, access: Access) -> Result<(File, bool), FolderError> {
    let parent = partial.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|e| FolderError::io(parent, e))?;
    let made = temporary(0o777).tempdir_in(parent).map_err(|e| FolderError::io(partial, e))?;
    let parts = made.path().join(PARTS_DIR);
    fs::create_dir(&parts).map_err(|e| FolderError::io(&parts, e))?;
    write_json(&made.path().join(PLAN_FILE), plan)?;
    let own = lock(made.path(), access)?;
    match fs::rename(made.path(), partial) {
        Ok(()) => {
            let _its_old_name = made.keep();
            Ok((own, true))
        }
        Err(_) if partial.exists() && access == Access::Shared => Ok((lock(partial, access)?, false)),
        Err(_) if partial.exists() => Err(in_the_way(partial.to_owned())),
        Err(e) => Err(FolderError::io(partial, e)),
    }
}

fn lock(partial: &Path, access: Access) -> Result<File, FolderError> {
    let path = partial.join(PLAN_FILE);
    let file = vmcc_config::open_regular(&path).map_err(|e| FolderError::read(&path, e))?;
    match if access == Access::Shared { file.try_lock_shared() } else { file.try_lock() } {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(FolderError::InUse(partial.to_owned())),
        Err(fs::TryLockError::Error(e)) => Err(FolderError::io(&path, e)),
    }
}

fn check_plan(partial: &Path, plan: &Plan) -> Result<(), FolderError> {
    let path = partial.join(PLAN_FILE);
    let text = vmcc_config::read_regular(&path, MAX_JSON_BYTES).map_err(|e| FolderError::read(&path, e))?;
    let found: Plan = serde_json::from_slice(&text).map_err(|e| FolderError::json(&path, &e))?;
    match plan.difference(&found) {
        None => Ok(()),
        Some(differs) => {
            Err(FolderError::OtherPlan { path: partial.to_owned(), differs: differs.to_owned() })
        }
    }
}

fn read_parts(partial: &Path, plan: &Plan) -> Result<BTreeMap<RunIndex, StoredRun>, FolderError> {
    let mut parts = BTreeMap::new();
    for (case, _) in plan.cases.iter().enumerate() {
        for (run, seed) in plan.seeds.iter().enumerate() {
            let index = (case as u32, run as u32);
            let path = partial.join(PARTS_DIR).join(format!("{case:04}-{run:04}.json"));
            let text = match vmcc_config::read_regular(&path, MAX_JSON_BYTES) {
                Ok(text) => text,
                Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(FolderError::read(&path, e)),
            };
            let stored: StoredRun =
                serde_json::from_slice(&text).map_err(|e| FolderError::json(&path, &e))?;
            if stored.seed != *seed {
                let reason = format!("seed {} instead of {seed}", stored.seed);
                return Err(FolderError::Format { path, reason });
            }
            parts.insert(index, stored);
        }
    }
    Ok(parts)
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), FolderError> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|e| FolderError::json(path, &e))?;
    text.push(b'\n');
    replace_file(path, &text)
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn remove_dir(path: &Path) -> Result<(), FolderError> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FolderError::io(path, e)),
        _ => Ok(()),
    }
}
