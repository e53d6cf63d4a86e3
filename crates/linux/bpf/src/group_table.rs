//! Group table: the MPTCP connections of a loaded algorithm, as their paths see each other.

use crate::error::ControlError;
use crate::shared::algorithm::{GroupEntry, MP_GROUP_DEAD};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;
use vmcc_cc::{Slot, SlotFlags};
use zerocopy::FromBytes;

/// One MPTCP connection of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// Token of the connection at this end.
    pub token: u32,
    /// Its paths.
    pub paths: Vec<SlotView>,
}

/// State of a path that its siblings see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlotView {
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
    let view = |(slot, path): (usize, &Slot)| SlotView {
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
    use zerocopy::{FromZeros, IntoBytes};

    #[test]
    fn only_members_are_listed() {
        let mut entry = GroupEntry { members: 0xabcd_0000_0000_0001, token: 9, ..GroupEntry::new_zeroed() };
        entry.socket[1] = 0xffff_8880_0000_1000;
        let flags = SlotFlags::ESTABLISHED | SlotFlags::RECOVERY;
        entry.group.path[1] = Slot { flags, cwnd_pkt: 10, srtt_8us: 800, ..Slot::default() };
        let path =
            SlotView { slot: 1, counts: true, recovering: true, cwnd_pkt: 10, ssthresh_pkt: 0, srtt_us: 100 };
        assert_eq!(connection(&entry), Some(Connection { token: 9, paths: vec![path] }));
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
