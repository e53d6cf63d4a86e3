//! Looking at ports without holding them, and forgetting those that are gone.

use super::error::PortError;
use super::half::{self, Found};
use super::record::{self, Record};
use super::served::Served;
use super::site::Site;
use super::{Held, budget, differs, hold, unless_gone};
use crate::error::ControlError;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use vmcc_port::PortStats;

/// Counters and state of a served port, also of one that another process holds.
///
/// # Errors
/// No such port, not served, or the kernel refuses.
pub fn peek(port: &str) -> Result<PortStats, PortError> {
    let looked = match Held::look(port).and_then(|held| held.stats()) {
        // Also a port whose budget is gone.
        Err(PortError::NotAttached { .. }) => differs::damaged(port),
        Err(PortError::NoSuchPort { port: missing }) if missing != port => differs::damaged(port),
        stats => stats,
    };
    unless_gone(port, looked)
}

/// Forgets what was on record about ports that are gone; their names. They took their queues and programs with them.
///
/// # Errors
/// The ports of this network namespace cannot be listed.
pub fn forget_gone() -> Result<Vec<String>, PortError> {
    budget::remove_unused()?;
    hold::remove_left(None).map_err(|e| ControlError::kernel("remove devices of ports that are gone", e))?;
    let ports = nix::net::if_::if_nameindex().map_err(|e| ControlError::kernel("list ports", e))?;
    let indices: HashSet<u32> = ports.iter().map(|port| port.index()).collect();
    let namespaces = namespaces();
    record::forget(|index| indices.contains(&index), |inode| namespaces.contains(&inode))
}

/// Cleans up behind processes that were killed while they held a port of this network namespace, or attached or
/// changed it; the ports' names. What [`Port::keep`](super::Port::keep) left whole stays.
///
/// # Errors
/// The kernel refuses.
pub fn detach_orphans() -> Result<Vec<String>, PortError> {
    let ports = nix::net::if_::if_nameindex().map_err(|e| ControlError::kernel("list ports", e))?;
    let ours = differs::ours()?;
    let mut detached = Vec::new();
    for port in &ports {
        let known = ours.contains(&port.index());
        let name = port.name().to_string_lossy();
        // A bucket goes with its last port.
        let known = known && !budget::is_bucket(&name);
        if known && Served::end_if_orphan(&name)? {
            detached.push(name.into_owned());
        }
    }
    Ok(detached)
}

impl Served {
    fn end_if_orphan(port: &str) -> Result<bool, PortError> {
        let looked = Site::open(port).and_then(|site| Record::lock(port, site.index).map(|r| (site, r)));
        let (mut site, record) = match looked {
            // Held by a process that lives, or gone in the meantime.
            Err(PortError::Held { .. } | PortError::NoSuchPort { .. }) => return Ok(false),
            looked => looked?,
        };
        match half::settle(&mut site, &record)? {
            Found::Whole(content, _) | Found::Member(content) if content.kept => Ok(false),
            Found::Member(content) => match budget::Member::open_as(site, &content, Some(record)) {
                Some(member) => member.end().map(|()| true),
                None => Ok(false),
            },
            Found::Whole(content, program) => {
                Self::open_as(site, *content, *program, Some(record))?.end().map(|()| true)
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
