//! One TCP socket as the kernel reports it.

use super::attributes::{NLA_TYPE_MASK, attributes};
use super::tcp_info_tail::TcpInfoTail;
use netlink_packet_core::Nla as _;
use netlink_packet_sock_diag::{
    SockDiagMessage, TCP_ESTABLISHED,
    inet::{InetResponse, SocketId, nlas::Nla, nlas::TcpInfo},
};
use serde::Serialize;
use std::net::SocketAddr;

// From <linux/inet_diag.h> and <linux/mptcp.h>.
const INET_DIAG_ULP_INFO: u16 = 19;
const INET_ULP_INFO_MPTCP: u16 = 3;
const MPTCP_SUBFLOW_ATTR_TOKEN_REM: u16 = 1;
const MPTCP_SUBFLOW_ATTR_TOKEN_LOC: u16 = 2;
const MPTCP_SUBFLOW_ATTR_FLAGS: u16 = 8;
const MPTCP_SUBFLOW_ATTR_ID_REM: u16 = 9;
const MPTCP_SUBFLOW_ATTR_ID_LOC: u16 = 10;
/// From <linux/tcp.h>.
const TCPI_OPT_ECN: u8 = 8;
const MPTCP_SUBFLOW_FLAG_JOIN: u32 = (1 << 2) | (1 << 3);
const MPTCP_SUBFLOW_FLAG_BKUP: u32 = (1 << 4) | (1 << 5);
const MPTCP_SUBFLOW_FLAG_FULLY_ESTABLISHED: u32 = 1 << 6;

/// The state of TCP's loss recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CaState {
    /// Nothing wrong.
    Open,
    /// Duplicate ACKs or SACKs, no decision yet.
    Disorder,
    /// Reducing after an echoed mark.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// Way in which the receiver of a connection's data reports congestion marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EcnFeedback {
    /// ECN was not negotiated.
    None,
    /// The ECE flag (RFC 3168). An ordinary receiver repeats it until the sender answers; DCTCP's echoes each mark.
    Rfc3168,
    /// A count of marked packets (AccECN, RFC 9768).
    AccEcn,
}

impl EcnFeedback {
    const fn new(ecn: bool, accecn: bool) -> Self {
        match (ecn, accecn) {
            (false, _) => Self::None,
            (true, false) => Self::Rfc3168,
            (true, true) => Self::AccEcn,
        }
    }
}

/// MPTCP attributes of a TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Mptcp {
    /// Token of the connection at this end: the same on each of its subflows.
    pub token_local: u32,
    /// Token of the connection at the other end; zero on the first subflow.
    pub token_remote: u32,
    /// Identifier of the local address.
    pub id_local: u8,
    /// Identifier of the remote address.
    pub id_remote: u8,
    /// Joined an existing connection (not its first subflow).
    pub joined: bool,
    /// Either end asked to use it only when no other subflow is left.
    pub backup: bool,
    /// The MPTCP handshake is complete.
    pub established: bool,
}

