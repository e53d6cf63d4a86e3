//! Activity of an algorithm's connections, read by a BPF iterator over its group table.

use crate::error::ControlError;
use crate::objects::{self, Log};
use crate::shared::activity::Record;
use crate::states;
use libbpf_rs::{Link, MapHandle, ObjectBuilder};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use vmcc_system::error_chain;
use zerocopy::FromBytes;

/// Iterator over one group table.
pub(crate) struct Activity(Link);

impl Activity {
    /// # Errors
    /// Not permitted, or the kernel has no iterator over maps (`iter/bpf_map_elem`).
    pub(crate) fn open(groups: &MapHandle) -> Result<Self, ControlError> {
        let log = Log::start();
        let attached = || -> libbpf_rs::Result<Link> {
            let object =
                ObjectBuilder::default().name("vmcc_activity")?.open_memory(objects::ACTIVITY)?.load()?;
            object.progs_mut().next().expect("the object has one").attach_iter(groups.as_fd())
        };
        attached().map(Self).map_err(|e| failed(format!("{}: {}", error_chain(&e), log.tail(4))))
    }

    /// Network namespaces of the connections, by inode number, each with a number that changes when any of their paths publishes
    /// something: an ACK, a timeout.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn read(&self) -> Result<BTreeMap<u32, u64>, ControlError> {
        let mut file = states::iterate(self.0.as_fd()).map_err(failed)?;
        let mut bytes = Vec::new();
        // The kernel pauses after a million entries without a record.
        while let Err(error) = file.read_to_end(&mut bytes) {
            if error.kind() != ErrorKind::WouldBlock {
                return Err(failed(error));
            }
        }
        let mut found = BTreeMap::new();
        for record in
            bytes.chunks_exact(size_of::<Record>()).filter_map(|one| Record::read_from_bytes(one).ok())
        {
            let sum: &mut u64 = found.entry(record.netns).or_default();
            *sum = sum.wrapping_add(record.fingerprint);
        }
        Ok(found)
    }
}

fn failed(cause: impl std::fmt::Display) -> ControlError {
    ControlError::kernel("read the activity of connections", cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::algorithm::{GroupEntry, MP_GROUP_DEAD};
    use libbpf_rs::{MapCore, MapFlags, MapType};
    use vmcc_cc::{Slot, SlotFlags};
    use zerocopy::{FromZeros, IntoBytes};

    const NETNS: u32 = 4_026_531_840;

    /// A group table as the programs make it.
    fn table() -> MapHandle {
        let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as u64,
            ..Default::default()
        };
        let value_bytes = size_of::<GroupEntry>() as u32;
        MapHandle::create(MapType::Hash, Some("vmcc_groups"), 8, value_bytes, 64, &options).expect("root")
    }

    fn put(table: &MapHandle, key: u64, entry: &GroupEntry) {
        table.update(key.as_bytes(), entry.as_bytes(), MapFlags::ANY).expect("room");
    }

    fn idle() -> GroupEntry {
        let mut entry = GroupEntry { members: 3, token: 9, netns: NETNS, ..GroupEntry::new_zeroed() };
        entry.group.end = vmcc_cc::MAX_PATHS as u32;
        entry
    }

    #[test]
    fn root_fingerprint_changes_with_each_field_that_a_path_publishes() {
        let table = table();
        let activity = Activity::open(&table).unwrap_or_else(|e| panic!("{e}"));
        let fingerprint = |change: &dyn Fn(&mut GroupEntry)| {
            let mut entry = idle();
            change(&mut entry);
            put(&table, 1, &entry);
            activity.read().unwrap()[&NETNS]
        };
        let publish = |slot: usize, change: &dyn Fn(&mut Slot)| {
            fingerprint(&|entry| change(&mut entry.group.path[slot]))
        };
        let unchanged = fingerprint(&|_| {});
        let mut changed = vec![fingerprint(&|entry| entry.members = 7)];
        for slot in [0, 7, vmcc_cc::MAX_PATHS - 1] {
            changed.push(publish(slot, &|slot| slot.srtt_8us = 1));
            changed.push(publish(slot, &|slot| slot.cwnd_pkt = 1));
            changed.push(publish(slot, &|slot| slot.ssthresh_pkt = 1));
            changed.push(publish(slot, &|slot| slot.flags = SlotFlags::LOSS));
        }
        assert_eq!(fingerprint(&|_| {}), unchanged);
        let different: std::collections::BTreeSet<u64> = changed.iter().copied().chain([unchanged]).collect();
        assert_eq!(different.len(), changed.len() + 1);
    }

    #[test]
    fn root_connections_are_summed_by_namespace_without_new_and_dying_ones() {
        let table = table();
        let activity = Activity::open(&table).unwrap_or_else(|e| panic!("{e}"));
        let read = || activity.read().unwrap();
        assert!(read().is_empty());
        put(&table, 1, &idle());
        let one = read()[&NETNS];
        put(&table, 2, &GroupEntry { members: 0, ..idle() });
        put(&table, 3, &GroupEntry { members: MP_GROUP_DEAD, ..idle() });
        assert_eq!(read(), [(NETNS, one)].into());
        put(&table, 4, &idle());
        put(&table, 5, &GroupEntry { netns: NETNS + 1, ..idle() });
        assert_eq!(read(), [(NETNS, one.wrapping_add(one)), (NETNS + 1, one)].into());
    }
}
