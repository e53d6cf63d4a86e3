//! Doing something in another network namespace.

use crate::error::ControlError;
use nix::sched::{CloneFlags, setns};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::thread;

/// Opens a namespace by its file.
///
/// # Errors
/// It cannot be opened.
pub fn open(path: &Path) -> Result<OwnedFd, ControlError> {
    let file = File::open(path);
    file.map(OwnedFd::from)
        .map_err(|e| ControlError::kernel(format!("open network namespace {}", path.display()), e))
}

/// Runs `action` on a thread of its own inside the namespace, so that no other code is moved there.
///
/// # Errors
/// It cannot be entered.
pub fn within<T: Send>(netns: BorrowedFd<'_>, action: impl FnOnce() -> T + Send) -> Result<T, ControlError> {
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            setns(netns, CloneFlags::CLONE_NEWNET)
                .map_err(|e| ControlError::kernel("enter a network namespace", e))?;
            Ok(action())
        });
        match inside.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The number of the calling thread's namespace that no other gets until the machine starts anew; inode numbers are used
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
pub(crate) fn inode(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().and_then(|m| u32::try_from(m.ino()).ok())
}

/// That of the calling thread's network namespace.
pub fn own() -> Option<u32> {
    inode(Path::new(OWN))
}

/// The inode number of the initial namespace: process 1 of the host is in it. `None` where that process cannot be
/// seen. (`init_net` itself would have to be searched for in `/proc/kallsyms`, megabytes of text per program.)
pub(crate) fn initial() -> Option<u32> {
    if !crate::bpffs::is_first_of_the_host() {
        return None;
    }
    inode(Path::new("/proc/1/ns/net"))
}

/// A file through which namespace `wanted` can be entered: the own one, a named one, or that of a process in it.
pub(crate) fn find(wanted: u32) -> Option<PathBuf> {
    let is_it = |path: &PathBuf| inode(path) == Some(wanted);
    let entries = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let own = Some(PathBuf::from(OWN)).filter(is_it);
    own.or_else(|| entries("/run/netns").find(is_it))
        .or_else(|| entries("/proc").map(|p| p.join("ns/net")).find(is_it))
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
    fn the_own_namespace_is_found() {
        let own = own().unwrap();
        assert!(find(own).is_some());
        assert_eq!(find(1), None);
    }
}
