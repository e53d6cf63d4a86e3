//! Figures of a connection and of its paths.

use crate::event::PathId;
use crate::paths::Route;
use vmcc_units::time::Span;

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// UDP datagrams that came.
    pub datagrams_in: u64,
    /// UDP datagrams that left.
    pub datagrams_out: u64,
    /// Bytes of them.
    pub bytes_in: u64,
    /// Bytes of them.
    pub bytes_out: u64,
    /// Packets that the peer saw marked with congestion.
    pub ecn_ce: u64,
    /// Bytes of streams that were queued again before they were lost: on a probe timeout, or from a silent or late path.
    pub reinjected_bytes: u64,
    /// Application datagrams that became too old before they left, that did not fit a packet any more, or that nobody read in time.
    pub datagrams_dropped: u64,
}

/// A path as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathReport {
    /// Its number.
    pub id: PathId,
    /// From where to where.
    pub route: Route,
    /// Open: it can carry data.
    pub open: bool,
    /// Silent while it should answer.
    pub failed: bool,
    /// Late while another path is on time: it carries probes only.
    pub late: bool,
    /// Backup: it carries data only where no other path can.
    pub backup: bool,
    /// Smoothed round trip; zero before the first sample.
    pub srtt: Span,
    /// The last sample of the round trip.
    pub latest_rtt: Span,
    /// Number of samples.
    pub rtt_samples: u64,
    /// Congestion window in packets; where that is one of all paths, the whole.
    pub cwnd_pkt: u32,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Bytes of a packet.
    pub mtu: u16,
    /// ECN marks pass.
    pub ecn: bool,
    /// Bytes that came, and that left, since its address last changed.
    pub bytes: (u64, u64),
    /// Bytes of streams that came, those that had come before too.
    pub payload_in: u64,
    /// Bytes of streams that the peer has acknowledged, those that it had before too.
    pub payload_out: u64,
    /// Packets that it has acknowledged.
    pub acked_packets: u64,
    /// Those of them that it saw marked with congestion.
    pub marked_packets: u64,
    /// Packets that were lost.
    pub lost_packets: u64,
    /// Times that nothing was acknowledged for a probe timeout.
    pub timeouts: u64,
    /// Times that losses or marks on it reduced its window.
    pub reductions: u64,
}
