//! Doing something in another network namespace.

use crate::KernelError;
use nix::sched::{CloneFlags, setns};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Opens a namespace by its file.
///
/// # Errors
/// It cannot be opened.
pub fn open(path: &Path) -> Result<OwnedFd, KernelError> {
    let file = File::open(path);
    file.map(OwnedFd::from)
        .map_err(|e| KernelError::new(format!("open network namespace {}", path.display()), e))
}

/// Runs `action` on a thread of its own inside the namespace, so that no other code is moved there.
///
/// # Errors
/// It cannot be entered.
pub fn within<T: Send>(netns: BorrowedFd<'_>, action: impl FnOnce() -> T + Send) -> Result<T, KernelError> {
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            setns(netns, CloneFlags::CLONE_NEWNET)
                .map_err(|e| KernelError::new("enter a network namespace", e))?;
            Ok(action())
        });
        match inside.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Does something in the network namespace of this inode number, for what `action` says.
///
/// # Errors
/// The namespace is not reachable.
pub fn within_inode<T: Send>(
    inode: u32,
    action: impl Fn() -> String,
    act: impl FnOnce() -> T + Send,
) -> Result<T, KernelError> {
    let file = find(inode)
        .ok_or_else(|| KernelError::new(action(), format!("network namespace {inode} is not reachable")))?;
    within(open(&file)?.as_fd(), act)
}

/// The number of the calling thread's namespace that no other gets until a reboot; inode numbers are used
/// again.
///
/// # Errors
/// The kernel does not say (before Linux 5.14).
pub fn cookie() -> std::io::Result<u64> {
    // From the kernel's user interface, asm-generic/socket.h.
    const SO_NETNS_COOKIE: nix::libc::c_int = 71;
    let socket = UnixDatagram::unbound()?;
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as nix::libc::socklen_t;
    let (fd, level) = (socket.as_raw_fd(), nix::libc::SOL_SOCKET);
    // SAFETY: `cookie` has room for the eight bytes that `length` says.
    let done = unsafe {
        nix::libc::getsockopt(fd, level, SO_NETNS_COOKIE, (&raw mut cookie).cast(), &raw mut length)
    };
    if done == 0 { Ok(cookie) } else { Err(std::io::Error::last_os_error()) }
}

const OWN: &str = "/proc/thread-self/ns/net";

/// The inode number of a namespace's file, by which the kernel names it.
pub fn inode(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().and_then(|m| u32::try_from(m.ino()).ok())
}

/// That of the calling thread's network namespace.
pub fn own() -> Option<u32> {
    inode(Path::new(OWN))
}

/// True if process 1, as seen from here, is that of the host and not of a nested PID namespace.
pub fn is_first_of_the_host() -> bool {
    // PID_NS_INIT_INO in linux/nsfs.h.
    const INITIAL: u64 = 0xEFFF_FFFC;
    fs::metadata("/proc/self/ns/pid").map_or(true, |namespace| namespace.ino() == INITIAL)
}

/// The inode number of the initial namespace: process 1 of the host is in it. `None` where that process cannot be
/// seen. (`init_net` itself would have to be searched for in `/proc/kallsyms`, megabytes of text per program.)
pub fn initial() -> Option<u32> {
    if !is_first_of_the_host() {
        return None;
    }
    inode(Path::new("/proc/1/ns/net"))
}

/// Default congestion control of the calling thread's namespace; `None` if it cannot be read.
pub fn default_congestion_control() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").ok()?;
    Some(text.trim().to_owned())
}

/// Time for which a namespace that was found nowhere is not searched for again.
const MISSING_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two scans for namespaces that no scan has found: as many as are missing share one.
const SCAN_INTERVAL: Duration = Duration::from_millis(400);

/// Files of namespaces by inode number, as the last scan found them.
#[derive(Default)]
struct Files {
    known: HashMap<u32, PathBuf>,
    /// Those that a scan did not find, and when.
    missing: HashMap<u32, Instant>,
    /// Those that were wanted since the last scan.
    wanted: HashSet<u32>,
    scanned: Option<Instant>,
}

