//! Garbage collection of the group table: entries of connections that are gone and were never released.

use crate::accounts;
use crate::error::ControlError;
use crate::group_table;
use crate::registry::{self, Registration};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::time::Duration;
use vmcc_system::diag::Diag;
use vmcc_system::netns;

/// A younger entry may belong to a connection that was not there yet when connections were listed.
pub const GC_MIN_AGE: Duration = Duration::from_secs(60);

/// Removes the entries, at least this old, of connections that no network namespace has any more. Answers how
/// many. One removed by mistake (of a namespace that only a descriptor holds) is made again at the next ACK.
///
/// # Errors
/// The kernel refuses.
pub fn collect_garbage(age: Duration) -> Result<usize, ControlError> {
    let mut alive = BTreeMap::new();
    let mut removed = 0;
    let ours = registry::registrations()?;
    for registration in ours.iter().filter(|r| r.config.groups_map_id != 0 && registry::same_build(r)) {
        removed += collect_in(registration, age, &mut alive)?;
    }
    Ok(removed)
}

/// The tokens of a namespace's connections, by its inode number.
type Alive = BTreeMap<u32, BTreeSet<u32>>;

fn collect_in(found: &Registration, age: Duration, alive: &mut Alive) -> Result<usize, ControlError> {
    let failed =
        |e| ControlError::kernel(format!("look through the table of {}", found.config.kernel_name()), e);
    let map = MapHandle::from_map_id(found.config.groups_map_id).map_err(failed)?;
    let accounts = MapHandle::from_map_id(found.config.accounts_map_id).map_err(failed)?;
    let made_before = netns::monotonic_ns().saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
    let mut removed = 0;
    for key in map.keys() {
        let value = map.lookup(&key, MapFlags::ANY).map_err(failed)?;
        let Some(held) = value.as_deref().and_then(group_table::entry) else { continue };
        let tokens = match alive.entry(held.netns) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => new.insert(tokens_of(held.netns)?),
        };
        if held.made_ns < made_before && !tokens.contains(&held.token) && map.delete(&key).is_ok() {
            accounts::give_back(&accounts, held.account);
            removed += 1;
        }
    }
    Ok(removed)
}

/// None for a namespace that nothing leads to any more.
fn tokens_of(inode: u32) -> Result<BTreeSet<u32>, ControlError> {
    let Some(file) = netns::find(inode) else { return Ok(BTreeSet::new()) };
    let list = || {
        let sockets = Diag::open().and_then(|mut diag| diag.subflows());
        sockets.map_err(|e| ControlError::kernel("list connections", e))
    };
    let sockets = netns::within(netns::open(&file)?.as_fd(), list)??;
    Ok(sockets.iter().filter_map(|socket| Some(socket.mptcp?.token_local)).collect())
}
