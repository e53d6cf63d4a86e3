//! `kernel/shared/cgroup_shared.h`: what the connections of a cgroup are given.

use super::shared_structs;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

shared_structs! {
    /// Set before the program is loaded.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Settings as "cgroup_settings" {
        congestion_control: [u8; 16],
        needs_ecn: u32,
    }
}
