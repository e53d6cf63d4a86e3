//! `kernel/shared/port_shared.h`: configuration, counters and state of a port's programs.

use super::{shared_constants, shared_structs};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Service queues of a port, at most.
pub const MAX_CLASSES: usize = 8;
/// Filters of a port's classes, at most.
pub const MAX_FILTERS: usize = 32;
/// Priorities that classes take, at most.
pub const MAX_PRIORITIES: usize = 32;
/// Values of a DSCP.
pub const DSCPS: usize = 64;
/// Not ECN-capable, ECN-capable.
pub const KINDS: usize = PORT_KINDS as usize;

shared_constants! {
    "port_source" {
        PORT_SOURCE_ROOT = 0,
        PORT_SOURCE_LEAF = 1,
        PORT_SOURCE_MAP = 2,
    }
    "port_trust" {
        PORT_TRUST_PRIORITY = 1,
        PORT_TRUST_TUNNEL = 2,
    }
    "port_rule" {
        PORT_RULE_NONE = 0,
        PORT_RULE_LENGTH = 1,
        PORT_RULE_SHARE = 2,
        PORT_RULE_SOJOURN = 3,
    }
    "port_kind" {
        PORT_NOT_ECT = 0,
        PORT_ECT = 1,
        PORT_KINDS = 2,
    }
    "port_macros" {
        PORT_NO_CLASS = 0xff,
        PORT_LEAF_FACTOR = 0x8647,
        PORT_LEAF_FIRST = 0x5010,
        PORT_LEAF_BUCKET = 5,
        PORT_BANDS_FIRST = 0x6010,
        PORT_SPARSE_FIRST = 0x7010,
        PORT_BAND_SPARSE = 1,
        PORT_BAND_BULK = 2,
        PORT_ROOT_MAJOR = 0xc0de,
        PORT_ROOT_FIRST = 0x10,
    }
}

shared_structs! {
    /// Set before the programs are loaded.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Settings as "port_settings" {
        source: u32,
        bare: u32,
        cpus: u32,
        hash_seed: u32,
    }

    /// Marking parameters of a class.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Class as "port_class" {
        threshold_bytes: u64,
        rtt_ns: u64,
        ceiling: u64,
        right: u64,
        quantum_ns: u64,
        overload_bytes: u64,
        buffer_bytes: u64,
        rule: u32,
        lambda_q16: u32,
        class_id: u32,
        sparse_id: u32,
        placed_id: u32,
        reserved: u32,
    }

    /// Filter that chooses a class by addresses and ports.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Filter as "port_filter" {
        from: [u8; 16],
        to: [u8; 16],
        from_port: u16,
        to_port: u16,
        protocol: u8,
        version: u8,
        has_from: u8,
        has_to: u8,
        class: u32,
    }

    /// Configuration of a port for its programs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Config as "port_config" {
        classes: [Class; MAX_CLASSES],
        filters: [Filter; MAX_FILTERS],
        priorities: [u32; MAX_PRIORITIES],
        priority_class: [u8; MAX_PRIORITIES],
        dscp_class: [[u8; DSCPS]; KINDS],
        rate: u64,
        slot_ns: u64,
        class_count: u32,
        filter_count: u32,
        priority_count: u32,
        cgroup_classes: u32,
        phantom_q16: u32,
        measure_rtt: u32,
        floor_bytes: u32,
        strict: u32,
        has_ceilings: u32,
        by_ceiling: [u8; MAX_CLASSES],
        trust: u32,
        rtt_least_ns: u64,
        rtt_most_ns: u64,
        drop_floor_bytes: u64,
        kind_class: [u8; KINDS],
        takes: [u8; KINDS],
        drop_not_ect: u32,
    }

    /// Counters of one class, on one processor.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Counters as "port_counters" {
        packets: u64,
        bytes: u64,
        marked: u64,
        not_ect: u64,
        max_backlog_bytes: u64,
        unclassified: u64,
        drops_not_ect: u64,
        drops_overload: u64,
        sparse: u64,
    }

    /// One class's queue as our own queueing discipline publishes it.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct Queue as "port_queue" {
        backlog_bytes: u64,
        backlog_packets: u64,
        round_q8: u64,
        drops_full: u64,
        drops_other: u64,
        sent_bytes: u64,
        sent_packets: u64,
        sojourn_ns: u64,
        sparse_bytes: u64,
        sparse_packets: u64,
    }

    /// State of the programs.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    struct State as "port_state" {
        round_q8: u64,
        round_at: u64,
        rtt_ns: [u64; MAX_CLASSES],
        rtt_samples: [u64; MAX_CLASSES],
        threshold: [u64; MAX_CLASSES],
    }
}

impl Counters {
    /// Both together.
    #[must_use]
    pub fn combined(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            marked: self.marked + other.marked,
            not_ect: self.not_ect + other.not_ect,
            max_backlog_bytes: self.max_backlog_bytes.max(other.max_backlog_bytes),
            unclassified: self.unclassified + other.unclassified,
            drops_not_ect: self.drops_not_ect + other.drops_not_ect,
            drops_overload: self.drops_overload + other.drops_overload,
            sparse: self.sparse + other.sparse,
        }
    }
}

impl State {
    /// Measured RTT of a class, in nanoseconds; `None` before the first measurement.
    pub fn measured_rtt_ns(&self, class: usize) -> Option<u64> {
        self.rtt_ns.get(class).copied().filter(|ns| *ns > 0)
    }

    /// Threshold that the last packet of a class was compared with; `None` before the first, and before an RTT is measured.
    pub fn threshold_bytes(&self, class: usize) -> Option<u64> {
        self.threshold.get(class).copied().filter(|bytes| *bytes > 0 && *bytes < u64::MAX)
    }
}
