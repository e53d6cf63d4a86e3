//! The table of MPTCP connections of a loaded algorithm, as its paths see each other.

use crate::error::ControlError;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;
use vmcc_cc::{MAX_PATHS, SlotFlags};

/// Bytes of `struct mp_group`, and where its fields are.
const GROUP_BYTES: usize = 352;
const MEMBERS_AT: usize = 256;
const TOKEN_AT: usize = 264;
const NETNS_AT: usize = 268;
const ACCOUNT_AT: usize = 272;
const MADE_AT: usize = 280;
/// Bytes of `struct cc_slot`.
const SLOT_BYTES: usize = 32;

/// One MPTCP connection of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// Token of the connection at this end.
    pub token: u32,
    /// Its paths.
    pub paths: Vec<PathView>,
}

/// What siblings see of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathView {
    /// Its slot, 0 to 7.
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
        all.extend(value.as_deref().and_then(decode));
    }
    all.sort_by_key(|connection| connection.token);
    Ok(all)
}

/// Whose an entry is, whatever its paths are.
pub(crate) struct Held {
    pub(crate) token: u32,
    pub(crate) netns: u32,
    pub(crate) account: [u8; 8],
    pub(crate) made_ns: u64,
}

/// `None` if it is no `struct mp_group` of this build.
pub(crate) fn held(bytes: &[u8]) -> Option<Held> {
    let bytes: &[u8; GROUP_BYTES] = bytes.try_into().ok()?;
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    Some(Held {
        token: word(TOKEN_AT),
        netns: word(NETNS_AT),
        account: bytes[ACCOUNT_AT..MADE_AT].try_into().expect("eight bytes"),
        made_ns: u64::from_ne_bytes(bytes[MADE_AT..MADE_AT + 8].try_into().expect("eight bytes")),
    })
}

/// Reads `struct mp_group`; `None` for an entry that is being deleted.
fn decode(bytes: &[u8]) -> Option<Connection> {
    let bytes: &[u8; GROUP_BYTES] = bytes.try_into().ok()?;
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let members = u64::from_ne_bytes(bytes[MEMBERS_AT..TOKEN_AT].try_into().expect("eight bytes"));
    if members == u64::MAX {
        return None;
    }
    let view = |slot: usize| {
        let at = slot * SLOT_BYTES;
        let flags = SlotFlags(word(at));
        PathView {
            slot,
            counts: flags.has(SlotFlags::ESTABLISHED),
            recovering: flags.has(SlotFlags::RECOVERY) || flags.has(SlotFlags::LOSS),
            cwnd_pkt: word(at + 4),
            ssthresh_pkt: word(at + 8),
            srtt_us: word(at + 12) / 8,
        }
    };
    let paths = (0..MAX_PATHS).filter(|slot| members & (1 << slot) != 0).map(view).collect();
    Some(Connection { token: word(TOKEN_AT), paths })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_shown_and_only_they() {
        let mut bytes = [0_u8; GROUP_BYTES];
        bytes[SLOT_BYTES..SLOT_BYTES + 4].copy_from_slice(&3_u32.to_ne_bytes());
        bytes[SLOT_BYTES + 4..SLOT_BYTES + 8].copy_from_slice(&10_u32.to_ne_bytes());
        bytes[SLOT_BYTES + 12..SLOT_BYTES + 16].copy_from_slice(&800_u32.to_ne_bytes());
        bytes[MEMBERS_AT..TOKEN_AT].copy_from_slice(&0xabcd_0000_0000_0002_u64.to_ne_bytes());
        bytes[TOKEN_AT..TOKEN_AT + 4].copy_from_slice(&9_u32.to_ne_bytes());
        let path =
            PathView { slot: 1, counts: true, recovering: true, cwnd_pkt: 10, ssthresh_pkt: 0, srtt_us: 100 };
        assert_eq!(decode(&bytes), Some(Connection { token: 9, paths: vec![path] }));
    }

    #[test]
    fn dying_and_foreign_entries_are_left_out() {
        let mut bytes = [0_u8; GROUP_BYTES];
        bytes[MEMBERS_AT..TOKEN_AT].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(decode(&bytes), None);
        assert_eq!(decode(&bytes[..100]), None);
    }
}
