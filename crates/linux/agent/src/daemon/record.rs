//! Journal on disk of the values from before the agent. However an agent ends, the next one can continue or restore them.
//!
//! A value is in the journal before it is changed, and until it is restored. One agent at a time holds the lock; the kernel
//! releases it when the process ends.

use super::resource::Resource;
use crate::Error;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use vmcc_system::Folder;

const PARENT: &str = "/run/vmcc";
const FOLDER: &str = "agent";
const LOCK: &str = "lock";
const RECORD: &str = "record.json";
const NEXT: &str = "record.json.next";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// Version 2 was a snapshot alone.
const VERSION: u32 = 3;
const OLDEST_VERSION: u32 = 2;
/// A shorter file is not replaced by a snapshot.
const MIN_SNAPSHOT_BYTES: u64 = 1 << 16;
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
    /// Object ([`Resource::object`]) that has these values; 0: not known, or there is but one.
    #[serde(default)]
    pub(crate) object: u64,
    /// Object ([`Resource::object`]) at which this process has seen it so.
    #[serde(skip)]
    pub(crate) seen: Option<u64>,
}

/// Fields that every version of the record has.
#[derive(Debug, Deserialize)]
struct Header {
    version: u32,
}

/// First line of the record: everything at one time. Each further line is a [`Change`].
#[derive(Debug, Serialize, Deserialize)]
struct Snapshot<E> {
    version: u32,
    /// Nothing that was set outlives a restart of the machine.
    boot: String,
    entries: E,
}

/// Line of the record after the first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Change<E, R> {
    /// Added, or in the place of the entry with the same place and resource.
    Put(E),
    /// Removed, by the place's cookie.
    Remove(u64, R),
}

/// Entries in the order in which they were first recorded.
#[derive(Debug, Default)]
struct Entries {
    all: BTreeMap<u64, Entry>,
    /// Numbers of the entries, by the cookie of the place.
    index: BTreeMap<u64, BTreeMap<Resource, u64>>,
}

impl Entries {
    fn number(&self, cookie: u64, resource: &Resource) -> Option<u64> {
        self.index.get(&cookie)?.get(resource).copied()
    }

    fn put(&mut self, entry: Entry) {
        let next = self.all.last_key_value().map_or(0, |(number, _)| number + 1);
        let here = self.index.entry(entry.place.cookie).or_default();
        let number = *here.entry(entry.resource.clone()).or_insert(next);
        self.all.insert(number, entry);
    }

    fn remove(&mut self, cookie: u64, resource: &Resource) {
        let Some(here) = self.index.get_mut(&cookie) else { return };
        if let Some(number) = here.remove(resource) {
            self.all.remove(&number);
        }
        if here.is_empty() {
            self.index.remove(&cookie);
        }
    }
}

/// The locked record.
///
/// A change is appended as one line, in one write that returns before the kernel is changed. The file lies in memory (tmpfs) and
/// counts for one boot: it outlives the process, which is enough, and needs no fsync. Snapshots keep its length below twice that
/// of its entries, so the bytes written grow with the number of changes alone.
pub(crate) struct Record {
    folder: Folder,
    lock: Flock<File>,
    boot: String,
    entries: Entries,
    /// Opened for changes; `None` before the first snapshot, and after a line that could not be undone.
    file: Option<File>,
    /// Length of the file, and of the snapshot in it.
    bytes: u64,
    snapshot_bytes: u64,
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
                    let (boot, entries) = read(&folder)?;
                    let (file, bytes, snapshot_bytes) = (None, 0, 0);
                    return Ok(Self { folder, lock, boot, entries, file, bytes, snapshot_bytes });
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

    /// Entries that an ended agent left; none while one runs.
    pub(crate) fn left() -> Result<Vec<Entry>, Error> {
        let Some(folder) = Folder::open(PARENT, FOLDER).map_err(failed)? else { return Ok(Vec::new()) };
        if Self::holder()?.is_some() {
            return Ok(Vec::new());
        }
        Ok(read(&folder)?.1.all.into_values().collect())
    }

