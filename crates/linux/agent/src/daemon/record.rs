//! Journal on disk of the values from before the agent. However an agent ends, the next one can continue or restore them.
//!
//! A value is in the journal before it is changed, and until it is restored. One agent at a time holds the lock; the kernel
//! releases it when the process ends.

use super::resource::Resource;
use crate::Error;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use vmcc_system::Folder;

const PARENT: &str = "/run/vmcc";
const FOLDER: &str = "agent";
const LOCK: &str = "lock";
const RECORD: &str = "record.json";
const NEXT: &str = "record.json.next";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
const VERSION: u32 = 2;
/// Records are small; a larger file is not ours.
const MAX_BYTES: u64 = 16 << 20;

/// Place of a resource: a network namespace, or the kernel as a whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The namespace's cookie, which no other gets; 0: the kernel.
    pub(crate) cookie: u64,
    /// Name for messages.
    pub(crate) name: String,
}

impl Place {
    pub(crate) fn kernel() -> Self {
        Self { cookie: 0, name: "kernel".to_owned() }
    }
}

/// Resource that is set, with its value before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    #[serde(rename = "item")]
    pub(crate) resource: Resource,
    /// Value before the agent; `None`: nothing.
    pub(crate) before: Option<String>,
    /// Values that the agent has, or may have, set; the last is the latest.
    pub(crate) ours: Vec<String>,
    /// Object ([`Resource::object`]) at which this process has seen it so.
    #[serde(skip)]
    pub(crate) seen: Option<u64>,
}

/// Fields that every version of the record has.
#[derive(Debug, Deserialize)]
struct Header {
    version: u32,
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
        Self::lock_in(PARENT)
    }

    pub(super) fn lock_in(parent: &str) -> Result<Self, Error> {
        loop {
            let folder = Folder::make(parent, FOLDER).map_err(failed)?;
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

    /// True if an agent left anything, even an empty folder.
    pub(crate) fn is_left() -> Result<bool, Error> {
        Ok(Folder::open(PARENT, FOLDER).map_err(failed)?.is_some())
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.content.entries
    }

    pub(crate) fn find(&self, place: &Place, resource: &Resource) -> Option<&Entry> {
        self.content.entries.iter().find(|e| is(e, place, resource))
    }

    /// Puts it on record, in place of what was on record of it. What cannot be saved is not on record.
    pub(crate) fn put(&mut self, entry: Entry) -> io::Result<()> {
        let entries = &mut self.content.entries;
        let at = entries.iter().position(|e| is(e, &entry.place, &entry.resource));
        let old = at.map(|at| std::mem::replace(&mut entries[at], entry.clone()));
        if at.is_none() {
            entries.push(entry);
        }
        let saved = self.save();
        if saved.is_err() {
            match at.zip(old) {
                Some((at, old)) => self.content.entries[at] = old,
                None => drop(self.content.entries.pop()),
            }
        }
        saved
    }

    /// It is as wanted at `object`; nothing changes on disk.
    pub(crate) fn saw(&mut self, place: &Place, resource: &Resource, object: u64) {
        if let Some(entry) = self.content.entries.iter_mut().find(|e| is(e, place, resource)) {
            entry.seen = Some(object);
        }
    }

    pub(crate) fn remove(&mut self, place: &Place, resource: &Resource) -> io::Result<()> {
        self.content.entries.retain(|e| !is(e, place, resource));
        self.save()
    }

    /// Whole or not at all: what is written appears under the record's name at once.
    fn save(&self) -> io::Result<()> {
        let bytes = serde_json::to_vec(&self.content)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::Error::other(format!(
                "there is more than the {MAX_BYTES} bytes that it may have"
            )));
        }
        self.folder.remove(NEXT)?;
        self.folder.make_new(NEXT)?.write_all(&bytes)?;
        self.folder.rename(NEXT, RECORD)
    }

    /// Removes the agent's socket, and what lies on disk, if nothing is on record any more, and lets go of the lock.
    pub(crate) fn close(self) {
        let _ = super::control::remove_socket();
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

fn is(entry: &Entry, place: &Place, resource: &Resource) -> bool {
    entry.place.cookie == place.cookie && entry.resource == *resource
}

fn read(folder: &Folder) -> Result<Content, Error> {
    let boot = fs::read_to_string(BOOT).unwrap_or_default();
    let empty = Content { version: VERSION, boot: boot.clone(), entries: Vec::new() };
    let Some(file) = folder.read(RECORD) else { return Ok(empty) };
    let mut bytes = Vec::new();
    let fault = |source| failed((folder.path(RECORD), source));
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(fault)?;
    let content = parse(&bytes).map_err(|why| fault(io::Error::other(why)))?;
    Ok(if content.boot == boot { content } else { empty })
}

/// One that cannot be read is not thrown away: it is the only one who knows what was there.
fn parse(bytes: &[u8]) -> Result<Content, String> {
    const WITHOUT: &str = "remove it to go on without it: values that it names then stay as they are now";
    // Another version may have anything but this.
    let header = serde_json::from_slice::<Header>(bytes);
    if let Ok(Header { version }) = header
        && version != VERSION
    {
        return Err(format!(
            "it is of version {version}, written by another vmcc: `vmcc down` of that one puts back what it names, or {WITHOUT}"
        ));
    }
    serde_json::from_slice(bytes).map_err(|e| format!("it is damaged ({e}); {WITHOUT}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_record_error_has_a_remedy() {
        for text in ["", "{", "[]", r#"{"version":2}"#, r#"{"version":2,"boot":"x","entries":[{}]}"#] {
            let why = parse(text.as_bytes()).unwrap_err();
            assert!(why.contains("damaged") && why.contains("remove it to go on"), "{text}: {why}");
        }
        let why = parse(br#"{"version":7}"#).unwrap_err();
        assert!(why.contains("version 7") && why.contains("remove it to go on"), "{why}");
        assert!(parse(br#"{"version":2,"boot":"x","entries":[]}"#).is_ok());
    }

    #[test]
    fn oversized_record_entry_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::lock_in(folder.path().to_str().unwrap()).unwrap();
        let entry = |name: &str, before: String| Entry {
            place: Place::kernel(),
            resource: Resource::Sysctl(name.to_owned()),
            before: Some(before),
            ours: Vec::new(),
            seen: None,
        };
        record.put(entry("net/a", "1".to_owned())).unwrap();
        for name in ["net/a", "net/b"] {
            let huge = entry(name, "x".repeat(MAX_BYTES as usize));
            assert!(record.put(huge).unwrap_err().to_string().contains("more than"));
        }
        record.put(entry("net/c", "2".to_owned())).unwrap();
        let read = read(&record.folder).unwrap();
        let before: Vec<_> = read.entries.iter().filter_map(|e| e.before.as_deref()).collect();
        assert_eq!((before, record.entries().len()), (vec!["1", "2"], 2));
    }
}
