//! What was there before the agent changed it, on disk: whoever starts after it, however it ended, can go on or put it
//! back.
//!
//! A value is on record before it is changed, and until it is back. One agent at a time holds the lock; the kernel lets
//! go of it when the process ends.

use super::item::Item;
use crate::Error;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use vmcc_host::port::Folder;

const PARENT: &str = "/run/vmcc";
const FOLDER: &str = "agent";
const LOCK: &str = "lock";
const RECORD: &str = "record.json";
const NEXT: &str = "record.json.next";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
const VERSION: u32 = 1;
/// Records are small; a larger file is not ours.
const MAX_BYTES: u64 = 16 << 20;

/// Where something is set: in a network namespace, or in the kernel as a whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The namespace's cookie, which no other gets; 0: the kernel.
    pub(crate) cookie: u64,
    /// What people call it.
    pub(crate) name: String,
}

impl Place {
    pub(crate) fn kernel() -> Self {
        Self { cookie: 0, name: "kernel".to_owned() }
    }
}

/// One thing that is set.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) item: Item,
    /// What was there before; `None`: nothing.
    pub(crate) before: Option<String>,
    /// What the agent has, or may have, set; the last is the latest.
    pub(crate) ours: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    version: u32,
    /// Nothing that was set outlives a restart of the machine.
    boot: String,
    entries: Vec<Entry>,
}

/// The locked record.
pub(crate) struct Record {
    folder: Folder,
    lock: Flock<File>,
    content: Content,
}

fn failed((path, source): (std::path::PathBuf, io::Error)) -> Error {
    Error::State { path, source }
}

impl Record {
    /// Locks the record; what a process left that was killed is in it.
    ///
    /// # Errors
    /// [`Error::AgentRuns`] while another process holds it.
    pub(crate) fn lock() -> Result<Self, Error> {
        loop {
            let folder = Folder::make(PARENT, FOLDER).map_err(failed)?;
            let fault = |source| failed((folder.path(LOCK), source));
            let file = match folder.open_or_make(LOCK) {
                // The folder went away with an agent that ended just now.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                file => file.map_err(fault)?,
            };
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(mut lock) => {
                    // Removed by its last owner between opening and locking: that one is nobody's.
                    if !folder.is(LOCK, &lock).map_err(fault)? {
                        continue;
                    }
                    write_pid(&mut lock).map_err(fault)?;
                    let content = read(&folder)?;
                    return Ok(Self { folder, lock, content });
                }
                Err((file, nix::Error::EWOULDBLOCK)) => return Err(Error::AgentRuns { pid: read_pid(file) }),
                Err((_, e)) => return Err(fault(e.into())),
            }
        }
    }

    /// The process that holds the lock; `None` if none does.
    pub(crate) fn holder() -> Result<Option<u32>, Error> {
        let Some(folder) = Folder::open(PARENT, FOLDER).map_err(failed)? else { return Ok(None) };
        let Some(file) = folder.read(LOCK) else { return Ok(None) };
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_) => Ok(None),
            Err((file, _)) => Ok(Some(read_pid(file))),
        }
    }

    /// Whether an agent left anything, be it an empty folder.
    pub(crate) fn is_left() -> Result<bool, Error> {
        Ok(Folder::open(PARENT, FOLDER).map_err(failed)?.is_some())
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.content.entries
    }

    pub(crate) fn find(&self, place: &Place, item: &Item) -> Option<&Entry> {
        self.content.entries.iter().find(|e| is(e, place, item))
    }

    /// Puts it on record, in place of what was on record of it.
    pub(crate) fn put(&mut self, entry: Entry) -> io::Result<()> {
        let at = self.content.entries.iter().position(|e| is(e, &entry.place, &entry.item));
        match at {
            Some(at) => self.content.entries[at] = entry,
            None => self.content.entries.push(entry),
        }
        self.save()
    }

    pub(crate) fn remove(&mut self, place: &Place, item: &Item) -> io::Result<()> {
        self.content.entries.retain(|e| !is(e, place, item));
        self.save()
    }

    /// Whole or not at all: what is written appears under the record's name at once.
    fn save(&self) -> io::Result<()> {
        let bytes = serde_json::to_vec(&self.content)?;
        self.folder.remove(NEXT)?;
        self.folder.make_new(NEXT)?.write_all(&bytes)?;
        self.folder.rename(NEXT, RECORD)
    }

    /// Removes the agent's socket, and what lies on disk, if nothing is on record any more, and lets go of the lock.
    pub(crate) fn close(self) {
        let _ = super::control::forget();
        if self.content.entries.is_empty() {
            // What stays is harmless: it says that nothing was changed.
            for name in [NEXT, RECORD, LOCK] {
                let _ = self.folder.remove(name);
            }
            let _ = fs::remove_dir(self.folder.path(""));
        }
        drop(self.lock);
    }
}

fn is(entry: &Entry, place: &Place, item: &Item) -> bool {
    entry.place.cookie == place.cookie && entry.item == *item
}

fn read(folder: &Folder) -> Result<Content, Error> {
    let boot = fs::read_to_string(BOOT).unwrap_or_default();
    let empty = Content { version: VERSION, boot: boot.clone(), entries: Vec::new() };
    let Some(file) = folder.read(RECORD) else { return Ok(empty) };
    let mut bytes = Vec::new();
    let fault = |source| failed((folder.path(RECORD), source));
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(fault)?;
    // One that cannot be read is not thrown away: it is the only one who knows what was there.
    let content: Content = serde_json::from_slice(&bytes).map_err(|e| fault(e.into()))?;
    if content.version != VERSION {
        let why = format!("it is of version {}, written by another vmcc: end with that one", content.version);
        return Err(fault(io::Error::other(why)));
    }
    Ok(if content.boot == boot { content } else { empty })
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())
}

fn read_pid(file: File) -> u32 {
    let mut text = String::new();
    let _ = file.take(16).read_to_string(&mut text);
    text.trim().parse().unwrap_or(0)
}