/// One TCP socket: a single-path connection, or one subflow of an MPTCP connection.
///
/// Windows in packets (segments of `mss_bytes`), counters since the socket was established.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Subflow {
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port.
    pub remote: SocketAddr,
    /// Index of the interface that it is bound to; 0: none.
    #[serde(skip)]
    pub interface: u32,
    /// Socket cookie, by which the kernel identifies sockets.
    #[serde(skip)]
    pub cookie: [u8; 8],
    /// In TCP's state ESTABLISHED (listings also hold half-closed sockets).
    pub established: bool,
    /// Name of the congestion-control algorithm.
    pub algorithm: String,
    /// Both ends negotiated ECN: marks are echoed.
    pub ecn: bool,
    /// Kind of ECN feedback.
    pub ecn_feedback: EcnFeedback,
    /// Present on MPTCP subflows.
    pub mptcp: Option<Mptcp>,
    /// Recovery state.
    pub ca_state: CaState,
    /// Smoothed round-trip time; 0 before the first sample.
    pub srtt_us: u32,
    /// Mean deviation of the round-trip time.
    pub rttvar_us: u32,
    /// Minimum round-trip time of the kernel's window; `None` before the first sample.
    pub min_rtt_us: Option<u32>,
    /// Retransmission timeout.
    pub rto_us: u32,
    /// Congestion window.
    pub cwnd_pkt: u32,
    /// Slow-start threshold; `None` until the first reduction.
    pub ssthresh_pkt: Option<u32>,
    /// Packets sent and neither acknowledged nor declared lost.
    pub in_flight_pkt: u32,
    /// Segment size towards the peer.
    pub mss_bytes: u32,
    /// Packets retransmitted.
    pub retransmitted_pkt: u32,
    /// Bytes acknowledged by the peer.
    pub bytes_acked: u64,
    /// Bytes received from the peer, in order.
    pub bytes_received: u64,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Bytes retransmitted.
    pub bytes_retransmitted: u64,
    /// Segments sent with data; the kernel's count begins again at 2^32.
    #[serde(skip)]
    pub data_segments_sent: u32,
    /// Segments received with data; likewise.
    #[serde(skip)]
    pub data_segments_received: u32,
    /// Packets delivered to the peer.
    pub delivered_pkt: u32,
    /// Packets delivered whose ACK echoed a congestion mark.
    pub delivered_ce_pkt: u32,
    /// Bytes written by the application and not yet sent.
    pub not_sent_bytes: u32,
    /// Delivery rate of the last measurement.
    pub delivery_rate_bps: u64,
    /// Time with data to send.
    pub busy_us: u64,
    /// Part of `busy_us` in which the peer's receive window was the limit.
    pub receive_window_limited_us: u64,
    /// Part of `busy_us` in which the send buffer was the limit, as far as the kernel counts it: a writer that waits after its last
    /// segment has left is not counted.
    #[serde(skip)]
    pub send_buffer_limited_us: u64,
    /// The send buffer has too little room to wake a writer (`sk_stream_is_writeable`: a third of it). `None`: not requested
    /// ([`super::Diag::subflows_with_memory`]).
    #[serde(skip)]
    pub send_buffer_full: Option<bool>,
    /// Timeouts in a row that were not answered, those included at which this host's queue refused the retransmission.
    #[serde(skip)]
    pub unanswered_timeouts: u32,
    /// Time since anything arrived from the other end, including acknowledgments of nothing new, in milliseconds.
    #[serde(skip)]
    pub heard_ms_ago: u32,
    /// Time since it last passed data to this host's queue, in milliseconds.
    #[serde(skip)]
    pub sent_ms_ago: u32,
    /// Retransmission timeouts; from Linux 6.7 on.
    pub timeouts: Option<u32>,
    /// Packets that arrived with congestion experienced; from Linux 6.18 on.
    pub received_ce_pkt: Option<u32>,
}

impl Subflow {
    /// Reads an answer; `None` if it is not an INET socket or has no TCP information (a request socket).
    pub(super) fn from_answer(answer: SockDiagMessage, later: TcpInfoTail) -> Option<Self> {
        let SockDiagMessage::InetResponse(response) = answer else { return None };
        let InetResponse { header, nlas } = *response;
        let mut info = None;
        let mut algorithm = String::new();
        let mut mptcp = None;
        let mut send_buffer_full = None;
        for attribute in nlas {
            match attribute {
                Nla::TcpInfo(found) => info = Some(found),
                Nla::Congestion(name) => algorithm = name,
                Nla::MemInfo(memory) => {
                    let room = memory.send_queue_max.saturating_sub(memory.send_queue);
                    send_buffer_full = Some(room < memory.send_queue / 2);
                }
                Nla::Other(other) if other.kind() & NLA_TYPE_MASK == INET_DIAG_ULP_INFO => {
                    let mut value = vec![0; other.value_len()];
                    other.emit_value(&mut value);
                    mptcp = parse_ulp(&value);
                }
                _ => {}
            }
        }
        let established = header.state == TCP_ESTABLISHED;
        let socket = Self::from_parts(&header.socket_id, established, &info?, algorithm, mptcp);
        Some(Self {
            ecn_feedback: EcnFeedback::new(socket.ecn, later.accecn),
            send_buffer_full,
            timeouts: later.timeouts,
            received_ce_pkt: later.received_ce_pkt,
            ..socket
        })
    }

