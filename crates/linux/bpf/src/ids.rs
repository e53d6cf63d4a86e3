//! The kernel's lists of BPF objects.
//!
//! libbpf-rs's iterators take whatever keeps them from an object for the end of the list; here that is an error, lest a
//! process that ran out of file descriptors takes a full kernel for an empty one.

use crate::error::ControlError;
use libbpf_rs::{ErrorKind, MapHandle};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// A registration's link, held open while this lives.
pub(crate) struct OpsLink {
    pub(crate) fd: OwnedFd,
    pub(crate) id: u32,
    /// Its table of callbacks; `None` once the kernel has taken it down.
    pub(crate) map_id: Option<u32>,
}

/// The maps for which `wanted` answers something.
pub(crate) fn maps<T>(mut wanted: impl FnMut(u32, MapHandle) -> Option<T>) -> Result<Vec<T>, ControlError> {
    let mut found = Vec::new();
    for id in ids(libbpf_sys::bpf_map_get_next_id).map_err(|e| ControlError::kernel("list BPF maps", e))? {
        match MapHandle::from_map_id(id) {
            Ok(map) => found.extend(wanted(id, map)),
            // Gone since it was listed.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(ControlError::kernel("read BPF maps", e)),
        }
    }
    Ok(found)
}

/// The links that register tables of callbacks.
pub(crate) fn ops_links() -> Result<Vec<OpsLink>, ControlError> {
    let failed = |e| ControlError::kernel("list BPF links", e);
    let mut found = Vec::new();
    let listed = match ids(libbpf_sys::bpf_link_get_next_id) {
        // A kernel without links.
        Err(e) if e.raw_os_error() == Some(nix::libc::EINVAL) => return Ok(found),
        listed => listed.map_err(failed)?,
    };
    for id in listed {
        if let Some(fd) = settled_link(id).map_err(failed)? {
            found.extend(ops_link(fd).map_err(failed)?);
        }
    }
    Ok(found)
}

/// Opens a link; `None` if it is gone since it was listed, or not there yet: one that somebody is just making has its
/// number before it holds anything, and the kernel answers EAGAIN.
fn settled_link(id: u32) -> io::Result<Option<OwnedFd>> {
    const MAX_POLLS: u32 = 20;
    const POLL_INTERVAL: Duration = Duration::from_millis(5);
    for _ in 0..MAX_POLLS {
        // SAFETY: takes no pointer.
        match owned(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) }) {
            Ok(fd) => return Ok(Some(fd)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => thread::sleep(POLL_INTERVAL),
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

/// The link pinned at `path`; `None` if something else lies there.
pub(crate) fn pinned_link(path: &Path) -> io::Result<Option<OpsLink>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a text that ends with a zero byte and outlives the call.
    let fd = owned(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })?;
    ops_link(fd)
}

/// Link behind an open file, from its `fdinfo`; `None` if it is no `struct_ops` link. The text tells the kinds of objects
/// apart, which the binary form does not.
fn ops_link(fd: OwnedFd) -> io::Result<Option<OpsLink>> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    let facts = facts(&text);
    Ok(facts.map(|(id, map_id)| OpsLink { fd, id, map_id }))
}

/// The numbers of the link and of its map.
fn facts(text: &str) -> Option<(u32, Option<u32>)> {
    let value =
        |key: &str| text.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()));
    let number = |key: &str| value(key)?.parse().ok();
    (value("link_type")? == "struct_ops").then_some(())?;
    Some((number("link_id")?, number("map_id").filter(|id| *id != 0)))
}

/// The processes, other than this one, that hold a link.
pub(crate) fn holders(link_id: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let holds = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
        let mut texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
        texts.any(|text| facts(&text).is_some_and(|(id, _)| id == link_id))
    };
    pids.filter(|pid| *pid != std::process::id()).filter(holds).collect()
}

fn ids(next: unsafe extern "C" fn(u32, *mut u32) -> i32) -> io::Result<Vec<u32>> {
    let (mut all, mut id) = (Vec::new(), 0);
    loop {
        let after = id;
        // SAFETY: the pointer is valid for the call.
        match unsafe { next(after, &raw mut id) } {
            0 => all.push(id),
            error if -error == nix::libc::ENOENT => return Ok(all),
            error => return Err(io::Error::from_raw_os_error(-error)),
        }
    }
}

/// libbpf answers a file descriptor or a negative error number.
fn owned(answer: i32) -> io::Result<OwnedFd> {
    if answer < 0 {
        return Err(io::Error::from_raw_os_error(-answer));
    }
    // SAFETY: a non-negative answer is a file descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(answer) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn struct_ops_link_facts_are_parsed() {
        let link = "pos:\t0\nflags:\t02000000\nlink_type:\tstruct_ops\nlink_id:\t7\nprog_tag:\t0000\nprog_id:\t0\nmap_id:\t41\n";
        assert_eq!(facts(link), Some((7, Some(41))));
        assert_eq!(facts(&link.replace("map_id:\t41\n", "")), Some((7, None)), "taken down");
        assert_eq!(facts(&link.replace("struct_ops", "xdp")), None);
        assert_eq!(facts("pos:\t0\nmap_type:\t2\nmap_id:\t41\n"), None);
    }
}
