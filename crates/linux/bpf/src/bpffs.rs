//! Our folder in the BPF file system of the host.
//!
//! A pin is what keeps a registration beyond its process. It must lie where the host sees it: under `ip netns exec` a
//! process has mounts of its own, and a pin there goes with the last process inside.

use crate::error::ControlError;
use crate::ids::{self, OpsLink};
use nix::fcntl::{Flock, FlockArg};
use nix::sched::{CloneFlags, setns, unshare};
use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use vmcc_system::netns;

/// Conventional mount point of the BPF file system.
const BPFFS: &str = "/sys/fs/bpf";
/// Our folder in it.
const FOLDER: &str = "vmcc";
/// Retry interval and retries for a busy folder: two minutes in total, since loading is slow on an emulated machine.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_LOCK_POLLS: u32 = 1200;

/// The mounts of the host: ours, or those of a process that has them.
struct Host {
    /// Its root directory and its mount namespace; `None` if they are ours.
    other: Option<(File, File)>,
}

impl Host {
    /// The mounts that process 1 has.
    fn find() -> Result<Self, ControlError> {
        let ours = Self { other: None };
        let (Ok(own), Ok(first)) = (mounts("self"), mounts("1")) else { return Ok(ours) };
        if !own.is_disjoint(&first) {
            // The first process of a container has mounts of its own as well, which may have the host's among them.
            let host = netns::is_first_of_the_host() || is_bpffs(&ours.path());
            return if host { Ok(ours) } else { Err(ControlError::OwnMounts) };
        }
        // Process 1 may have privileges that keep us from its files; one of those that started us serves as well.
        let mut candidates = vec!["1".to_owned()];
        candidates.extend(ancestors());
        let reachable = candidates.iter().filter(|pid| mounts(pid).is_ok_and(|m| !m.is_disjoint(&first)));
        let other = reachable.filter_map(|pid| open(pid).ok()).next();
        other.map(|other| Self { other: Some(other) }).ok_or(ControlError::OwnMounts)
    }

    fn path(&self) -> PathBuf {
        let root = match &self.other {
            None => PathBuf::from("/"),
            Some((root, _)) => PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd())),
        };
        root.join(BPFFS.trim_start_matches('/'))
    }

    /// Mounts the BPF file system where it belongs, unless it is there.
    fn mount(&self) -> io::Result<()> {
        if is_bpffs(&self.path()) {
            return Ok(());
        }
        match &self.other {
            None => mount(),
            // A thread of its own: no other code is to see these mounts.
            Some((_, namespace)) => thread::scope(|scope| {
                let inside = scope.spawn(|| {
                    unshare(CloneFlags::CLONE_FS)?;
                    setns(namespace.as_fd(), CloneFlags::CLONE_NEWNS)?;
                    mount()
                });
                inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }),
        }
    }
}

fn mount() -> io::Result<()> {
    let none: Option<&str> = None;
    Ok(nix::mount::mount(Some("bpf"), BPFFS, Some("bpf"), nix::mount::MsFlags::empty(), none)?)
}

fn is_bpffs(path: &Path) -> bool {
    nix::sys::statfs::statfs(path).is_ok_and(|s| s.filesystem_type() == nix::sys::statfs::BPF_FS_MAGIC)
}

/// The numbers of a process's mounts: two mount namespaces have none in common.
fn mounts(pid: &str) -> io::Result<HashSet<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
    Ok(text.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect())
}

/// The processes that started us, the nearest first.
fn ancestors() -> impl Iterator<Item = String> {
    let parent = |pid: &String| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        Some(line.trim().to_owned()).filter(|pid| pid != "0")
    };
    std::iter::successors(Some("self".to_owned()), parent).skip(1)
}

fn open(pid: &str) -> io::Result<(File, File)> {
    Ok((File::open(format!("/proc/{pid}/root"))?, File::open(format!("/proc/{pid}/ns/mnt"))?))
}

/// Entry of our folder.
pub(crate) struct Pin {
    pub(crate) path: PathBuf,
    /// The kernel name that it keeps.
    pub(crate) name: String,
    /// The registration that it keeps; `None` if it is none.
    pub(crate) link: Option<OpsLink>,
}

/// Exclusive lock on the folder of pins. The kernel releases it when the process ends.
pub struct PinLock {
    host: Host,
    /// `None` if there is no folder, and so nothing that is kept.
    lock: Option<Flock<File>>,
}

impl PinLock {
    /// Waits for the lock and makes the folder, to pin registrations.
    ///
    /// # Errors
    /// The host's BPF file system cannot be reached or mounted; another process does not come to an end.
    pub fn for_pinning() -> Result<Self, ControlError> {
        let host = Host::find()?;
        let failed = |source| ControlError::pin("algorithms", shown(&host.path().join(FOLDER)), source);
        host.mount().map_err(failed)?;
        let lock = lock(&host.path().join(FOLDER), true)?;
        Ok(Self { host, lock })
    }

