//! The congestion control of a cgroup's connections.
//!
//! A program at the cgroup gives it to them (`kernel/probes/cgroup.bpf.c`), kept by a link that is pinned under a name that says for
//! which cgroup and what: it outlives its process, and its name encodes what is set. A cgroup is known by its
//! path; one that was removed and made again under the same path is another one, which its number tells.

use crate::bpffs;
use crate::clang::fingerprint;
use crate::error::ControlError;
use crate::objects::{self, Log};
use crate::shared::algorithm;
use crate::shared::cgroup::Settings;
use libbpf_rs::{Link, ObjectBuilder};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vmcc_cc::Algorithm;
use vmcc_system::error_chain;
use zerocopy::IntoBytes;

const MOUNTS: &str = "/proc/self/mountinfo";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// In the BPF file system, beside that of the algorithms.
const FOLDER: &str = "vmcc-cgroups";
/// Of the kernel's own, which need every mark echoed.
const NEED_ECN: [&str; 1] = ["dctcp"];

/// Mount point of cgroup v2, from the list of mounts.
///
/// # Errors
/// The mounts cannot be read, or none is a cgroup2.
pub fn root() -> Result<PathBuf, ControlError> {
    let failed = |cause: String| ControlError::kernel("find the cgroups", cause);
    let mounts = fs::read_to_string(MOUNTS).map_err(|e| failed(format!("{MOUNTS}: {e}")))?;
    mounted_at(&mounts).ok_or_else(|| {
        failed("no cgroup2 is mounted here; mount it with `mount -t cgroup2 none /sys/fs/cgroup`".to_owned())
    })
}

/// Tests for cgroups of the first version beside cgroup2 ("hybrid"): container engines then use those, and their
/// containers have no cgroup2 of their own.
pub fn is_hybrid() -> bool {
    fs::read_to_string(MOUNTS).is_ok_and(|mounts| has_kind(&mounts, "cgroup") && has_kind(&mounts, "cgroup2"))
}

fn has_kind(mounts: &str, wanted: &str) -> bool {
    let kind = |line: &str| Some(line.split_once(" - ")?.1.split(' ').next()? == wanted);
    mounts.lines().any(|line| kind(line) == Some(true))
}

fn mounted_at(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let is_it = kind.split(' ').next() == Some("cgroup2");
        // Bytes that would end the field are octal numbers in it; nobody mounts cgroups at such a place.
        is_it.then(|| mount.split(' ').nth(4).map(PathBuf::from)).flatten()
    })
}

/// Congestion control set for the connections of a cgroup below `root`. `None` if none is set, or if there is no such cgroup.
///
/// # Errors
/// The BPF file system cannot be read.
pub fn congestion_control(root: &Path, cgroup: &str) -> Result<Option<String>, ControlError> {
    let Some(id) = id(&root.join(cgroup)) else { return Ok(None) };
    let now = pins(cgroup)?.into_iter().find(|(_, pin)| pin.id == id);
    Ok(now.map(|(_, pin)| pin.congestion_control))
}

/// Gives connections of a cgroup, and of those inside it for which nothing else is said, a congestion control from their
/// beginning. Others keep what they have.
///
/// # Errors
/// There is no such cgroup or congestion control, or the kernel refuses.
pub fn set(root: &Path, cgroup: &str, congestion_control: &str) -> Result<(), ControlError> {
    let path = root.join(cgroup);
    let failed =
        |cause: String| ControlError::kernel(format!("set the congestion control of cgroup {cgroup}"), cause);
    let at = |e: io::Error| failed(format!("{}: {e}", path.display()));
    let folder = File::open(&path).map_err(at)?;
    let pin =
        Pin { id: folder.metadata().map_err(at)?.ino(), congestion_control: congestion_control.to_owned() };
    let available = fs::read_to_string(AVAILABLE).map_err(|e| failed(format!("{AVAILABLE}: {e}")))?;
    if !available.split_whitespace().any(|name| name == congestion_control) {
        return Err(failed(format!("the kernel has no {congestion_control}; load it, or its module, first")));
    }
    let old = pins(cgroup)?;
    let mut link = attach(&folder, congestion_control).map_err(failed)?;
    // Both are there for a moment; the later one is called last, and its word counts.
    bpffs::in_folder(FOLDER, true, |folder| {
        let new = folder.join(pin.name(cgroup));
        remove(&new)?;
        link.pin(&new).map_err(|e| io::Error::other(error_chain(&e)))?;
        let mut others = old.iter().map(|(name, _)| folder.join(name)).filter(|path| *path != new);
        others.try_for_each(|path| remove(&path))
    })
}

/// Gives them nothing any more. What was given stays with the connections that have it.
///
/// # Errors
/// The BPF file system cannot be changed.
pub fn unset(cgroup: &str) -> Result<(), ControlError> {
    let old = pins(cgroup)?;
    bpffs::in_folder(FOLDER, false, |folder| {
        old.iter().try_for_each(|(name, _)| remove(&folder.join(name)))?;
        remove_empty(folder)
    })
}

