//! Journal on disk of a guard's pending undos: subflows that it made backups, and endpoints that it removed for a moment.
//!
//! An entry is written before the change and removed after the undo, so a process may end anywhere. Each guard has a journal of
//! its own and holds its lock. The kernel releases the lock when the process ends, and the next guard performs the undos.

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use vmcc_bpf::ControlError;
use vmcc_system::Folder;

const PARENT: &str = "/run/vmcc";
const FOLDER: &str = "guard";
const LOCK: &str = ".lock";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// Records are small; a larger file is not ours.
const MAX_BYTES: u64 = 16 << 20;

/// Reversal of one temporary change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Undo {
    /// The subflow with this cookie was no backup.
    Backup { socket: [u8; 8] },
    /// There was this endpoint of the kernel's path manager; it is recreated for a subflow between these ends.
    Endpoint {
        /// 0: the kernel chooses its number.
        #[serde(default)]
        id: u8,
        address: IpAddr,
        port: Option<u16>,
        flags: u32,
        device: u32,
        token: u32,
        local: SocketAddr,
        remote: SocketAddr,
    },
}

/// Pending undo and the network namespace that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingUndo {
    /// Cookie of the network namespace, which no other gets.
    pub(crate) place: u64,
    #[serde(rename = "debt")]
    pub(crate) undo: Undo,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    /// Nothing of it outlives a restart of the machine.
    boot: String,
    #[serde(rename = "owed")]
    pending: Vec<PendingUndo>,
}

/// A record that is locked.
struct Locked {
    folder: Folder,
    /// Without its ending.
    name: String,
    lock: Flock<File>,
}

impl Locked {
    fn new() -> io::Result<Self> {
        let mut number = 0_u32;
        loop {
            let folder = Folder::make(PARENT, FOLDER).map_err(|(_, error)| error)?;
            let name = format!("{}-{number}", std::process::id());
            let file = match folder.make_new(&(name.clone() + LOCK)) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    number += 1;
                    continue;
                }
                // The folder went away with another guard that ended just now.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            // Or somebody took it for one that was left.
            if let Some(locked) = Self::lock(folder, name, file) {
                return Ok(locked);
            }
        }
    }

    /// `None` if it is another one's, or gone.
    fn lock(folder: Folder, name: String, file: File) -> Option<Self> {
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()?;
        let is_there = folder.is(&(name.clone() + LOCK), &lock).ok()?;
        is_there.then_some(Self { folder, name, lock })
    }

    fn read(&self) -> Vec<PendingUndo> {
        let mut bytes = Vec::new();
        let file = self.folder.read(&self.content());
        let read = file.map(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
        let content: Content = read.and_then(|_| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        if content.boot == boot() { content.pending } else { Vec::new() }
    }

    /// Whole or not at all: what is written appears under the record's name at once.
    fn write(&self, pending: &[PendingUndo]) -> io::Result<()> {
        let bytes = serde_json::to_vec(&Content { boot: boot(), pending: pending.to_vec() })?;
        self.folder.remove(&self.next())?;
        self.folder.make_new(&self.next())?.write_all(&bytes)?;
        self.folder.rename(&self.next(), &self.content())
    }

    fn content(&self) -> String {
        format!("{}.json", self.name)
    }

    fn next(&self) -> String {
        format!("{}.json.next", self.name)
    }

    fn remove(self) {
        // What stays is harmless: the next guard finds nothing in it.
        for name in [self.next(), self.content(), self.name.clone() + LOCK] {
            let _ = self.folder.remove(&name);
        }
        let _ = fs::remove_dir(self.folder.path(""));
        drop(self.lock);
    }
}

fn boot() -> String {
    fs::read_to_string(BOOT).unwrap_or_default()
}

/// Pending undos of one guard. There is a file only while there are any.
#[derive(Default)]
pub(crate) struct Journal {
    pending: Vec<PendingUndo>,
    on_disk: Option<Locked>,
}

impl Journal {
    pub(crate) fn pending(&self) -> &[PendingUndo] {
        &self.pending
    }

    /// Puts it on record. What cannot be saved is not on record.
    pub(crate) fn put(&mut self, pending: PendingUndo) -> Result<(), ControlError> {
        if self.pending.contains(&pending) {
            return Ok(());
        }
        self.pending.push(pending);
        let saved = self.save();
        if saved.is_err() {
            self.pending.pop();
        }
        saved
    }

    /// Drops the entries for which `is_pending` is false.
    pub(crate) fn retain(
        &mut self,
        is_pending: impl FnMut(&PendingUndo) -> bool,
    ) -> Result<(), ControlError> {
        let before = self.pending.len();
        self.pending.retain(is_pending);
        if self.pending.len() == before { Ok(()) } else { self.save() }
    }

    fn save(&mut self) -> Result<(), ControlError> {
        if self.pending.is_empty() {
            if let Some(locked) = self.on_disk.take() {
                locked.remove();
            }
            return Ok(());
        }
        let failed = |error: io::Error| {
            ControlError::kernel(
                format!("put on record in {PARENT}/{FOLDER} what the guard is to take back"),
                error,
            )
        };
        if self.on_disk.is_none() {
            self.on_disk = Some(Locked::new().map_err(failed)?);
        }
        self.on_disk.as_ref().map_or(Ok(()), |locked| locked.write(&self.pending)).map_err(failed)
    }
}

/// Passes the pending undos of killed guards to `undo`. Those that it returns stay in the journal.
pub(crate) fn recover(mut undo: impl FnMut(Vec<PendingUndo>) -> Vec<PendingUndo>) {
    let open = || Folder::open(PARENT, FOLDER).ok().flatten();
    let names = open().and_then(|folder| folder.names().ok()).unwrap_or_default();
    for name in names.iter().filter_map(|name| name.strip_suffix(LOCK)) {
        let Some(folder) = open() else { continue };
        let Some(file) = folder.read(&format!("{name}{LOCK}")) else { continue };
        let Some(locked) = Locked::lock(folder, name.to_owned(), file) else { continue };
        let still = undo(locked.read());
        if still.is_empty() {
            locked.remove();
        } else {
            // If it cannot be written the old one stays, and what is paid is found to be.
            let _ = locked.write(&still);
        }
    }
}
