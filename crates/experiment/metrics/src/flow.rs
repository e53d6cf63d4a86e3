//! Record of one connection, transfer or request.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowKind {
    /// A connection that sends without end, or carries requests.
    #[default]
    Connection,
    /// A connection that transfers a given number of bytes.
    Transfer,
    /// A request on a connection, with its answer.
    Request,
}

impl FlowKind {
    /// Its name in `flows.parquet`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Transfer => "transfer",
            Self::Request => "request",
        }
    }
}

/// One connection or transfer. Requests of one connection have a record each beside the connection's, under its number.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Number of the flow in its run, from 0.
    pub flow: u64,
    /// Kind of the record.
    #[serde(default)]
    pub kind: FlowKind,
    /// Label of the traffic entry it belongs to.
    #[serde(with = "shared")]
    pub traffic: Arc<str>,
    /// Name of the sending node.
    #[serde(with = "shared")]
    pub src: Arc<str>,
    /// Name of the receiving node.
    #[serde(with = "shared")]
    pub dst: Arc<str>,
    /// Congestion control algorithm.
    #[serde(with = "shared")]
    pub cc: Arc<str>,
    /// Subflows that were established.
    pub subflows: u32,
    /// Names of the paths of those subflows, each once, separated by commas; `None` where paths have no names.
    #[serde(default)]
    pub paths: Option<String>,
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
    /// Time of the same transfer or request on the empty network, in microseconds.
    #[serde(default)]
    pub ideal_us: Option<f64>,
    /// Completion time over that.
    #[serde(default)]
    pub slowdown: Option<f64>,
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

/// Names that the records of a run share.
mod shared {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::sync::Arc;

    pub(super) fn serialize<S: Serializer>(name: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(name)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(deserializer).map(Arc::from)
    }
}
