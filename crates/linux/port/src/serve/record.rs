//! Record of the changes to a port, on disk: the next process can continue or undo them, and two processes do not conflict.
//!
//! One file per port in `/run/vmcc/ports`, named by the network namespace and the port's number. The process that
//! holds the port locks the file (`flock`); the kernel releases the lock when the process dies, however it dies. The
//! content is also on the port itself ([`super::program::RecordMap`]), once there is a program that can carry it.

use super::device::Previous;
use super::error::PortError;
use super::statistics::Dropped;
use crate::{Backend, PortConfig};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vmcc_system::{Folder, netns};

const PARENT: &str = "/run/vmcc";
const DIRECTORY: &str = "ports";
const SUFFIX: &str = ".json";
/// Suffix of the next version of a record until it is complete.
const NEXT: &str = ".next";
/// Records are small; a larger file is not ours.
const MAX_BYTES: u64 = 1 << 20;

/// Content of a record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(crate) port: String,
    pub(crate) config: PortConfig,
    pub(crate) backend: Backend,
    pub(crate) queues: bool,
    pub(crate) previous: Option<Previous>,
    /// True if clsact is removed when the port is no longer served.
    pub(crate) made_clsact: bool,
    /// Left served on purpose; without it, its process still holds it or was killed.
    pub(crate) kept: bool,
    /// A change was under way: the queues may be neither as before nor as after it.
    #[serde(rename = "half")]
    pub(crate) changing: bool,
    /// The port shares the budget of its VM: its queues and program are elsewhere.
    #[serde(default)]
    pub(crate) member: Option<Member>,
    /// Packets dropped by removed queues.
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
    folder: Folder,
    name: String,
    file: Mutex<Flock<File>>,
}

impl Record {
    /// Locks the record of a port of the calling thread's network namespace.
    pub(crate) fn lock(port: &str, ifindex: u32) -> Result<Self, PortError> {
        let name = file_name(ifindex)?;
        let folder = Folder::make(PARENT, DIRECTORY).map_err(failed)?;
        let failed = |source| PortError::Record { path: folder.path(&name), source };
        loop {
            let file = folder.open_or_make(&name).map_err(failed)?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => {
                    // Deleted or replaced by its last owner between opening and locking: that one is nobody's.
                    if folder.is(&name, &file).map_err(failed)? {
                        return Ok(Self { folder, name, file: Mutex::new(file) });
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
        read(&self.file())
    }

    /// Whole or not at all: what is written appears under the record's name at once, and locked.
    pub(crate) fn write(&self, content: &Content) -> Result<(), PortError> {
        let failed = |source| PortError::Record { path: self.folder.path(&self.name), source };
        let next = self.next();
        let written = (|| {
            let bytes = serde_json::to_vec(content)?;
            self.folder.remove(&next)?;
            let file = self.folder.make_new(&next)?;
            let mut file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| e)?;
            file.write_all(&bytes)?;
            self.folder.rename(&next, &self.name)?;
            *self.file() = file;
            Ok(())
        })();
        if written.is_err() {
            // The first error tells more than one about undoing it.
            let _ = self.folder.remove(&next);
        }
        written.map_err(failed)
    }

    pub(crate) fn remove(self) {
        // A record that stays is harmless: no program of ours is on the port.
        let _ = self.folder.remove(&self.next());
        let _ = self.folder.remove(&self.name);
    }

    fn file(&self) -> MutexGuard<'_, Flock<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> String {
        format!("{}{NEXT}", self.name)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // One that was removed may have a successor of the same name.
        if self.file().metadata().is_ok_and(|file| file.len() == 0 && file.nlink() > 0) {
            let _ = self.folder.remove(&self.name);
        }
    }
}

/// The numbers of the ports of the calling thread's network namespace that have a record.
pub(crate) fn recorded() -> Result<Vec<u32>, PortError> {
    let here = NamespaceId::here()?;
    let found = entries()?.1.into_iter().map(|(_, port)| port);
    Ok(found.filter(|port| port.namespace == here).map(|port| port.index).collect())
}

/// Record of a port in the calling thread's network namespace, whether a process holds the port or not.
pub(crate) fn peek(ifindex: u32) -> Result<Option<Content>, PortError> {
    let name = file_name(ifindex)?;
    let folder = Folder::open(PARENT, DIRECTORY).map_err(failed)?;
    Ok(folder.and_then(|folder| folder.read(&name)).as_ref().and_then(read))
}

/// True if a process holds a port, or is about to serve it or to end that.
pub(crate) fn is_held(ifindex: u32) -> Result<bool, PortError> {
    let name = file_name(ifindex)?;
    let folder = Folder::open(PARENT, DIRECTORY).map_err(failed)?;
    let Some(file) = folder.and_then(|folder| folder.read(&name)) else { return Ok(false) };
    Ok(Flock::lock(file, FlockArg::LockSharedNonblock).is_err())
}

/// Removes the records of ports that are gone from the calling thread's network namespace, and of namespaces for
/// which `alive` says no; the ports' names.
pub(crate) fn forget(
    is_there: impl Fn(u32) -> bool,
    alive: impl Fn(u64) -> bool,
) -> Result<Vec<String>, PortError> {
    let here = NamespaceId::here()?;
    let is_alive = |port: &PortId| match port.namespace {
        namespace if namespace == here => is_there(port.index),
        // Of an earlier namespace with the inode of this one, or of a version that did not record cookies.
        NamespaceId { inode, cookie } => inode != here.inode && cookie.is_some() && alive(inode),
    };
    let (Some(folder), entries) = entries()? else { return Ok(Vec::new()) };
    let mut gone = Vec::new();
    for (name, port) in entries {
        if is_alive(&port) {
            continue;
        }
        let file = folder.read(&name).map(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock));
        // One that is held will be removed by its holder; what is no file of ours nobody holds.
        let content = match &file {
            Some(Err(_)) => continue,
            Some(Ok(file)) => read(file),
            None => None,
        };
        if folder.remove(&name).is_ok() {
            gone.extend(content.map(|content| content.port));
        }
    }
    gone.sort();
    Ok(gone)
}