/// A file through which namespace `wanted` can be entered: the own one, a named one, or that of a process in it. All are
/// scanned only when one is wanted that is not where the last scan found it, so that many cost no more than one.
pub fn find(wanted: u32) -> Option<PathBuf> {
    static FILES: Mutex<Option<Files>> = Mutex::new(None);
    if own() == Some(wanted) {
        return Some(PathBuf::from(OWN));
    }
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    files.get_or_insert_default().find(wanted, Instant::now(), scan)
}

impl Files {
    fn find(
        &mut self,
        wanted: u32,
        now: Instant,
        scan: impl FnOnce() -> HashMap<u32, PathBuf>,
    ) -> Option<PathBuf> {
        if let Some(path) = self.known.get(&wanted).filter(|path| inode(path) == Some(wanted)) {
            return Some(path.clone());
        }
        if self.missing.get(&wanted).is_some_and(|since| now - *since < MISSING_TIMEOUT) {
            return None;
        }
        self.wanted.insert(wanted);
        // One that was found before may only have lost the process that it was found by.
        let was_known = self.known.contains_key(&wanted);
        if !was_known && self.scanned.is_some_and(|then| now - then < SCAN_INTERVAL) {
            return None;
        }
        (self.known, self.scanned) = (scan(), Some(now));
        self.missing.retain(|_, since| now - *since < MISSING_TIMEOUT);
        let known = &self.known;
        let missing = self.wanted.drain().filter(|one| !known.contains_key(one));
        self.missing.extend(missing.map(|one| (one, now)));
        self.known.get(&wanted).cloned()
    }
}

/// Files of all namespaces with a name or a process, by inode number. Names first: they outlast processes.
pub fn scan() -> HashMap<u32, PathBuf> {
    let entries = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let all = entries("/run/netns").chain(entries("/proc").map(|process| process.join("ns/net")));
    let mut found = HashMap::new();
    for path in all {
        if let Some(inode) = inode(&path) {
            found.entry(inode).or_insert(path);
        }
    }
    found
}

/// The clock of `bpf_ktime_get_ns`.
pub fn monotonic_ns() -> u64 {
    let mut now = nix::libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the answer.
    unsafe { nix::libc::clock_gettime(nix::libc::CLOCK_MONOTONIC, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_namespace_is_found() {
        let own = own().unwrap();
        assert!(find(own).is_some());
        assert_eq!(find(1), None);
    }

    #[test]
    fn one_scan_finds_any_number_of_namespaces() {
        let folder = tempfile::tempdir().unwrap();
        let path = |n: u32| folder.path().join(n.to_string());
        let all: Vec<PathBuf> = (0..100).map(path).collect();
        all.iter().for_each(|path| drop(File::create(path).unwrap()));
        let number = |path: &PathBuf| inode(path).unwrap();
        let scans = std::cell::Cell::new(0);
        let scan = || {
            scans.set(scans.get() + 1);
            all.iter().filter(|path| path.exists()).map(|path| (number(path), path.clone())).collect()
        };
        let mut files = Files::default();
        let began = Instant::now();
        for _ in 0..3 {
            all.iter()
                .for_each(|path| assert_eq!(files.find(number(path), began, scan).as_ref(), Some(path)));
        }
        assert_eq!(scans.get(), 1);
        let gone: Vec<u32> = all[..50].iter().map(number).collect();
        all[..50].iter().for_each(|path| fs::remove_file(path).unwrap());
        for turn in 0..20 {
            let now = began + SCAN_INTERVAL * turn;
            assert!(gone.iter().all(|one| files.find(*one, now, scan).is_none()), "turn {turn}");
        }
        // Of all; of the first that is gone and of those wanted meanwhile; of these again after they timed out, in three turns.
        assert!((3..=6).contains(&scans.get()), "50 that are missing for 20 turns: {} scans", scans.get());
    }
}