    /// In the order in which they were first recorded.
    pub(crate) fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.all.values()
    }

    /// Those of one place.
    pub(crate) fn entries_of(&self, cookie: u64) -> impl Iterator<Item = &Entry> {
        let numbers: BTreeSet<u64> =
            self.entries.index.get(&cookie).into_iter().flat_map(|here| here.values().copied()).collect();
        numbers.into_iter().filter_map(|number| self.entries.all.get(&number))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.all.len()
    }

    pub(crate) fn find(&self, place: &Place, resource: &Resource) -> Option<&Entry> {
        self.entries.all.get(&self.entries.number(place.cookie, resource)?)
    }

    /// Puts it on record, in place of what was on record of it. What cannot be saved is not on record.
    pub(crate) fn put(&mut self, entry: Entry) -> io::Result<()> {
        let old = self.find(&entry.place, &entry.resource).cloned();
        let key = (entry.place.cookie, entry.resource.clone());
        let line = serde_json::to_vec(&Change::<_, Resource>::Put(&entry))?;
        self.entries.put(entry);
        let saved = self.save(line);
        if saved.is_err() {
            match old {
                Some(old) => self.entries.put(old),
                None => self.entries.remove(key.0, &key.1),
            }
        }
        saved
    }

    /// It is as wanted at `object`; nothing changes on disk.
    pub(crate) fn saw(&mut self, place: &Place, resource: &Resource, object: u64) {
        let number = self.entries.number(place.cookie, resource);
        if let Some(entry) = number.and_then(|number| self.entries.all.get_mut(&number)) {
            entry.seen = Some(object);
        }
    }

    pub(crate) fn remove(&mut self, place: &Place, resource: &Resource) -> io::Result<()> {
        if self.entries.number(place.cookie, resource).is_none() {
            return Ok(());
        }
        self.entries.remove(place.cookie, resource);
        self.save(serde_json::to_vec(&Change::<Entry, _>::Remove(place.cookie, resource))?)
    }

    /// Appends a line, or replaces the file by a snapshot once lines make up half of it.
    fn save(&mut self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        let next = self.bytes + line.len() as u64;
        let is_long = next > MIN_SNAPSHOT_BYTES.max(2 * self.snapshot_bytes);
        match &mut self.file {
            Some(file) if !is_long => {
                if let Err(error) = file.write_all(&line) {
                    // Half a line must not precede the next one.
                    if file.set_len(self.bytes).and_then(|()| file.seek(SeekFrom::Start(self.bytes))).is_err()
                    {
                        self.file = None;
                    }
                    return Err(error);
                }
                self.bytes = next;
                Ok(())
            }
            _ => self.save_snapshot(),
        }
    }

    /// Whole or not at all: what is written appears under the record's name at once.
    fn save_snapshot(&mut self) -> io::Result<()> {
        let entries: Vec<&Entry> = self.entries().collect();
        let mut bytes = serde_json::to_vec(&Snapshot { version: VERSION, boot: self.boot.clone(), entries })?;
        bytes.push(b'\n');
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::Error::other(format!(
                "there is more than the {MAX_BYTES} bytes that it may have"
            )));
        }
        self.folder.remove(NEXT)?;
        let mut file = self.folder.make_new(NEXT)?;
        file.write_all(&bytes)?;
        self.folder.rename(NEXT, RECORD)?;
        (self.bytes, self.snapshot_bytes) = (bytes.len() as u64, bytes.len() as u64);
        self.file = Some(file);
        Ok(())
    }

    /// Removes the agent's socket, and what lies on disk, if nothing is on record any more, and lets go of the lock.
    pub(crate) fn close(self) {
        let _ = super::control::remove_socket();
        if self.len() == 0 {
            // What stays is harmless: it says that nothing was changed.
            for name in [NEXT, RECORD, LOCK] {
                let _ = self.folder.remove(name);
            }
            let _ = fs::remove_dir(self.folder.path(""));
        }
        drop(self.lock);
    }
}

/// Boot of the machine, and the entries that count in it.
fn read(folder: &Folder) -> Result<(String, Entries), Error> {
    let boot = fs::read_to_string(BOOT).unwrap_or_default();
    let Some(file) = folder.read(RECORD) else { return Ok((boot, Entries::default())) };
    let mut bytes = Vec::new();
    let fault = |source| failed((folder.path(RECORD), source));
    // Lines make up at most half of it, or a little.
    file.take(2 * MAX_BYTES + MIN_SNAPSHOT_BYTES).read_to_end(&mut bytes).map_err(fault)?;
    let (of_boot, entries) = parse(&bytes).map_err(|why| fault(io::Error::other(why)))?;
    let entries = if of_boot == boot { entries } else { Entries::default() };
    Ok((boot, entries))
}

