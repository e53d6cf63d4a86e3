//! On-disk record of the objects of each live run, so that the leftovers of a killed run can be found and removed.
//!
//! One JSON file per run in `/run/vmcc`, a folder that only root can change. It is rewritten (atomically) before an object
//! is created, and names its owner by process id, start time and boot: a recycled process id is not mistaken for the owner.

use crate::Error;
use crate::{netns, throttle};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vmcc_system::Folder;

/// Directory of the records, and its parent.
const PARENT: &str = "/run";
const DIRECTORY: &str = "vmcc";
const EXTENSION: &str = ".json";
/// Records are small; a larger file is not ours.
const MAX_RECORD_BYTES: u64 = 1 << 20;
const MAX_RUN_ID_LEN: usize = 24;

/// A process, told apart from a later one with the same number by when it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pid: i32,
    /// Clock ticks since boot (field 22 of /proc/PID/stat).
    start_ticks: u64,
    boot_id: String,
}

impl ProcessId {
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self { pid, start_ticks: start_ticks(pid)?, boot_id })
    }

    pub(crate) fn is_alive(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now == *self)
    }

    fn kill(&self) {
        if self.is_alive() {
            // It may have ended since; then there is nothing to kill.
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
        }
    }
}

fn start_ticks(pid: i32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the program's name in parentheses and may contain anything: count from the last one.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().nth(19).and_then(|field| field.parse().ok());
    ticks.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat is malformed")))
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Content {
    run_id: String,
    owner: ProcessId,
    namespaces: Vec<String>,
    processes: Vec<ProcessId>,
    #[serde(default)]
    cgroups: Vec<PathBuf>,
}

/// The record of one run. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Record {
    folder: Folder,
    content: Content,
}

impl Record {
    /// Claims `run_id` for this process, or a free one.
    pub(crate) fn claim(run_id: Option<&str>) -> Result<Self, Error> {
        let pid = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        let owner = ProcessId::of(pid).map_err(|e| Error::file("/proc/self/stat", e))?;
        if let Some(run_id) = run_id {
            check_run_id(run_id)?;
            return Self::create(run_id, &owner);
        }
        // A process may have several runs at once; the counter tells them apart.
        let mut counter = 0_u32;
        loop {
            match Self::create(&format!("{pid}-{counter}"), &owner) {
                Err(Error::RunTaken { .. }) if counter < 10_000 => counter += 1,
                other => return other,
            }
        }
    }

    fn create(run_id: &str, owner: &ProcessId) -> Result<Self, Error> {
        Self::create_in(Folder::make(PARENT, DIRECTORY).map_err(unusable)?, run_id, owner)
    }

    fn create_in(folder: Folder, run_id: &str, owner: &ProcessId) -> Result<Self, Error> {
        let name = file_name(run_id);
        match folder.make_new(&name) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let pid = read(&folder, &name).map_or(0, |other| other.owner.pid);
                return Err(Error::RunTaken { run_id: run_id.to_owned(), pid });
            }
            Err(e) => return Err(Error::file(folder.path(&name), e)),
        }
        let content = Content {
            run_id: run_id.to_owned(),
            owner: owner.clone(),
            namespaces: Vec::new(),
            processes: Vec::new(),
            cgroups: Vec::new(),
        };
        let record = Self { folder, content };
        record.write()?;
        Ok(record)
    }

    pub(crate) fn run_id(&self) -> &str {
        &self.content.run_id
    }

    pub(crate) fn add_namespace(&mut self, name: &str) -> Result<(), Error> {
        self.content.namespaces.push(name.to_owned());
        self.write()
    }

    pub(crate) fn forget_namespace(&mut self, name: &str) -> Result<(), Error> {
        self.content.namespaces.retain(|other| other != name);
        self.write()
    }

    pub(crate) fn add_process(&mut self, pid: i32) -> Result<(), Error> {
        // A process that is gone already needs no record.
        if let Ok(process) = ProcessId::of(pid) {
            self.content.processes.push(process);
        }
        self.write()
    }

    pub(crate) fn add_cgroup(&mut self, path: &Path) -> Result<(), Error> {
        self.content.cgroups.push(path.to_owned());
        self.write()
    }

    fn write(&self) -> Result<(), Error> {
        let (name, temporary) = self.names();
        let write = || -> io::Result<()> {
            let bytes = serde_json::to_vec(&self.content)?;
            self.folder.remove(&temporary)?;
            self.folder.make_new(&temporary)?.write_all(&bytes)?;
            self.folder.rename(&temporary, &name)
        };
        write().map_err(|e| Error::file(self.folder.path(&name), e))
    }

    /// Names of the record, and of its next content until it is whole.
    fn names(&self) -> (String, String) {
        (file_name(&self.content.run_id), format!("{}.tmp", self.content.run_id))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let (name, temporary) = self.names();
        // A record that stays is harmless: its owner is dead soon, and `vmcc clean` removes it.
        let _ = self.folder.remove(&name);
        let _ = self.folder.remove(&temporary);
    }
}

