//! Cleaning up behind processes that were killed, and forgetting ports that are gone.

use super::{Found, settle};
use crate::serve::attachment::Attachment;
use crate::serve::device::{Device, is_shared_device};
use crate::serve::error::PortError;
use crate::serve::record::{self, Record};
use crate::serve::shared_rate::{self, Member};
use crate::serve::{state, swap};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use vmcc_bpf::ControlError;

/// Forgets what was on record about ports that are gone; their names. They took their queues and programs with them.
///
/// # Errors
/// The ports of this network namespace cannot be listed.
pub fn forget_gone() -> Result<Vec<String>, PortError> {
    shared_rate::remove_unused()?;
    swap::remove_left(None).map_err(|e| ControlError::kernel("remove devices of ports that are gone", e))?;
    let ports = nix::net::if_::if_nameindex().map_err(|e| ControlError::kernel("list ports", e))?;
    let indices: HashSet<u32> = ports.iter().map(|port| port.index()).collect();
    let namespaces = namespaces();
    record::forget(|index| indices.contains(&index), |inode| namespaces.contains(&inode))
}

/// Cleans up behind processes that were killed while they held a port of this network namespace, or attached or
/// changed it; the ports' names. What [`Port::keep`](crate::serve::Port::keep) left whole stays.
///
/// # Errors
/// The kernel refuses.
pub fn detach_orphans() -> Result<Vec<String>, PortError> {
    let ports = nix::net::if_::if_nameindex().map_err(|e| ControlError::kernel("list ports", e))?;
    let ours = state::ours()?;
    let mut detached = Vec::new();
    for port in &ports {
        let known = ours.contains(&port.index());
        let name = port.name().to_string_lossy();
        // A shared device goes with its last port.
        let known = known && !is_shared_device(&name);
        if known && end_if_orphan(&name)? {
            detached.push(name.into_owned());
        }
    }
    Ok(detached)
}

fn end_if_orphan(port: &str) -> Result<bool, PortError> {
    let looked = Device::open(port).and_then(|dev| Record::lock(port, dev.index).map(|r| (dev, r)));
    let (mut dev, record) = match looked {
        // Held by a process that lives, or gone in the meantime.
        Err(PortError::Held { .. } | PortError::NoSuchPort { .. }) => return Ok(false),
        looked => looked?,
    };
    match settle(&mut dev, &record)? {
        Found::Whole(content, _) | Found::Member(content) if content.kept => Ok(false),
        Found::Member(content) => match Member::open_as(dev, &content, Some(record)) {
            Some(member) => member.end().map(|()| true),
            None => Ok(false),
        },
        Found::Whole(content, program) => {
            Attachment::open_as(dev, *content, *program, Some(record))?.end().map(|()| true)
        }
        Found::Nothing => {
            record.remove();
            Ok(false)
        }
        Found::Undone => {
            record.remove();
            Ok(true)
        }
    }
}

/// The inodes of the network namespaces that a process is in, or that are mounted somewhere (`ip netns`, containers).
fn namespaces() -> HashSet<u64> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let in_use = processes.filter_map(|entry| fs::metadata(entry.path().join("ns/net")).ok());
    let mut inodes: HashSet<u64> = in_use.map(|file| file.ino()).collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    inodes.extend(mounts.lines().filter_map(mounted));
    inodes
}

/// The namespace that a line of `mountinfo` mounts: its fourth field is `net:[INODE]`.
fn mounted(line: &str) -> Option<u64> {
    let root = line.split(' ').nth(3)?;
    root.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_found_in_the_mount_table() {
        let line = "545 25 0:4 net:[4026532281] /run/netns/x rw shared:5 - nsfs nsfs rw";
        assert_eq!(mounted(line), Some(4_026_532_281));
        for other in ["", "545 25 0:4 / /proc rw", "1 2 3 mnt:[4026531840]", "1 2 3 net:[x]"] {
            assert_eq!(mounted(other), None, "{other}");
        }
    }

    #[test]
    fn this_namespace_is_alive() {
        let own = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        assert!(namespaces().contains(&own));
    }
}
