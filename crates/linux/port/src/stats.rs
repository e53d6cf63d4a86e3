//! Statistics of a port.

use crate::config::Backend;
use serde::{Deserialize, Serialize};

/// Counters of one port since it was attached, and its state now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PortStats {
    /// The port; the VM, for a budget that its ports share.
    pub port: String,
    /// The ports that share the budget; none for a port that is served by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// Backend that schedules its queues.
    pub backend: Backend,
    /// Rate of the port, in bits per second, if it is capped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// The RTT that thresholds use, in nanoseconds: set, or measured once traffic has shown it. The least of its classes'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// RTT samples taken from passing traffic.
    pub rtt_samples: u64,
    /// Packets that could not be classified because they are not IP, or too deeply encapsulated. A port of one class does not look
    /// at IP packets before they meet a queue above its threshold.
    pub unclassified: u64,
    /// Its service queues.
    pub classes: Vec<ClassStats>,
    /// Differences between the kernel's state and the settings, with their consequences, as messages; empty if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// Counters, in sum, of classes whose places are gone; absent if nothing passed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<ClassStats>,
}

/// Counters of one service queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassStats {
    /// The class.
    pub name: String,
    /// Packets that arrived for it.
    pub packets: u64,
    /// Bytes that arrived for it, link-layer header included.
    pub bytes: u64,
    /// Packets of sparse flows, served before the class's others.
    #[serde(default)]
    pub sparse: u64,
    /// Packets set to CE here.
    pub marked: u64,
    /// Packets that would have been marked but do not support ECN.
    pub not_ect: u64,
    /// Packets without ECN dropped by rule, where others are marked.
    #[serde(default)]
    pub drops_not_ect: u64,
    /// Packets dropped because the queue was overloaded, with ECN or without.
    #[serde(default)]
    pub drops_overload: u64,
    /// Packets dropped because the queue was full.
    pub drops_full: u64,
    /// Packets dropped for another reason (no memory, device gone).
    pub drops_other: u64,
    /// Bytes that wait now.
    pub backlog_bytes: u64,
    /// Packets that wait now.
    pub backlog_packets: u64,
    /// The longest queue that a packet met, in bytes.
    pub max_backlog_bytes: u64,
    /// The queue length above which packets are marked now, in bytes; absent when the class does not mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold_bytes: Option<u64>,
    /// The RTT that its threshold uses, in nanoseconds; absent where none is needed, or none is measured yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
}
