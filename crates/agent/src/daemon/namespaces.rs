//! Network namespaces: the agent's own, those with a name, those of processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmcc_host::{ControlError, netns};

/// Where `ip netns` names them.
pub(crate) const NAMED: &str = "/run/netns";
const OWN: &str = "/proc/thread-self/ns/net";
/// How long a name may be without a namespace until it is taken for a leftover.
const COMING: Duration = Duration::from_secs(5);

pub(crate) fn own() -> Result<OwnedFd, ControlError> {
    netns::open(Path::new(OWN))
}

/// Those with a name; one whose name is there before it is itself is left out.
pub(crate) fn named() -> Vec<(String, OwnedFd)> {
    let mut found: Vec<(String, OwnedFd)> = entries(NAMED)
        .filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), open(&path)?)))
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Whether somebody is about to give a namespace a name: the file is there, and new.
pub(crate) fn coming() -> bool {
    let new = |path: &Path| {
        let made = fs::metadata(path).and_then(|m| m.modified()).ok();
        made.and_then(|made| made.elapsed().ok()).is_some_and(|age| age < COMING)
    };
    entries(NAMED).any(|path| new(&path) && open(&path).is_none())
}

/// Those of these cookies that are still there.
pub(crate) fn find(wanted: &BTreeSet<u64>) -> BTreeMap<u64, OwnedFd> {
    let processes = entries("/proc").map(|process| process.join("ns/net"));
    let all = [PathBuf::from(OWN)].into_iter().chain(entries(NAMED)).chain(processes);
    let (mut seen, mut found) = (BTreeSet::new(), BTreeMap::new());
    for path in all {
        if found.len() == wanted.len() {
            break;
        }
        let inode = fs::metadata(&path).map(|m| m.ino());
        if !inode.is_ok_and(|inode| seen.insert(inode)) {
            continue;
        }
        let Some(fd) = open(&path) else { continue };
        if let Ok(Ok(cookie)) = netns::within(fd.as_fd(), netns::cookie)
            && wanted.contains(&cookie)
        {
            found.insert(cookie, fd);
        }
    }
    found
}

fn entries(folder: &str) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// `None` for what is no namespace (yet).
fn open(path: &Path) -> Option<OwnedFd> {
    let fd = netns::open(path).ok()?;
    let filesystem = nix::sys::statfs::fstatfs(&fd).ok()?.filesystem_type();
    (filesystem == nix::sys::statfs::NSFS_MAGIC).then_some(fd)
}
