//! Settings of the hosts' transport. Defaults are Linux's.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmcc_cc::ParamValue;
use vmcc_multipath::{AckPath, Coupling, Scheduler};
use vmcc_units::{Bytes, Nanos, Packets};

use super::one_or_many::OneOrMany;

/// Which transport a connection uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Multipath TCP (RFC 8684).
    Mptcp,
    /// Single-path TCP.
    Tcp,
    /// Multipath QUIC (draft-ietf-quic-multipath-21) of the user-space transport; of traffic that has connections, `bulk`, `sized`,
    /// `poisson` and `incast` (simulator only).
    Quic,
    /// Sessions striped over plain TCP connections, one per path, with all signalling in the payload (PLMT; `crates/tcp`); of traffic
    /// that has connections, `bulk`, `sized`, `poisson` and `incast` (simulator only).
    Plmt,
}

/// The value of an algorithm's parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number, or one of the parameter's words")]
pub enum Param {
    /// In the parameter's unit.
    Number(f64),
    /// A word of a choice.
    Word(String),
}

impl<'a> From<&'a Param> for ParamValue<'a> {
    fn from(param: &'a Param) -> Self {
        match param {
            Param::Number(number) => Self::Number(*number),
            Param::Word(word) => Self::Text(word),
        }
    }
}

/// Settings of every host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// The congestion-control algorithm, by its registry name.
    pub cc: String,
    /// Parameters of algorithms in the registry's units: `params.vmcc.theta = 5`. Used where that algorithm is.
    pub params: BTreeMap<String, BTreeMap<String, Param>>,
    /// Which transport connections use.
    pub protocol: Protocol,
    /// Subflows per multipath connection. Absent: one per path between the two hosts' interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = vmcc_cc::MAX_PATHS))]
    pub subflows: Option<u32>,
    /// Scheduler of a multipath sender: the subflow of the next segment.
    pub scheduler: Scheduler,
    /// Path of the acknowledgments of a multipath connection.
    pub ack_path: AckPath,
    /// Congestion windows of a QUIC connection: one per path, or one for all. Absent: `separate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coupling: Option<Coupling>,
    /// Subflows that stay open when an algorithm finds that they share a bottleneck: one is closed only while this many others are in use
    /// (d of mTCP's MPd flows). Absent: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = vmcc_cc::MAX_PATHS))]
    pub min_paths: Option<u32>,
    /// Connections between the same two hosts detect shared bottlenecks together, where the algorithm's detector is `correlation`
    /// (simulator and MPTCP only).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pool_routes: bool,
    /// The largest receive buffer of a connection (`tcp_rmem[2]`). Packets take memory beside their payload, so about half
    /// of it is offered as window: see `packet_memory`.
    pub receive_buffer: Bytes,
    /// The memory that a received packet of the MTU takes; the window is the share that payload has of it. Absent: half of
    /// the buffer (simulator only: a kernel measures it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_memory: Option<Bytes>,
    /// The largest send buffer of a connection (`tcp_wmem[2]`), of a multipath connection for each subflow: what is written
    /// and not acknowledged.
    pub send_buffer: Bytes,
    /// Limit of unsent data of a connection or subflow (`tcp_notsent_lowat`, `TCP_NOTSENT_LOWAT`). Linux's
    /// own default is no limit; its MPTCP scheduler then gives a subflow up to 64 kB at a time, and one with a small window
    /// holds that back for so long that the others run dry (docs/how-to/hosts.md).
    pub notsent_lowat: Bytes,
    /// The floor of the retransmission timeout.
    pub min_rto: Nanos,
    /// The retransmission timeout before the first round trip is known, that of SYNs (RFC 6298; simulator only: Linux's is fixed).
    pub initial_rto: Nanos,
    /// The longest delay of an acknowledgment; `"0s"` acknowledges every packet at once.
    pub delayed_ack: Nanos,
    /// The initial window.
    pub initial_window: Packets,
    /// The largest IP packet.
    #[schemars(extend("examples" = ["1500B"]))]
    pub mtu: Bytes,
    /// The time from the first acknowledgment after a connection's handshake to its host asking for more subflows.
    pub join_delay: Nanos,
    /// Leave slow start on rising delay (HyStart).
    pub hystart: bool,
    /// Negotiate ECN. Absent: if the algorithm needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
    /// Hosts that are virtual machines, with a kernel of their own, where hosts are real: the kernel engine makes one of QEMU for such a
    /// host, and a container for any other but those that events `deschedule`. The simulator's hosts are as they are. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<OneOrMany>,
}

impl Host {
    /// The names of [`Host::machines`].
    pub fn machine_names(&self) -> &[String] {
        self.machines.as_ref().map_or(&[], |names| &names.0)
    }
}

impl Default for Host {
    fn default() -> Self {
        Self {
            cc: "reno".into(),
            params: BTreeMap::new(),
            protocol: Protocol::Mptcp,
            subflows: None,
            scheduler: Scheduler::LowestRtt,
            ack_path: AckPath::Own,
            coupling: None,
            min_paths: None,
            pool_routes: false,
            receive_buffer: Bytes::new(6 << 20),
            packet_memory: None,
            send_buffer: Bytes::new(4 << 20),
            notsent_lowat: Bytes::new(16 << 10),
            min_rto: Nanos::from_millis(200),
            initial_rto: Nanos::from_secs(1),
            delayed_ack: Nanos::from_millis(40),
            initial_window: Packets::new(10),
            mtu: Bytes::new(1500),
            join_delay: Nanos::ZERO,
            hystart: false,
            ecn: None,
            machines: None,
        }
    }
}
