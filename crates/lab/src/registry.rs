//! On-disk record of the objects of each live run, so that the leftovers of a killed run can be found and removed.
//!
//! One JSON file per run in `/run/vmcc`, a folder that only root can change. It is rewritten (atomically) before an object
//! is created, and names its owner by process id, start time and boot: a recycled process id is not mistaken for the owner.

use crate::Error;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read, Write};
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

    /// One that ended with another boot.
    #[cfg(test)]
    pub(crate) fn dead() -> Self {
        Self { pid: 1, start_ticks: 1, boot_id: "another".into() }
    }

    pub(crate) fn is_alive(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now == *self)
    }

    pub(crate) fn kill(&self) {
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

/// Objects of a run, and their owner.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(crate) run_id: String,
    pub(crate) owner: ProcessId,
    pub(crate) namespaces: Vec<String>,
    pub(crate) processes: Vec<ProcessId>,
    #[serde(default)]
    pub(crate) cgroups: Vec<PathBuf>,
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

    pub(crate) fn create_in(folder: Folder, run_id: &str, owner: &ProcessId) -> Result<Self, Error> {
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

/// Folder of the records, if there is one.
pub(crate) fn folder() -> Result<Option<Folder>, Error> {
    Folder::open(PARENT, DIRECTORY).map_err(unusable)
}

/// Records in a folder, each with the name of its file, in order.
pub(crate) fn records(folder: &Folder) -> Result<Vec<(String, Content)>, Error> {
    let mut names = folder.names().map_err(|e| Error::file(folder.path(""), e))?;
    names.retain(|name| name.ends_with(EXTENSION));
    names.sort();
    // Unreadable: being written at this moment, or not ours.
    Ok(names.into_iter().filter_map(|name| read(folder, &name).map(|content| (name, content))).collect())
}

fn read(folder: &Folder, name: &str) -> Option<Content> {
    let mut bytes = Vec::new();
    folder.read(name)?.take(MAX_RECORD_BYTES + 1).read_to_end(&mut bytes).ok()?;
    // One that was cut off is none either.
    serde_json::from_slice(&bytes).ok()
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
    fn reused_pid_is_another_process() {
        let me = ProcessId::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.is_alive());
        assert!(!ProcessId { start_ticks: me.start_ticks + 1, ..me.clone() }.is_alive());
        assert!(!ProcessId { boot_id: "another".into(), ..me }.is_alive());
    }

    #[test]
    fn run_ids_cannot_escape_the_directory() {
        for bad in ["", "../x", "a/b", "A", "a b", "0123456789012345678901234"] {
            assert!(check_run_id(bad).is_err(), "{bad:?}");
        }
        assert!(check_run_id("demo-1").is_ok());
    }

    #[test]
    fn symlink_as_temporary_file_is_replaced_not_followed() {
        let temporary = tempfile::tempdir().unwrap();
        let precious = temporary.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        let folder = Folder::make(temporary.path().to_str().unwrap(), DIRECTORY).unwrap();
        std::os::unix::fs::symlink(&precious, folder.path("run.tmp")).unwrap();
        let mut record = Record::create_in(folder, "run", &ProcessId::dead()).unwrap();
        record.add_namespace("vmcc-a").unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(read(&record.folder, "run.json").unwrap().namespaces, ["vmcc-a"]);
    }
}