/// Tests whether the kernel allows it, in a cgroup created for the test only.
pub(crate) fn try_it() -> Result<(), ControlError> {
    let path = root()?.join(format!("vmcc-probe-{}", std::process::id()));
    let failed = |cause: String| ControlError::kernel("try a program at a cgroup", cause);
    fs::create_dir(&path).map_err(|e| failed(format!("{}: {e}", path.display())))?;
    let folder = File::open(&path).map_err(|e| failed(e.to_string()));
    let tried = folder.and_then(|folder| attach(&folder, "reno").map(drop).map_err(failed));
    let removed = fs::remove_dir(&path).map_err(|e| failed(format!("{}: {e}", path.display())));
    tried.and(removed)
}

/// The number of a cgroup, which no other gets; `None` if there is no such cgroup.
pub fn id(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(fs::Metadata::is_dir).map(|found| found.ino())
}

fn attach(folder: &File, congestion_control: &str) -> Result<Link, String> {
    let log = Log::start();
    load(folder, congestion_control).map_err(|e| format!("{}: {}", error_chain(&e), log.tail(4)))
}

fn load(folder: &File, congestion_control: &str) -> libbpf_rs::Result<Link> {
    let ours = Algorithm::all().find(|algorithm| algorithm.info().kernel_name == congestion_control);
    let needs_ecn =
        ours.map_or(NEED_ECN.contains(&congestion_control), |algorithm| algorithm.info().needs_ecn);
    let settings =
        Settings { congestion_control: algorithm::name(congestion_control), needs_ecn: needs_ecn.into() };
    let mut open = ObjectBuilder::default().name("vmcc_cgroup")?.open_memory(objects::CGROUP)?;
    for mut map in open.maps_mut().filter(|map| map.name().to_string_lossy().ends_with(".rodata")) {
        map.set_initial_value(settings.as_bytes())?;
    }
    let object = open.load()?;
    let program = object.progs_mut().next().expect("the object has one");
    program.attach_cgroup(folder.as_raw_fd())
}

/// Cgroup and congestion control of a pin.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pin {
    /// The cgroup's number.
    id: u64,
    congestion_control: String,
}

impl Pin {
    fn name(&self, cgroup: &str) -> String {
        format!("{}{}-{}", prefix(cgroup), self.id, self.congestion_control)
    }

    /// `None` if the name is none of this cgroup's.
    fn of(name: &str, cgroup: &str) -> Option<Self> {
        let (id, congestion_control) = name.strip_prefix(&prefix(cgroup))?.split_once('-')?;
        Some(Self { id: id.parse().ok()?, congestion_control: congestion_control.to_owned() })
    }
}

/// Of the names of a cgroup's pins. Its path may be longer than a name, and have what no name there may have.
fn prefix(cgroup: &str) -> String {
    format!("{:016x}-", hash(cgroup))
}

/// Of a path, the same in every build.
pub(crate) fn hash(cgroup: &str) -> u64 {
    fingerprint(cgroup.as_bytes())
}

/// Those of a cgroup, and of earlier ones of its path, with their names.
fn pins(cgroup: &str) -> Result<Vec<(String, Pin)>, ControlError> {
    bpffs::in_folder(FOLDER, false, |folder| {
        let entries = match fs::read_dir(folder) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names: Vec<String> = names.collect::<io::Result<_>>()?;
        Ok(names.into_iter().filter_map(|name| Pin::of(&name, cgroup).map(|pin| (name, pin))).collect())
    })
}

pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Removes a folder of pins that may have others still, or be gone.
pub(crate) fn remove_empty(folder: &Path) -> io::Result<()> {
    match fs::remove_dir(folder) {
        Err(e) if ![ErrorKind::NotFound, ErrorKind::DirectoryNotEmpty].contains(&e.kind()) => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup2_is_found_at_any_mount_point() {
        let first = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                     32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n";
        let second = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:5 - cgroup2 cgroup2 rw\n";
        let hybrid = [first, second].concat();
        assert!(has_kind(first, "cgroup") && !has_kind(first, "cgroup2") && !has_kind(second, "cgroup"));
        assert!(has_kind(&hybrid, "cgroup") && has_kind(&hybrid, "cgroup2"));
        assert_eq!(mounted_at(first), None);
        assert_eq!(mounted_at(&[first, second].concat()), Some(PathBuf::from("/sys/fs/cgroup/unified")));
    }

    #[test]
    fn pin_name_encodes_its_cgroup() {
        let pin = Pin { id: 5213, congestion_control: "a-b".to_owned() };
        let name = pin.name("system.slice/web.service");
        assert!(!name.contains(['.', '/']), "{name}");
        assert_eq!(Pin::of(&name, "system.slice/web.service"), Some(pin));
        assert_eq!(Pin::of(&name, "system.slice"), None);
        assert_eq!(Pin::of("mp_lia", "system.slice"), None);
    }
}
