//! `kernel/shared/states_shared.h`: what an algorithm keeps of one socket. `sharing.h`: what its detector's evidence means.

use super::{shared_constants, shared_structs};
use vmcc_cc::Path;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

shared_constants! {
    "sharing_macros" {
        CC_SHARING_SHARED = 48,
        CC_SHARING_EXCLUDED = 16,
        CC_SHARING_TOGETHER = 48,
    }
    "state_refused" {
        STATE_NOT_REFUSED = 0,
        STATE_NO_ROOM = 1,
        STATE_BEYOND = 2,
    }
}

shared_structs! {
    /// One socket's, with the cookie by which socket diagnostics call it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct SocketState as "socket_state" {
        cookie: u64,
        algorithm: [u8; 16],
        path: Path,
        group_key: u64,
        slot: u32,
        refused: u32,
    }
}
