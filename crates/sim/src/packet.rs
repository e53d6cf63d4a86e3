//! Packets: one cache line each. SACK ranges of an acknowledgment, and the payload of the few packets whose bytes matter, are
//! in parallel slabs.
//!
//! Sequence numbers count segments, not bytes: a subflow sends at most 2^32 - 1 segments in a run (6 TB of
//! 1448-byte segments), so they never wrap and compare as plain integers.
//!
//! A host fills the fields marked *host*, the engine those marked *engine*; the network changes only
//! [`Packet::CE`]. A host's fields mean nothing to the engine.

use crate::time::Time;

/// Index of a route's first link in the shared route array; see [`crate::net::NetSpec::route`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub u32);

pub use vmcc_network::LinkId;

/// One packet. Exactly one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Packet {
    /// *host*: when the sender put this (re)transmission on the wire; 0 on a pure ACK if unused.
    pub sent: Time,
    /// *host*: on an ACK, the `sent` of the segment that is echoed, for the RTT sample.
    pub echo: Time,
    /// *host*: subflow sequence number, in segments.
    pub seq: u32,
    /// *host*: data sequence number of the connection, in segments.
    pub data_seq: u32,
    /// *host*: cumulative subflow acknowledgment: next segment expected.
    pub ack: u32,
    /// *host*: cumulative data acknowledgment.
    pub data_ack: u32,
    /// *host*: receive window beyond `data_ack`, in segments.
    pub window: u32,
    /// *host*: endpoint that receives the packet: index into the receiving shard's table, below
    /// 2^30.
    pub to: u32,
    /// *host* sets the route; the *engine* advances it by one per hop.
    pub route: RouteId,
    /// *host*: bytes on the wire, headers included; 1 to 65535.
    pub size_bytes: u16,
    /// *host*: `Packet::*` bits; the network sets only [`Packet::CE`].
    pub flags: u16,
    /// *host*: anything (number of marked segments an ACK reports, address id, ...).
    pub aux: u16,
    /// *host*: traffic class; scheduled queues give classes beyond their last to their last.
    pub class: u8,
    /// *host*: anything.
    pub tag: u8,
    /// *host*: which kind of endpoint it is for.
    pub kind: u8,
}

const _: () = assert!(size_of::<Packet>() == 64);

impl Packet {
    /// Carries data.
    pub const DATA: u16 = 1 << 0;
    /// Carries an acknowledgment.
    pub const ACK: u16 = 1 << 1;
    /// Opens a subflow.
    pub const SYN: u16 = 1 << 2;
    /// ECN-echo: the receiver saw a mark.
    pub const ECE: u16 = 1 << 5;
    /// Congestion window reduced.
    pub const CWR: u16 = 1 << 6;
    /// ECN-capable: a queue may mark instead of dropping.
    pub const ECT: u16 = 1 << 7;
    /// Congestion experienced: set by a queue.
    pub const CE: u16 = 1 << 8;
    /// SACK ranges travel with the packet.
    pub const SACK: u16 = 1 << 9;
    /// SYN of an additional subflow (MP_JOIN).
    pub const JOIN: u16 = 1 << 10;
    /// Last segment of the connection's data.
    pub const DATA_FIN: u16 = 1 << 11;
    /// Backup flag (MP_PRIO).
    pub const BACKUP: u16 = 1 << 12;
    /// A retransmission.
    pub const RETRANSMIT: u16 = 1 << 13;
    /// A payload travels with the packet.
    pub const PAYLOAD: u16 = 1 << 14;
    /// Free for the host.
    pub const USER: u16 = 1 << 15;

    /// True if any of `bits` is set.
    #[inline]
    pub fn has(&self, bits: u16) -> bool {
        self.flags & bits != 0
    }
}

/// Segments `start..end` that arrived out of order; empty if `start == end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackRange {
    /// First segment of the range.
    pub start: u32,
    /// One past the last.
    pub end: u32,
}

/// The SACK option of one acknowledgment: up to four ranges, the most recent first (RFC 2018 section 4);
/// the first may be a duplicate report (RFC 2883). Valid only with [`Packet::SACK`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Sack {
    /// Ranges; unused ones are empty and come last.
    pub ranges: [SackRange; 4],
}

impl Sack {
    /// No ranges.
    pub const EMPTY: Sack = Sack { ranges: [SackRange { start: 0, end: 0 }; 4] };
}

const _: () = assert!(size_of::<Sack>() == 32);
