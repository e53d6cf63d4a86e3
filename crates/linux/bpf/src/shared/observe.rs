//! `kernel/shared/observe_shared.h`: whom to watch, and what was seen.

use super::shared_structs;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

shared_structs! {
    /// The namespace to watch, and the records that found no room.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Config as "observe_config" {
        netns: u32,
        lost: u32,
    }

    /// A socket's window at one moment.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct RawRecord as "observe_record" {
        socket: u64,
        entered: u32,
        state: u32,
        remote_port: u16,
        local_port: u16,
        cwnd_pkt: u32,
        prior_cwnd_pkt: u32,
        ssthresh_pkt: u32,
        lost_pkt: u32,
        reserved: u32,
        private: [u64; 3],
    }
}