fn file_name(run_id: &str) -> String {
    format!("{run_id}{EXTENSION}")
}

fn unusable((path, source): (PathBuf, io::Error)) -> Error {
    match source.raw_os_error() {
        Some(_) => Error::file(path, source),
        // Not the system's: the folder's own text, which has the remedy.
        None => Error::Kernel { action: "records in", object: path.display().to_string(), source },
    }
}

/// Objects that [`clean`] removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cleaned {
    /// Runs whose owner was dead.
    pub runs: Vec<String>,
    /// Namespaces removed, with all their links and queues.
    pub namespaces: Vec<String>,
    /// Cgroups removed.
    pub cgroups: Vec<PathBuf>,
    /// Processes killed.
    pub processes: usize,
    /// Runs that were left alone because their owner is alive.
    pub alive: Vec<String>,
    /// Cgroups that somebody else's processes or cgroups are in: they stay on record, and hold nothing of ours.
    pub busy: Vec<Busy>,
}

/// A cgroup of ours that cannot be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Busy {
    /// Its directory.
    pub cgroup: PathBuf,
    /// The processes in it; without any, it has cgroups inside.
    pub processes: Vec<i32>,
}

/// Removes what runs left behind whose owner is dead: processes, namespaces, and with these links and queues.
/// Runs whose owner is alive are left alone.
///
/// # Errors
/// When a leftover exists and cannot be removed; the ones before it are removed.
pub fn clean() -> Result<Cleaned, Error> {
    Folder::open(PARENT, DIRECTORY)
        .map_err(unusable)?
        .map_or_else(|| Ok(Cleaned::default()), |folder| clean_in(&folder))
}

fn clean_in(folder: &Folder) -> Result<Cleaned, Error> {
    let mut cleaned = Cleaned::default();
    let mut names = folder.names().map_err(|e| Error::file(folder.path(""), e))?;
    names.sort();
    for name in names.iter().filter(|name| name.ends_with(EXTENSION)) {
        // Unreadable: being written at this moment, or not ours.
        let Some(content) = read(folder, name) else { continue };
        if content.owner.is_alive() {
            cleaned.alive.push(content.run_id);
        } else {
            let busy = cleaned.busy.len();
            remove(&content, &mut cleaned)?;
            if cleaned.busy.len() == busy {
                folder.remove(name).map_err(|e| Error::file(folder.path(name), e))?;
                cleaned.runs.push(content.run_id);
            }
        }
    }
    Ok(cleaned)
}

fn read(folder: &Folder, name: &str) -> Option<Content> {
    let mut bytes = Vec::new();
    folder.read(name)?.take(MAX_RECORD_BYTES + 1).read_to_end(&mut bytes).ok()?;
    // One that was cut off is none either.
    serde_json::from_slice(&bytes).ok()
}

fn remove(content: &Content, cleaned: &mut Cleaned) -> Result<(), Error> {
    for process in content.processes.iter().filter(|process| process.is_alive()) {
        process.kill();
        cleaned.processes += 1;
    }
    for name in &content.namespaces {
        let path = netns::path_of(name);
        if path.symlink_metadata().is_err() {
            continue;
        }
        cleaned.processes += kill_inside(&path);
        netns::remove_name(name);
        if path.symlink_metadata().is_ok() {
            let cause = io::Error::other("it is still there after unmounting and removing its name");
            return Err(Error::kernel("removing", format!("network namespace {name}"), cause));
        }
        cleaned.namespaces.push(name.clone());
    }
    for path in content.cgroups.iter().filter(|path| path.exists()) {
        match throttle::remove(path) {
            Ok(()) => cleaned.cgroups.push(path.clone()),
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                cleaned.busy.push(Busy { cgroup: path.clone(), processes: members(path) });
            }
            Err(e) => return Err(Error::kernel("removing", format!("cgroup {}", path.display()), e)),
        }
    }
    Ok(())
}

