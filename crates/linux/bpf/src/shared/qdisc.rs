//! `kernel/shared/qdisc_shared.h`: configuration of the queueing discipline in BPF.

use super::port::MAX_CLASSES;
use super::{shared_constants, shared_structs};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

shared_constants! {
    "qdisc_macros" {
        QDISC_SLOTS = 4096,
        QDISC_MAJOR = 1,
        QDISC_SPARSE = 16,
        QDISC_PLACED = 32,
        BUCKET_FRACTION = 20,
    }
}

shared_structs! {
    /// One service queue.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Class as "qdisc_class" {
        limit_bytes: u64,
        byte_ns_q20: u64,
        right_ns_q20: u64,
        limit_packets: u32,
        quantum_bytes: u32,
    }

    /// The whole port.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Config as "qdisc_config" {
        byte_ns_q20: u64,
        burst_ns: u64,
        classes: u32,
        strict: u32,
        mtu_bytes: u32,
        open: u32,
        queue: [Class; MAX_CLASSES],
    }
}
