//! `kernel/port/marking_step.h`: one call of a function of the marking's arithmetic.

use super::{shared_constants, shared_structs};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

shared_constants! {
    "marking_function" {
        MARKING_PORT_THRESHOLD = 0,
        MARKING_ROUND_SMOOTH = 1,
        MARKING_ROUND_IDLE = 2,
        MARKING_QUEUE_THRESHOLD = 3,
        MARKING_SHARE = 4,
        MARKING_DRAIN = 5,
        MARKING_ROUND_LEFT = 6,
        MARKING_ELAPSED = 7,
        MARKING_FILL = 8,
        MARKING_REPRICED = 9,
        MARKING_RTT_BUCKET = 10,
        MARKING_RTT_QUANTILE = 11,
        MARKING_FLOW_RECENT = 12,
        MARKING_OVERLOAD = 13,
        MARKING_FLOOD = 14,
    }
}

/// Numbers for a function that takes many: a quantum and a ceiling per class, bytes per RTT.
pub(crate) type Table = [u64; 96];

shared_structs! {
    /// One call of a function.
    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Step as "marking_step" {
        function: u64,
        input: [u64; 4],
        table: Table,
        out: u64,
    }
}