fn members(cgroup: &Path) -> Vec<i32> {
    let text = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Kills every process in the namespace: all of them belong to the dead run.
fn kill_inside(namespace: &Path) -> usize {
    let Ok(wanted) = fs::metadata(namespace) else { return 0 };
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let inside = pids.filter(|pid| {
        let theirs = fs::metadata(format!("/proc/{pid}/ns/net"));
        theirs.is_ok_and(|theirs| (theirs.dev(), theirs.ino()) == (wanted.dev(), wanted.ino()))
    });
    inside.filter(|pid| kill(Pid::from_raw(*pid), Signal::SIGKILL).is_ok()).count()
}

fn check_run_id(run_id: &str) -> Result<(), Error> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if run_id.is_empty() || run_id.len() > MAX_RUN_ID_LEN || !run_id.chars().all(allowed) {
        let problem = format!(
            "{run_id:?} is not a run id; use 1 to {MAX_RUN_ID_LEN} of the characters a-z, 0-9 and '-'"
        );
        return Err(Error::spec("run_id", problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_not_its_successor() {
        let me = ProcessId::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.is_alive());
        assert!(!ProcessId { start_ticks: me.start_ticks + 1, ..me.clone() }.is_alive());
        assert!(!ProcessId { boot_id: "another".into(), ..me }.is_alive());
    }

    #[test]
    fn run_ids_cannot_leave_the_directory() {
        for bad in ["", "../x", "a/b", "A", "a b", "0123456789012345678901234"] {
            assert!(check_run_id(bad).is_err(), "{bad:?}");
        }
        assert!(check_run_id("demo-1").is_ok());
    }

    fn dead() -> ProcessId {
        ProcessId { pid: 1, start_ticks: 1, boot_id: "another".into() }
    }

    #[test]
    fn records_of_dead_runs_are_removed_and_other_files_neither_read_nor_waited_for() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(DIRECTORY).join(name);
        let folder = || Folder::make(temporary.path().to_str().unwrap(), DIRECTORY).unwrap();
        std::mem::forget(Record::create_in(folder(), "gone", &dead()).unwrap());
        let me = ProcessId::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        let mine = Record::create_in(folder(), "mine", &me).unwrap();
        let taken = Record::create_in(folder(), "mine", &me);
        assert!(matches!(taken, Err(Error::RunTaken { pid, .. }) if pid == me.pid));
        // A record that a link leads to may be anybody's; a FIFO would be waited for.
        let elsewhere = temporary.path().join("elsewhere");
        fs::rename(at("gone.json"), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, at("link.json")).unwrap();
        nix::unistd::mkfifo(&at("fifo.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::write(at("broken.json"), "{").unwrap();
        let cleaned = clean_in(&folder()).unwrap();
        assert_eq!((cleaned.runs, cleaned.alive), (vec![], vec!["mine".to_owned()]));
        fs::copy(&elsewhere, at("gone.json")).unwrap();
        assert_eq!(clean_in(&folder()).unwrap().runs, ["gone"]);
        drop(mine);
        assert!(!at("gone.json").exists() && !at("mine.json").exists() && elsewhere.exists());
    }

    #[test]
    fn a_temporary_file_that_is_a_link_is_replaced_and_not_followed() {
        let temporary = tempfile::tempdir().unwrap();
        let precious = temporary.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        let folder = Folder::make(temporary.path().to_str().unwrap(), DIRECTORY).unwrap();
        std::os::unix::fs::symlink(&precious, folder.path("run.tmp")).unwrap();
        let mut record = Record::create_in(folder, "run", &dead()).unwrap();
        record.add_namespace("vmcc-a").unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(read(&record.folder, "run.json").unwrap().namespaces, ["vmcc-a"]);
    }
}
