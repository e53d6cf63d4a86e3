//! Removal of what killed runs left behind.

use crate::registry::{self, Content};
use crate::{Error, netns, throttle};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vmcc_system::Folder;

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
/// A leftover exists and cannot be removed; the ones before it are removed.
pub fn clean() -> Result<Cleaned, Error> {
    registry::folder()?.map_or_else(|| Ok(Cleaned::default()), |folder| clean_in(&folder))
}

fn clean_in(folder: &Folder) -> Result<Cleaned, Error> {
    let mut cleaned = Cleaned::default();
    for (name, content) in registry::records(folder)? {
        if content.owner.is_alive() {
            cleaned.alive.push(content.run_id);
        } else {
            let busy = cleaned.busy.len();
            remove(&content, &mut cleaned)?;
            if cleaned.busy.len() == busy {
                folder.remove(&name).map_err(|e| Error::file(folder.path(&name), e))?;
                cleaned.runs.push(content.run_id);
            }
        }
    }
    Ok(cleaned)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{ProcessId, Record};

    #[test]
    fn clean_removes_records_of_dead_runs_and_ignores_other_files() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join("vmcc").join(name);
        let folder = || Folder::make(temporary.path().to_str().unwrap(), "vmcc").unwrap();
        std::mem::forget(Record::create_in(folder(), "gone", &ProcessId::dead()).unwrap());
        let own = i32::try_from(std::process::id()).unwrap();
        let me = ProcessId::of(own).unwrap();
        let mine = Record::create_in(folder(), "mine", &me).unwrap();
        let taken = Record::create_in(folder(), "mine", &me);
        assert!(matches!(taken, Err(Error::RunTaken { pid, .. }) if pid == own));
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
}
