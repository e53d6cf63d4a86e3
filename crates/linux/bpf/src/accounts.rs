//! Accounts: shared kernel resources in use per user or network namespace.

use crate::shared::algorithm::Account;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const ACCOUNTS_MAP: &str = "mp_accounts";

/// Refusals since the algorithm was loaded, because an account or a shared resource was full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Shortage {
    /// Paths that found no room in the table and run uncoupled, or did for a while.
    pub uncoupled: u64,
    /// The same, because their connection had [`vmcc_cc::MAX_PATHS`] others.
    pub beyond: u64,
    /// Requests to close a path that were not passed on.
    pub requests_lost: u64,
}

fn read(map: &MapHandle, key: &[u8]) -> Option<Account> {
    Account::read_from_bytes(&map.lookup(key, MapFlags::ANY).ok()??).ok()
}

/// Over all accounts that the kernel still knows.
pub(crate) fn shortage(map: &MapHandle) -> Shortage {
    map.keys().filter_map(|key| read(map, &key)).fold(Shortage::default(), |sum, account| Shortage {
        uncoupled: sum.uncoupled + account.uncoupled,
        beyond: sum.beyond + account.beyond,
        requests_lost: sum.requests_lost + account.requests_lost,
    })
}

/// Gives back the room of a connection. What the account takes or gives in this very moment is overwritten; it is
/// then off by that until its connections have ended.
pub(crate) fn give_back(map: &MapHandle, account: u64) {
    let key = account.as_bytes();
    let Some(found) = read(map, key) else { return };
    let less = Account { connections: found.connections.saturating_sub(1), ..found };
    // An account that is gone meanwhile has nothing to give back.
    let _ = map.update(key, less.as_bytes(), MapFlags::EXIST);
}