/// One that cannot be read is not thrown away: it is the only one who knows what was there.
fn parse(bytes: &[u8]) -> Result<(String, Entries), String> {
    const WITHOUT: &str = "remove it to go on without it: values that it names then stay as they are now";
    let damaged = |e: serde_json::Error| format!("it is damaged ({e}); {WITHOUT}");
    // The process ended while it wrote the last line: what that announces was not done. Version 2 ends without a newline.
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let (first, changes) = lines.split_first().expect("there is one line at least");
    // Another version may have anything but this.
    let header = serde_json::from_slice::<Header>(first);
    if let Ok(Header { version }) = header
        && !(OLDEST_VERSION..=VERSION).contains(&version)
    {
        return Err(format!(
            "it is of version {version}, written by another vmcc: `vmcc down` of that one puts back what it names, or {WITHOUT}"
        ));
    }
    let snapshot: Snapshot<Vec<Entry>> = serde_json::from_slice(first).map_err(damaged)?;
    let mut entries = Entries::default();
    snapshot.entries.into_iter().for_each(|entry| entries.put(entry));
    let whole = changes.len().saturating_sub(1);
    for line in &changes[..whole] {
        match serde_json::from_slice(line).map_err(damaged)? {
            Change::Put(entry) => entries.put(entry),
            Change::Remove(cookie, resource) => entries.remove(cookie, &resource),
        }
    }
    Ok((snapshot.boot, entries))
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
    use std::os::unix::fs::MetadataExt;

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
            object: 0,
            seen: None,
        };
        record.put(entry("net/a", "1".to_owned())).unwrap();
        for name in ["net/a", "net/b"] {
            let huge = entry(name, "x".repeat(MAX_BYTES as usize));
            assert!(record.put(huge).unwrap_err().to_string().contains("more than"));
        }
        record.put(entry("net/c", "2".to_owned())).unwrap();
        let (_, read) = read(&record.folder).unwrap();
        let before: Vec<_> = read.all.values().filter_map(|e| e.before.as_deref()).collect();
        assert_eq!((before, record.len()), (vec!["1", "2"], 2));
    }

    fn sysctl(number: usize, ours: &str) -> Entry {
        Entry {
            place: Place { cookie: number as u64 % 160, name: "web".to_owned() },
            resource: Resource::Sysctl(format!("net/ipv4/value{number}")),
            before: Some("0".to_owned()),
            ours: vec![ours.to_owned()],
            object: 0,
            seen: None,
        }
    }

    #[test]
    fn record_file_returns_entries_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::lock_in(folder.path().to_str().unwrap()).unwrap();
        for value in ["1", "2"] {
            (0..500).for_each(|number| record.put(sysctl(number, value)).unwrap());
        }
        for number in (0..500).filter(|number| number % 5 != 0) {
            let entry = sysctl(number, "2");
            record.remove(&entry.place, &entry.resource).unwrap();
        }
        let (_, read) = read(&record.folder).unwrap();
        let shown = |all: &mut dyn Iterator<Item = &Entry>| {
            all.map(|e| format!("{} {:?}", e.resource, e.ours)).collect::<Vec<_>>()
        };
        let desired: Vec<Entry> = (0..500).step_by(5).map(|number| sysctl(number, "2")).collect();
        assert_eq!(shown(&mut read.all.values()), shown(&mut desired.iter()));
        assert_eq!(shown(&mut record.entries()), shown(&mut desired.iter()));
        let here: Vec<String> = record.entries_of(5).map(|entry| entry.resource.to_string()).collect();
        assert_eq!(here, [5, 165, 325, 485].map(|number| format!("net/ipv4/value{number}")));
    }

    #[test]
    fn half_written_change_is_ignored_and_half_a_file_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::lock_in(folder.path().to_str().unwrap()).unwrap();
        (0..3).for_each(|number| record.put(sysctl(number, "1")).unwrap());
        let bytes = fs::read(record.folder.path(RECORD)).unwrap();
        let ends: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\n').collect();
        assert_eq!(ends.len(), 3, "a snapshot and two changes");
        for cut in ends[0]..bytes.len() {
            let whole = ends.iter().filter(|end| **end < cut).count().max(1);
            assert_eq!(parse(&bytes[..cut]).unwrap().1.all.len(), whole, "{cut}");
        }
        for cut in 0..ends[0] {
            parse(&bytes[..cut]).unwrap_err();
        }
        let mut torn = bytes;
        torn[ends[1] - 1] = b'x';
        assert!(parse(&torn).unwrap_err().contains("damaged"));
    }

    #[test]
    fn bytes_written_grow_linearly_with_the_values() {
        let written = |values: usize| {
            let folder = tempfile::tempdir().unwrap();
            let mut record = Record::lock_in(folder.path().to_str().unwrap()).unwrap();
            let mut sum = 0;
            let (mut last, mut file) = (0, None);
            let mut count = |record: &Record| {
                let inode = record.file.as_ref().unwrap().metadata().unwrap().ino();
                // A snapshot is another file, or the first.
                sum += if file.replace(inode) == Some(inode) { record.bytes - last } else { record.bytes };
                last = record.bytes;
            };
            for value in ["1", "2"] {
                for number in 0..values {
                    record.put(sysctl(number, value)).unwrap();
                    count(&record);
                }
            }
            for number in (0..values).rev() {
                let entry = sysctl(number, "2");
                record.remove(&entry.place, &entry.resource).unwrap();
                count(&record);
            }
            sum
        };
        let (one, two) = (written(2000), written(4000));
        assert!(two < one * 5 / 2, "{two} bytes for twice the values of {one}");
    }
}