    /// Waits for the lock, to remove pins, if there are any.
    pub(crate) fn for_removal() -> Result<Self, ControlError> {
        let host = Host::find()?;
        let lock = lock(&host.path().join(FOLDER), false)?;
        Ok(Self { host, lock })
    }

    pub(crate) fn pins(&self) -> Result<Vec<Pin>, ControlError> {
        pins_in(&self.host)
    }

    /// Removes the folder unless something is kept, or the folder is by now somebody else's.
    pub(crate) fn remove_folder(&self) -> Result<(), ControlError> {
        let folder = self.host.path().join(FOLDER);
        if !self.lock.as_ref().is_some_and(|lock| is_at(lock, &folder)) {
            return Ok(());
        }
        match fs::remove_dir(&folder) {
            Err(e) if e.kind() != io::ErrorKind::NotFound && e.kind() != io::ErrorKind::DirectoryNotEmpty => {
                Err(ControlError::kernel(format!("remove {}", shown(&folder).display()), e))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for PinLock {
    fn drop(&mut self) {
        // A folder made in vain; one that stays is harmless.
        let _ = self.remove_folder();
    }
}

/// Entries of our folder; `None` if the host's BPF file system is not visible from here.
pub(crate) fn pins() -> Result<Option<Vec<Pin>>, ControlError> {
    match Host::find() {
        Ok(host) => pins_in(&host).map(Some),
        Err(ControlError::OwnMounts) => Ok(None),
        Err(error) => Err(error),
    }
}

fn pins_in(host: &Host) -> Result<Vec<Pin>, ControlError> {
    let folder = host.path().join(FOLDER);
    let failed = |e| ControlError::kernel(format!("read {}", shown(&folder).display()), e);
    let entries = match fs::read_dir(&folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut pins = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match ids::pinned_link(&path) {
            Ok(link) => pins.push(Pin { path, name, link }),
            // Removed meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            // A folder, which nobody of ours makes here, keeps nothing.
            Err(_) if path.is_dir() => {}
            Err(e) => return Err(ControlError::kernel(format!("open {}", shown(&path).display()), e)),
        }
    }
    Ok(pins)
}

/// Calls `action` with the path to keep `kernel_name` at; its folder is there.
pub(crate) fn keep_at(
    kernel_name: &str,
    action: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), ControlError> {
    let host = Host::find()?;
    let folder = host.path().join(FOLDER);
    let kept = host.mount().and_then(|()| make(&folder)).and_then(|()| action(&folder.join(kernel_name)));
    kept.map_err(|source| ControlError::pin(kernel_name, shown(&folder.join(kernel_name)), source))
}

/// Calls `act` with another folder of ours, which may not be there unless it is to be made.
pub(crate) fn in_folder<T>(
    name: &str,
    make_it: bool,
    act: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<T, ControlError> {
    let host = Host::find()?;
    let folder = host.path().join(name);
    let made = if make_it { host.mount().and_then(|()| make(&folder)) } else { Ok(()) };
    made.and_then(|()| act(&folder))
        .map_err(|source| ControlError::pin("what a cgroup is given", shown(&folder), source))
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// Locks the folder; `None` if there is none and none is to be made.
fn lock(folder: &Path, make_it: bool) -> Result<Option<Flock<File>>, ControlError> {
    let failed = |e: io::Error| ControlError::kernel(format!("lock {}", shown(folder).display()), e);
    for _ in 0..MAX_LOCK_POLLS {
        if make_it {
            make(folder).map_err(|e| ControlError::pin("algorithms", shown(folder), e))?;
        }
        let file = match File::open(folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && make_it => continue,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => {
                // Removed by its last owner between opening and locking: that one is nobody's.
                if is_at(&file, folder) {
                    return Ok(Some(file));
                }
            }
            Err((_, nix::Error::EWOULDBLOCK)) => thread::sleep(LOCK_POLL_INTERVAL),
            Err((_, e)) => return Err(failed(e.into())),
        }
    }
    Err(ControlError::Busy)
}

/// True if this file is at the path now.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |now: fs::Metadata| file.metadata().is_ok_and(|ours| ours.ino() == now.ino());
    fs::metadata(path).is_ok_and(same)
}

/// A path as the host has it.
pub(crate) fn shown(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    text.find(BPFFS).map_or_else(|| path.to_owned(), |at| PathBuf::from(&text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bpffs_is_found_in_the_mounts_of_parent_processes() {
        let own = mounts("self").unwrap();
        let parent = ancestors().next().expect("somebody started the test");
        assert!(!own.is_disjoint(&mounts(&parent).unwrap()));
    }

    #[test]
    fn paths_are_shown_from_the_host_root() {
        assert_eq!(shown(Path::new("/proc/self/fd/5/sys/fs/bpf/vmcc")), Path::new("/sys/fs/bpf/vmcc"));
        assert_eq!(shown(Path::new("/elsewhere")), Path::new("/elsewhere"));
    }
}
