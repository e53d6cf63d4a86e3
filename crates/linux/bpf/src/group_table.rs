//! Group table: the MPTCP connections of a loaded algorithm, as their paths see each other.

use crate::error::ControlError;
use crate::shared::algorithm::{GroupEntry, MP_GROUP_DEAD};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;
use std::collections::BTreeMap;
use vmcc_cc::{Slot, SlotFlags};
use zerocopy::{FromBytes, IntoBytes};

/// Entries read per call.
const BATCH: u32 = 1024;

/// One MPTCP connection of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// Token of the connection at this end.
    pub token: u32,
    /// Its paths.
    pub paths: Vec<PathView>,
}

/// State of a path that its siblings see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathView {
    /// Its slot, from 0.
    pub slot: usize,
    /// It enters its siblings' sums: established and not a backup.
    pub counts: bool,
    /// Its window is being reduced.
    pub recovering: bool,
    /// Congestion window in packets.
    pub cwnd_pkt: u32,
    /// Slow-start threshold in packets.
    pub ssthresh_pkt: u32,
    /// Smoothed round-trip time.
    pub srtt_us: u32,
}

/// Reads the whole table; connections that come and go meanwhile may be missed.
pub(crate) fn read(map: &MapHandle) -> Result<Vec<Connection>, ControlError> {
    let mut all = Vec::new();
    for key in map.keys() {
        let value = map.lookup(&key, MapFlags::ANY);
        let value = value.map_err(|e| ControlError::kernel("read the table of connections", e))?;
        all.extend(value.as_deref().and_then(entry).as_ref().and_then(connection));
    }
    all.sort_by_key(|connection| connection.token);
    Ok(all)
}

/// The network namespaces of the connections, by inode number, each with a number that is another one when any of their
/// paths published something: an ACK, a timeout.
pub(crate) fn activity(map: &MapHandle) -> BTreeMap<u32, u64> {
    let mut found = BTreeMap::new();
    // In few calls: there may be thousands.
    let all = map.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).into_iter().flatten();
    let lives = |entry: &GroupEntry| entry.members != MP_GROUP_DEAD;
    for entry in all.filter_map(|(_, value)| entry(&value)).filter(lives) {
        let sum: &mut u64 = found.entry(entry.netns).or_default();
        *sum = sum.wrapping_add(fingerprint(&entry));
    }
    found
}

fn fingerprint(entry: &GroupEntry) -> u64 {
    // Odd, so that no bit is lost: the fractional part of the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    // Slots that were never taken are zeros: most of the entry.
    let taken = entry.group.path.iter().take(entry.group.end as usize);
    let words = taken.flat_map(|slot| slot.as_bytes().chunks_exact(8)).filter_map(|word| word.first_chunk());
    let begun = entry.members ^ u64::from(entry.token);
    words.fold(begun, |sum, word| (sum.rotate_left(5) ^ u64::from_ne_bytes(*word)).wrapping_mul(FACTOR))
}

/// `None` if it is no entry of this build, or nobody's yet: what is in it comes before whose it is.
pub(crate) fn entry(bytes: &[u8]) -> Option<GroupEntry> {
    let (entry, _) = GroupEntry::read_from_prefix(bytes).ok()?;
    (entry.members != 0).then_some(entry)
}

/// `None` for an entry that is being deleted.
fn connection(entry: &GroupEntry) -> Option<Connection> {
    if entry.members == MP_GROUP_DEAD {
        return None;
    }
    let view = |(slot, path): (usize, &Slot)| PathView {
        slot,
        counts: path.flags.has(SlotFlags::ESTABLISHED),
        recovering: path.flags.has(SlotFlags::RECOVERY) || path.flags.has(SlotFlags::LOSS),
        cwnd_pkt: path.cwnd_pkt,
        ssthresh_pkt: path.ssthresh_pkt,
        srtt_us: path.srtt_8us / 8,
    };
    let slots = entry.group.path.iter().enumerate();
    let paths = slots.filter(|(slot, _)| entry.socket[*slot] != 0).map(view).collect();
    Some(Connection { token: entry.token, paths })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn members_are_shown_and_only_they() {
        let mut entry = GroupEntry { members: 0xabcd_0000_0000_0001, token: 9, ..GroupEntry::new_zeroed() };
        entry.socket[1] = 0xffff_8880_0000_1000;
        let flags = SlotFlags::ESTABLISHED | SlotFlags::RECOVERY;
        entry.group.path[1] = Slot { flags, cwnd_pkt: 10, srtt_8us: 800, ..Slot::default() };
        let path =
            PathView { slot: 1, counts: true, recovering: true, cwnd_pkt: 10, ssthresh_pkt: 0, srtt_us: 100 };
        assert_eq!(connection(&entry), Some(Connection { token: 9, paths: vec![path] }));
    }

    #[test]
    fn fingerprint_changes_with_whatever_a_path_publishes() {
        let mut idle = GroupEntry { members: 3, token: 9, ..GroupEntry::new_zeroed() };
        idle.group.end = 8;
        let publish = |change: &dyn Fn(&mut Slot)| {
            let mut entry = idle;
            change(&mut entry.group.path[7]);
            fingerprint(&entry)
        };
        let changed = [
            publish(&|slot| slot.srtt_8us = 1),
            publish(&|slot| slot.cwnd_pkt = 1),
            publish(&|slot| slot.flags = SlotFlags::LOSS),
            fingerprint(&GroupEntry { members: 7, ..idle }),
        ];
        assert!(!changed.contains(&fingerprint(&idle)) && publish(&|_| {}) == fingerprint(&idle));
        let different: std::collections::BTreeSet<u64> = changed.into();
        assert_eq!(different.len(), changed.len());
    }

    #[test]
    fn dying_new_and_foreign_entries_are_left_out() {
        assert_eq!(self::entry(GroupEntry::new_zeroed().as_bytes()), None);
        let dying = GroupEntry { members: MP_GROUP_DEAD, ..GroupEntry::new_zeroed() };
        assert_eq!(connection(&dying), None);
        assert_eq!(self::entry(dying.as_bytes()), Some(dying));
        assert_eq!(self::entry(&dying.as_bytes()[..100]), None);
    }
}