    fn from_parts(
        id: &SocketId,
        established: bool,
        info: &TcpInfo,
        algorithm: String,
        mptcp: Option<Mptcp>,
    ) -> Self {
        let outstanding = info.unacked.saturating_add(info.retrans);
        Self {
            local: SocketAddr::new(id.source_address, id.source_port),
            remote: SocketAddr::new(id.destination_address, id.destination_port),
            interface: id.interface_id,
            cookie: id.cookie,
            established,
            algorithm,
            ecn: info.options & TCPI_OPT_ECN != 0,
            ecn_feedback: EcnFeedback::None,
            mptcp,
            ca_state: ca_state(info.ca_state),
            srtt_us: info.rtt,
            rttvar_us: info.rttvar,
            min_rtt_us: (info.min_rtt != 0 && info.min_rtt != u32::MAX).then_some(info.min_rtt),
            rto_us: info.rto,
            cwnd_pkt: info.snd_cwnd,
            // TCP_INFINITE_SSTHRESH.
            ssthresh_pkt: (info.snd_ssthresh < 0x7fff_ffff).then_some(info.snd_ssthresh),
            in_flight_pkt: outstanding.saturating_sub(info.sacked).saturating_sub(info.lost),
            mss_bytes: info.snd_mss,
            retransmitted_pkt: info.total_retrans,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            bytes_sent: info.bytes_sent,
            bytes_retransmitted: info.bytes_retrans,
            data_segments_sent: info.data_segs_out,
            data_segments_received: info.data_segs_in,
            delivered_pkt: info.delivered,
            delivered_ce_pkt: info.delivered_ce,
            not_sent_bytes: info.notsent_bytes,
            delivery_rate_bps: info.delivery_rate.saturating_mul(8),
            busy_us: info.busy_time,
            receive_window_limited_us: info.rwnd_limited,
            send_buffer_limited_us: info.sndbuf_limited,
            send_buffer_full: None,
            unanswered_timeouts: info.retransmits.into(),
            heard_ms_ago: info.last_ack_recv.min(info.last_data_recv),
            sent_ms_ago: info.last_data_sent,
            timeouts: None,
            received_ce_pkt: None,
        }
    }
}

fn ca_state(raw: u8) -> CaState {
    match raw {
        1 => CaState::Disorder,
        2 => CaState::Cwr,
        3 => CaState::Recovery,
        4 => CaState::Loss,
        _ => CaState::Open,
    }
}

/// Reads the upper-layer attribute; `None` unless the upper layer is MPTCP.
pub(super) fn parse_ulp(value: &[u8]) -> Option<Mptcp> {
    let mptcp = attributes(value).find(|(kind, _)| *kind == INET_ULP_INFO_MPTCP)?.1;
    let field = |wanted: u16| attributes(mptcp).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let word = |wanted| field(wanted).and_then(|v| v.try_into().ok()).map_or(0, u32::from_ne_bytes);
    let byte = |wanted| field(wanted).and_then(|v| v.first().copied()).unwrap_or(0);
    let flags = word(MPTCP_SUBFLOW_ATTR_FLAGS);
    Some(Mptcp {
        token_local: word(MPTCP_SUBFLOW_ATTR_TOKEN_LOC),
        token_remote: word(MPTCP_SUBFLOW_ATTR_TOKEN_REM),
        id_local: byte(MPTCP_SUBFLOW_ATTR_ID_LOC),
        id_remote: byte(MPTCP_SUBFLOW_ATTR_ID_REM),
        joined: flags & MPTCP_SUBFLOW_FLAG_JOIN != 0,
        backup: flags & MPTCP_SUBFLOW_FLAG_BKUP != 0,
        established: flags & MPTCP_SUBFLOW_FLAG_FULLY_ESTABLISHED != 0,
    })
}
