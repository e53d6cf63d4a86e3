//! `kernel/shared/hold_shared.h`: where a port's packets wait.

use super::shared_structs;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

shared_structs! {
    /// Set before the programs are loaded.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Settings as "hold_settings" {
        port: u32,
        device: u32,
        back: u32,
        budget: u32,
        address: [u8; 6],
        reserved: [u8; 2],
    }
}
