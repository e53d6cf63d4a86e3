//! `kernel/states_shared.h`: what an algorithm keeps of one socket.

use super::shared_structs;
use vmcc_cc::Path;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

shared_structs! {
    /// One socket's, with the cookie by which socket diagnostics call it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct SocketState as "socket_state" {
        cookie: u64,
        algorithm: [u8; 16],
        path: Path,
    }
}
