//! `kernel/shared/live_shared.h`: how connections that run are changed.

use super::shared_structs;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

shared_structs! {
    /// Set before the program is loaded.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Settings as "live_settings" {
        from: [u8; 16],
        to: [u8; 16],
        spare_chosen: u32,
    }
}
