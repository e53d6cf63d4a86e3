//! What vmcc did to a port, on disk: the next process can go on with it or undo it, and two do not fight over it.
//!
//! One file per port in `/run/vmcc/ports`, named by the network namespace's inode and the port's number. Whoever
//! holds the port locks the file (`flock`): the kernel lets go of the lock when the process dies, however it dies.

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
    /// The process that wrote it.
    pub(crate) pid: u32,
}

/// A locked record. Dropping it unlocks; [`Record::remove`] deletes.
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

    pub(crate) fn remove(self) {
        // A record that stays is harmless: no program of ours is on the port.
        let _ = fs::remove_file(&self.path);
    }
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
    let namespace = PathBuf::from("/proc/thread-self/ns/net");
    let inode =
        fs::metadata(&namespace).map_err(|source| PortError::Record { path: namespace, source })?.ino();
    Ok(PathBuf::from(DIRECTORY).join(format!("{inode}-{ifindex}.json")))
}
