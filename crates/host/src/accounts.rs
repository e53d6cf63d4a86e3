//! What each user or network namespace holds of what all share: `struct mp_account` of `kernel/shared.h`.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;

pub(crate) const ACCOUNTS_MAP: &str = "mp_accounts";
/// Bytes of `struct mp_account`, and where its fields are.
const ACCOUNT_BYTES: usize = 40;
const UNCOUPLED_AT: usize = 8;
const REQUESTS_LOST_AT: usize = 32;

/// What was refused because an account, or what all share, was full; since the algorithm was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Shortage {
    /// Paths that found no room in the table and run uncoupled, or did for a while.
    pub uncoupled: u64,
    /// Requests to close a path that were not passed on.
    pub requests_lost: u64,
}

fn field(account: &[u8; ACCOUNT_BYTES], at: usize) -> u64 {
    u64::from_ne_bytes(account[at..at + 8].try_into().expect("eight bytes"))
}

fn read(map: &MapHandle, key: &[u8]) -> Option<[u8; ACCOUNT_BYTES]> {
    map.lookup(key, MapFlags::ANY).ok()??.try_into().ok()
}

/// Over all accounts that the kernel still knows.
pub(crate) fn shortage(map: &MapHandle) -> Shortage {
    map.keys().filter_map(|key| read(map, &key)).fold(Shortage::default(), |sum, account| Shortage {
        uncoupled: sum.uncoupled + field(&account, UNCOUPLED_AT),
        requests_lost: sum.requests_lost + field(&account, REQUESTS_LOST_AT),
    })
}

/// Gives back the room of a connection. What the account takes or gives in this very moment is overwritten; it is
/// then off by that until its connections have ended.
pub(crate) fn give_back(map: &MapHandle, key: &[u8; 8]) {
    let Some(mut account) = read(map, key) else { return };
    let connections = field(&account, 0).saturating_sub(1);
    account[..8].copy_from_slice(&connections.to_ne_bytes());
    // An account that is gone meanwhile has nothing to give back.
    let _ = map.update(key, &account, MapFlags::EXIST);
}
