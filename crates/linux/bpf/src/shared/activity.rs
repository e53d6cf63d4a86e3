//! `kernel/shared/activity_shared.h`: activity of a connection.

use super::shared_structs;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

shared_structs! {
    /// One per connection.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Record as "activity_record" {
        netns: u32,
        reserved: u32,
        fingerprint: u64,
    }
}