/// A file of the folder: its name and its port.
type Entry = (String, PortId);

/// A port of any network namespace, as in a record's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PortId {
    namespace: NamespaceId,
    index: u32,
}

/// A network namespace. Its inode tells whether it still exists, and is reused; its cookie is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NamespaceId {
    inode: u64,
    /// `None` in names of earlier versions.
    cookie: Option<u64>,
}

impl NamespaceId {
    fn here() -> Result<Self, PortError> {
        let namespace = PathBuf::from("/proc/thread-self/ns/net");
        let inode = fs::metadata(&namespace).map(|file| file.ino());
        let found = inode.and_then(|inode| Ok(Self { inode, cookie: Some(netns::cookie()?) }));
        found.map_err(|source| PortError::Record { path: namespace, source })
    }
}

/// The records, and what was to become one.
fn entries() -> Result<(Option<Folder>, Vec<Entry>), PortError> {
    let Some(folder) = Folder::open(PARENT, DIRECTORY).map_err(failed)? else {
        return Ok((None, Vec::new()));
    };
    let names = folder.names().map_err(|e| failed((folder.path(""), e)))?;
    let of = |name: String| port_id(&name).map(|port| (name, port));
    let entries = names.into_iter().filter_map(of).collect();
    Ok((Some(folder), entries))
}

fn failed((path, source): (PathBuf, io::Error)) -> PortError {
    PortError::Record { path, source }
}

/// The port in a record's name.
fn port_id(file_name: &str) -> Option<PortId> {
    let name = file_name.strip_suffix(NEXT).unwrap_or(file_name);
    let (namespace, index) = name.strip_suffix(SUFFIX)?.rsplit_once('-')?;
    let (inode, cookie) = match namespace.split_once('-') {
        Some((inode, cookie)) => (inode, Some(cookie.parse().ok()?)),
        None => (namespace, None),
    };
    let namespace = NamespaceId { inode: inode.parse().ok()?, cookie };
    Some(PortId { namespace, index: index.parse().ok()? })
}

fn read(mut file: &File) -> Option<Content> {
    file.seek(io::SeekFrom::Start(0)).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
    // One that is longer ends in the middle.
    serde_json::from_slice(&bytes).ok()
}

fn file_name(ifindex: u32) -> Result<String, PortError> {
    let NamespaceId { inode, cookie } = NamespaceId::here()?;
    Ok(format!("{inode}-{}-{ifindex}{SUFFIX}", cookie.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_names_have_inode_cookie_and_index() {
        let (name, here) = (file_name(7).unwrap(), NamespaceId::here().unwrap());
        let port = Some(PortId { namespace: here, index: 7 });
        assert_eq!(port_id(&name), port);
        assert_eq!(port_id(&format!("{name}{NEXT}")), port);
        let earlier = NamespaceId { cookie: None, ..here };
        let name = format!("{}-7.json", here.inode);
        assert_eq!(port_id(&name), Some(PortId { namespace: earlier, index: 7 }));
        for other in ["", "1.json", "1-2", "1-x.json", "1-x-2.json", "1-2-3-4.json", "-1-2.json"] {
            assert_eq!(port_id(other), None, "{other}");
        }
    }
}
