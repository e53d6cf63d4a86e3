//! Record of one connection, transfer or request.

use serde::{Deserialize, Serialize};

/// One connection or transfer. Requests of one connection have a record each beside the connection's, under its number.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Number of the flow in its run, from 0.
    pub flow: u64,
    /// Label of the traffic entry it belongs to.
    pub traffic: String,
    /// Name of the sending node.
    pub from: String,
    /// Name of the receiving node.
    pub to: String,
    /// Congestion control algorithm.
    pub cc: String,
    /// Subflows that were established.
    pub subflows: u32,
    /// Start, microseconds from the start of the run.
    pub start_us: u64,
    /// End, microseconds from the start of the run; `None` when still open at the end.
    pub end_us: Option<u64>,
    /// Bytes to transfer; `None` for unlimited flows.
    pub size_bytes: Option<u64>,
    /// Bytes delivered in order to the receiving application.
    pub delivered_bytes: u64,
    /// True if a sized transfer completed.
    pub completed: bool,
    /// True if the figures of the summary count it: not competing, and if it ends by itself, begun after the warm-up.
    #[serde(default)]
    pub measured: bool,
    /// Delivered bytes times 8 per second: of a sized transfer over its life, else within the measured window.
    pub goodput_bps: Option<f64>,
    /// Completion time of a completed sized transfer, in microseconds.
    pub fct_us: Option<f64>,
    /// Mean round-trip time, in microseconds.
    pub rtt_mean_us: Option<f64>,
    /// Median round-trip time, in microseconds.
    pub rtt_p50_us: Option<f64>,
    /// 99th percentile of the round-trip time, in microseconds.
    pub rtt_p99_us: Option<f64>,
    /// Segments sent again.
    pub retransmits: Option<u64>,
    /// Retransmission timeouts.
    pub timeouts: Option<u64>,
    /// Packets that arrived with congestion experienced.
    pub ce_marks: Option<u64>,
}
