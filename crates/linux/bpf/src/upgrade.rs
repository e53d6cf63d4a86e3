//! TCP sockets of a cgroup's programs that become MPTCP sockets.
//!
//! One program for all cgroups (`kernel/probes/upgrade.bpf.c`), kept by a pinned link, asks a pinned table for the cgroup of the process that
//! makes a socket: both outlive their process. The table has the number of each cgroup, and beside it a hash of its path,
//! by which it is found after the cgroup is gone.

use crate::bpffs;
use crate::cgroup;
use crate::error::ControlError;
use crate::objects::{self, Log};
use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use std::io;
use std::path::Path;
use vmcc_system::error_chain;
use zerocopy::IntoBytes;

/// In the BPF file system, beside that of the algorithms.
const FOLDER: &str = "vmcc-upgrade";
const LINK: &str = "link";
const TABLE: &str = "cgroups";
/// In the program.
const UPGRADE_MAP: &str = "upgrade_cgroups";
/// Levels at which the program looks for a cgroup (`UPGRADE_MAX_DEPTH`).
const MAX_DEPTH: usize = 16;

/// True if TCP sockets that programs of a cgroup below `root` make become MPTCP sockets by its own rule.
///
/// # Errors
/// The BPF file system cannot be read.
pub fn is_set(root: &Path, cgroup: &str) -> Result<bool, ControlError> {
    let Some(id) = cgroup::id(&root.join(cgroup)) else { return Ok(false) };
    bpffs::in_folder(FOLDER, false, |folder| {
        let Some(table) = complete(folder)? else { return Ok(false) };
        Ok(table.lookup(id.as_bytes(), MapFlags::ANY).map_err(other)?.is_some())
    })
}

/// Makes MPTCP sockets of the TCP sockets that programs of a cgroup, and of those inside it, make from now on.
///
/// # Errors
/// There is no such cgroup, or the kernel refuses.
pub fn set(root: &Path, cgroup: &str) -> Result<(), ControlError> {
    let path = root.join(cgroup);
    let failed = |cause: String| {
        ControlError::kernel(format!("upgrade TCP sockets of cgroup {cgroup} to MPTCP"), cause)
    };
    let id =
        cgroup::id(&path).ok_or_else(|| failed(format!("{}: there is no such cgroup", path.display())))?;
    let depth = Path::new(cgroup).components().count();
    if depth > MAX_DEPTH {
        return Err(failed(format!(
            "it is {depth} cgroups deep, and the kernel's program looks at {MAX_DEPTH}; choose one above it"
        )));
    }
    let now = bpffs::in_folder(FOLDER, false, complete)?;
    let (id, hash) = (id.as_bytes(), cgroup::hash(cgroup));
    let put = |table: &MapHandle| table.update(id, hash.as_bytes(), MapFlags::ANY).map_err(other);
    if let Some(table) = now {
        return put(&table).map_err(|e| failed(e.to_string()));
    }
    let (mut object, mut link) =
        attach().map_err(|e| failed(format!("{e}; see `mptcp-upgrade` of `vmcc doctor`")))?;
    // The link last: without it the rest has no effect, and is recreated.
    let made = bpffs::in_folder(FOLDER, true, |folder| {
        cgroup::remove(&folder.join(TABLE))?;
        let mut table = object.maps_mut().find(|map| map.name() == UPGRADE_MAP).expect("the object has it");
        put(&MapHandle::try_from(&table).map_err(other)?)?;
        table.pin(folder.join(TABLE)).map_err(other)?;
        link.pin(folder.join(LINK)).map_err(other)
    });
    if made.is_err() {
        // What was pinned before it failed.
        unset(cgroup)?;
    }
    made
}

/// Leaves them TCP sockets again. Those that were made stay what they are.
///
/// # Errors
/// The BPF file system cannot be changed.
pub fn unset(cgroup: &str) -> Result<(), ControlError> {
    let hash = cgroup::hash(cgroup);
    bpffs::in_folder(FOLDER, false, |folder| {
        if let Some(table) = complete(folder)? {
            let is_its = |key: &Vec<u8>| {
                let value = table.lookup(key, MapFlags::ANY).ok().flatten();
                value.is_some_and(|value| value == hash.as_bytes())
            };
            let its: Vec<_> = table.keys().filter(is_its).collect();
            its.iter().try_for_each(|key| table.delete(key)).map_err(other)?;
            if table.keys().next().is_some() {
                return Ok(());
            }
        }
        cgroup::remove(&folder.join(LINK))?;
        cgroup::remove(&folder.join(TABLE))?;
        cgroup::remove_empty(folder)
    })
}

/// Tests whether the kernel allows it. No cgroup is chosen, so nothing changes.
///
/// # Errors
/// It does not.
pub fn check_support() -> Result<(), ControlError> {
    attach().map(drop).map_err(|cause| ControlError::kernel("try to upgrade TCP sockets to MPTCP", cause))
}

/// The table, where the program is there too.
fn complete(folder: &Path) -> io::Result<Option<MapHandle>> {
    if !(folder.join(LINK).exists() && folder.join(TABLE).exists()) {
        return Ok(None);
    }
    match MapHandle::from_pinned_path(folder.join(TABLE)) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        table => table.map(Some).map_err(other),
    }
}

fn attach() -> Result<(Object, Link), String> {
    let log = Log::start();
    load().map_err(|e| {
        let why = match e.kind() {
            ErrorKind::PermissionDenied => "this kernel lets no program change what its functions answer",
            ErrorKind::NotFound => {
                "this kernel asks nobody which protocol a socket gets (Linux 6.6 and newer do)"
            }
            _ => return format!("{}: {}", error_chain(&e), log.tail(4)),
        };
        format!("{why} ({})", error_chain(&e))
    })
}

fn load() -> libbpf_rs::Result<(Object, Link)> {
    let object = ObjectBuilder::default().name("vmcc_upgrade")?.open_memory(objects::UPGRADE)?.load()?;
    let link = object.progs_mut().next().expect("the object has one").attach()?;
    Ok((object, link))
}

fn other(error: libbpf_rs::Error) -> io::Error {
    io::Error::other(error_chain(&error))
}
