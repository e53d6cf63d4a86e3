//! What vmcc did to a port, on disk: the next process can go on with it or undo it, and two do not fight over it.
//!
//! One file per port in `/run/vmcc/ports`, named by the network namespace's inode and the port's number. Whoever
//! holds the port locks the file (`flock`): the kernel lets go of the lock when the process dies, however it dies.

use super::counted::Dropped;
use super::error::PortError;
use super::site::Previous;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use vmcc_port::{Backend, PortConfig};

const DIRECTORY: &str = "/run/vmcc/ports";
/// Records are small; a larger file is not ours.
const MAX_BYTES: u64 = 1 << 20;

/// What a record says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(crate) port: String,
    pub(crate) config: PortConfig,
    pub(crate) backend: Backend,
    pub(crate) queues: bool,
    pub(crate) previous: Option<Previous>,
    /// Whether clsact goes when the port is no longer served.
    pub(crate) made_clsact: bool,
    /// Left served on purpose; without it, its process still holds it or was killed.
    pub(crate) kept: bool,
    /// A change was under way: the queues may be neither as before nor as after it.
    pub(crate) half: bool,
    /// The port shares the budget of its VM: its queues and program are elsewhere.
    #[serde(default)]
    pub(crate) member: Option<Member>,
    /// What queues dropped that are gone.
    #[serde(default)]
    pub(crate) dropped: Dropped,
    /// The process that wrote it.
    pub(crate) pid: u32,
}

/// Of which VM a port shares the budget.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) vm: String,
}

/// A locked record. Dropping it unlocks, and deletes it if it says nothing; [`Record::remove`] deletes.
pub(crate) struct Record {
    path: PathBuf,
    file: Flock<File>,
}

impl Record {
    /// Locks the record of a port of the calling thread's network namespace.
    pub(crate) fn lock(port: &str, ifindex: u32) -> Result<Self, PortError> {
        let path = path(ifindex)?;
        let failed = |source| PortError::Record { path: path.clone(), source };
        fs::create_dir_all(DIRECTORY).map_err(failed)?;
        loop {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(failed)?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => {
                    // Deleted by its last owner between opening and locking: that one is nobody's.
                    let ours = file.metadata().map_err(failed)?.ino();
                    if fs::metadata(&path).is_ok_and(|now| now.ino() == ours) {
                        return Ok(Self { path, file });
                    }
                }
                Err((file, nix::Error::EWOULDBLOCK)) => {
                    let pid = read(&file).map_or(0, |content| content.pid);
                    return Err(PortError::Held { port: port.to_owned(), pid });
                }
                Err((_, e)) => return Err(failed(e.into())),
            }
        }
    }

    pub(crate) fn read(&self) -> Option<Content> {
        read(&self.file)
    }

    pub(crate) fn write(&self, content: &Content) -> Result<(), PortError> {
        let failed = |source| PortError::Record { path: self.path.clone(), source };
        let bytes = serde_json::to_vec(content).map_err(|e| failed(e.into()))?;
        let mut file: &File = &self.file;
        // Longer before shorter: a reader that comes in between meets trailing garbage and takes it for none.
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        file.write_all(&bytes).map_err(failed)?;
        file.set_len(bytes.len() as u64).map_err(failed)
    }

    /// Whoever comes next knows that the port was left served on purpose.
    pub(crate) fn mark_kept(&self) {
        if let Some(content) = self.read() {
            // Without it `vmcc clean` takes the port for a leftover; that is all.
            let _ = self.write(&Content { kept: true, ..content });
        }
    }

    pub(crate) fn remove(self) {
        // A record that stays is harmless: no program of ours is on the port.
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // One that was removed may have a successor of the same name.
        if self.file.metadata().is_ok_and(|file| file.len() == 0 && file.nlink() > 0) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The numbers of the ports of the calling thread's network namespace that have a record.
pub(crate) fn recorded() -> Result<Vec<u32>, PortError> {
    let here = namespace_inode()?;
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return Ok(Vec::new()) };
    let found = entries.flatten().filter_map(|entry| entry.file_name().to_str().and_then(numbers));
    Ok(found.filter(|(inode, _)| *inode == here).map(|(_, index)| index).collect())
}

/// What is on record about the other ports of the calling thread's network namespace.
pub(crate) fn others(ifindex: u32) -> Result<Vec<Content>, PortError> {
    let others = recorded()?.into_iter().filter(|index| *index != ifindex);
    Ok(others.filter_map(|index| peek(index).ok().flatten()).collect())
}

/// What is on record about a port of the calling thread's network namespace, whoever holds it.
pub(crate) fn peek(ifindex: u32) -> Result<Option<Content>, PortError> {
    Ok(File::open(path(ifindex)?).ok().as_ref().and_then(read))
}

/// Removes the records of ports that are gone from the calling thread's network namespace, and of namespaces for
/// which `alive` says no; the ports' names.
pub(crate) fn forget(
    is_there: impl Fn(u32) -> bool,
    alive: impl Fn(u64) -> bool,
) -> Result<Vec<String>, PortError> {
    let here = namespace_inode()?;
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return Ok(Vec::new()) };
    let mut gone = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some((inode, index)) = name.to_str().and_then(numbers) else { continue };
        if alive(inode) && (inode != here || is_there(index)) {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else { continue };
        // One that is held will be removed by its holder.
        let Ok(file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { continue };
        if fs::remove_file(entry.path()).is_ok() {
            gone.extend(read(&file).map(|content| content.port));
        }
    }
    gone.sort();
    Ok(gone)
}

/// The namespace's inode and the port's number in a record's name.
fn numbers(file_name: &str) -> Option<(u64, u32)> {
    let (inode, index) = file_name.strip_suffix(".json")?.split_once('-')?;
    Some((inode.parse().ok()?, index.parse().ok()?))
}

fn read(mut file: &File) -> Option<Content> {
    if file.metadata().ok()?.len() > MAX_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn path(ifindex: u32) -> Result<PathBuf, PortError> {
    Ok(PathBuf::from(DIRECTORY).join(format!("{}-{ifindex}.json", namespace_inode()?)))
}

fn namespace_inode() -> Result<u64, PortError> {
    let namespace = PathBuf::from("/proc/thread-self/ns/net");
    let found = fs::metadata(&namespace);
    found.map(|file| file.ino()).map_err(|source| PortError::Record { path: namespace, source })
}
