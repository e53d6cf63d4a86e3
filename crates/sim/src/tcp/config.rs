//! Settings of hosts: TCP constants, connections.
//!
//! Every default is Linux's, with the source beside it.

use crate::packet::{LinkId, RouteId};
use crate::time::{Span, Time};
use crate::traffic::App;
use vmcc_multipath::{AckPath, MIN_PATHS, RtoLimits, Scheduler};

/// Loss detection algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LossDetection {
    /// Time order with a reordering window (RFC 8985), which Linux has used since 4.18.
    #[default]
    Rack,
    /// Three segments acknowledged above (RFC 6675 `IsLost`); lost retransmissions wait for the timer.
    Rfc6675,
}

/// ECN as negotiated for algorithms that do not ask for the accurate form themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EcnMode {
    /// Not negotiated.
    #[default]
    Off,
    /// ECE is repeated until CWR (RFC 3168).
    Classic,
    /// ECE mirrors the last CE mark, with an immediate ACK on each change (RFC 8257 section 3.2).
    Accurate,
}

/// Sizing of the receive buffer, and with it of the advertised window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveBuffer {
    /// A constant window, in bytes of payload.
    Fixed {
        /// Window, in bytes; at least two segments.
        bytes: u64,
    },
    /// Memory that grows with what is read in a round trip (Linux's dynamic right-sizing); how much of it is payload
    /// says [`TcpConfig::scaling_ratio`].
    Auto {
        /// Memory at first, in bytes (`tcp_rmem[1]`).
        initial_bytes: u64,
        /// Most memory, in bytes (`tcp_rmem[2]`).
        max_bytes: u64,
    },
}

impl Default for ReceiveBuffer {
    /// Linux: 128 KiB at first, at most 6 MiB.
    fn default() -> Self {
        ReceiveBuffer::Auto { initial_bytes: 131_072, max_bytes: 6 << 20 }
    }
}

/// Constants of a host's TCP; shared by many connections.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpConfig {
    /// Size of a full data packet on the wire, in bytes.
    pub mtu_bytes: u16,
    /// Headers and options of a single-path data segment, in bytes (IPv4 20, TCP 20, timestamps 12).
    pub header_bytes: u16,
    /// More of them on a multipath connection (DSS option with 8-byte data sequence numbers, 20 bytes).
    pub multipath_header_bytes: u16,
    /// Size of a pure ACK, SYN or probe on the wire, in bytes (shortest Ethernet frame).
    pub ack_bytes: u16,
    /// Initial window, in packets (RFC 6928).
    pub initial_cwnd_pkt: u32,
    /// Floor of the variance term of the retransmission timeout (Linux `TCP_RTO_MIN`, 200 ms).
    pub rto_min: Span,
    /// Ceiling of the timeout, backoff included (Linux `TCP_RTO_MAX`, 120 s).
    pub rto_max: Span,
    /// Timeout before the first RTT sample (RFC 6298, 1 s).
    pub rto_initial: Span,
    /// Linux's addition to short timers (`TCP_TIMEOUT_MIN`, two jiffies of 1 ms).
    pub timer_slack: Span,
    /// Retransmissions of one segment by timeout after which the path is given up (`tcp_retries2`, 15).
    pub max_retries: u8,
    /// SYNs repeated after the same time (Linux 6.5 and later: `tcp_syn_linear_timeouts`, 4) before it doubles.
    pub syn_linear: u8,
    /// SYNs repeated after a time that doubles before the path is given up (`tcp_syn_retries`, 6).
    pub syn_retries: u8,
    /// Longest time an ACK is delayed (Linux `TCP_ATO_MIN`, 40 ms); zero acknowledges every segment.
    pub delayed_ack: Span,
    /// Segments per ACK while in order (RFC 5681 section 4.2: at most 2).
    pub ack_every: u8,
    /// Segments acknowledged one by one at the start (Linux `TCP_MAX_QUICKACKS`, 16).
    pub quick_acks: u8,
    /// SACK ranges per ACK, 1 to 4 (three fit beside timestamps; beside a data ACK, one).
    pub sack_ranges: u8,
    /// Loss detection algorithm.
    pub loss_detection: LossDetection,
    /// Tail loss probe (RFC 8985 section 7).
    pub tlp: bool,
    /// Window restart after an idle timeout (RFC 5681 section 4.1, Linux `tcp_slow_start_after_idle`).
    pub restart_after_idle: bool,
    /// ECN for algorithms that do not need the accurate form.
    pub ecn: EcnMode,
    /// Receive buffer of the connections' far end.
    pub receive_buffer: ReceiveBuffer,
    /// Payload in 256 bytes of receive buffer (Linux `scaling_ratio`): 128, the kernel's own before it has seen a packet,
    /// is what `tcp_adv_win_scale = 1` was.
    pub scaling_ratio: u8,
    /// Most data that an application can have written and that is not acknowledged, in bytes (`tcp_wmem[2]`, which has to hold
    /// little beside payload). A multipath connection has this much for each subflow (`__mptcp_sync_sndbuf`).
    pub send_buffer_bytes: u64,
    /// Spread a window over the round trip (Linux `SO_MAX_PACING_RATE` machinery with its ratios 2 and 1.2).
    pub pacing: bool,
    /// Most duplicate-ACK reordering that is tolerated before dupthresh grows no more (`tcp_max_reordering`).
    pub max_reordering_pkt: u32,
    /// Time between the SYN-ACK of an additional subflow and its first data, in halves of its RTT: 2 waits for
    /// the fourth ACK, as who opened the subflow must (RFC 8684 section 3.2); 1 is when the other side may send.
    pub join_half_rtts: u8,
    /// Subflows that stay open when an algorithm finds that they share a bottleneck (d of mTCP's MPd).
    pub min_paths: u32,
    /// Secret of a run whose hosts pool the evidence of connections on shared bottlenecks; `None`: each connection decides alone.
    pub pool_secret: Option<u64>,
}

impl Default for TcpConfig {
    fn default() -> Self {
        TcpConfig {
            mtu_bytes: 1500,
            header_bytes: 52,
            multipath_header_bytes: 20,
            ack_bytes: 64,
            initial_cwnd_pkt: 10,
            rto_min: Span::from_ms(200),
            rto_max: Span::from_secs(120),
            rto_initial: Span::from_secs(1),
            timer_slack: Span::from_ms(2),
            max_retries: 15,
            syn_linear: 4,
            syn_retries: 6,
            delayed_ack: Span::from_ms(40),
            ack_every: 2,
            quick_acks: 16,
            sack_ranges: 3,
            loss_detection: LossDetection::Rack,
            tlp: true,
            restart_after_idle: true,
            ecn: EcnMode::Off,
            receive_buffer: ReceiveBuffer::default(),
            scaling_ratio: 128,
            send_buffer_bytes: 4 << 20,
            pacing: false,
            max_reordering_pkt: 300,
            join_half_rtts: 2,
            min_paths: MIN_PATHS,
            pool_secret: None,
        }
    }
}

impl TcpConfig {
    /// Bounds of a retransmission timeout.
    #[inline]
    pub(crate) fn rto_limits(&self) -> RtoLimits {
        RtoLimits { initial: self.rto_initial, max: self.rto_max }
    }

    /// Wait for the answer to a SYN that was repeated this often.
    pub(crate) fn syn_wait(&self, repeated: u8) -> Span {
        let doublings = repeated.saturating_sub(self.syn_linear);
        self.rto_initial.times(1 << doublings.min(16)).min(self.rto_max)
    }

    /// Time after which a path whose SYNs are not answered is given up.
    pub(crate) fn handshake_timeout(&self) -> Span {
        let waits = (0..=self.syn_linear + self.syn_retries).map(|repeated| self.syn_wait(repeated));
        waits.fold(Span::ZERO, |sum, wait| sum + wait)
    }
}

/// One subflow's routes, there and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubflowSpec {
    /// Route of the data, ending at the receiver.
    pub forward: RouteId,
    /// Route of the acknowledgments, ending at the sender.
    pub reverse: RouteId,
    /// Used only when no other subflow works (RFC 8684 `B` flag).
    pub backup: bool,
    /// Extra time before the join starts, counted from the first acknowledgment after the handshake.
    pub join_delay: Span,
    /// Link by which data leave the sender, its local interface; `None`: unknown.
    pub interface: Option<LinkId>,
    /// The same of the receiver's acknowledgments.
    pub far_interface: Option<LinkId>,
}

impl SubflowSpec {
    /// A subflow over the two routes, neither backup nor delayed, of unknown interfaces.
    pub fn new(forward: RouteId, reverse: RouteId) -> Self {
        let (interface, far_interface) = (None, None);
        SubflowSpec { forward, reverse, backup: false, join_delay: Span::ZERO, interface, far_interface }
    }

    /// The same subflow as its other end sees it.
    pub(crate) fn reversed(&self) -> Self {
        SubflowSpec {
            forward: self.reverse,
            reverse: self.forward,
            interface: self.far_interface,
            far_interface: self.interface,
            ..*self
        }
    }
}

/// An algorithm selected for connections, as returned by [`super::World::add_algorithm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlgorithmId(pub(crate) u16);

/// A TCP configuration, as returned by [`super::World::add_config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigId(pub(crate) u16);

/// A connection, numbered in order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

/// A connection to create.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnSpec {
    /// Host that opens the connection and sends the data.
    pub sender: u32,
    /// Host that receives.
    pub receiver: u32,
    /// Time of the SYN.
    pub start: Time,
    /// Time at which a bulk or on/off application stops; [`Time::NEVER`] without end.
    pub stop: Time,
    /// Sending application.
    pub app: App,
    /// Congestion control of every subflow.
    pub algorithm: AlgorithmId,
    /// TCP constants.
    pub config: ConfigId,
    /// Segment scheduler; irrelevant with one subflow.
    pub scheduler: Scheduler,
    /// The return route of acknowledgments; irrelevant with one subflow.
    pub ack_path: AckPath,
    /// One (plain TCP) to [`vmcc_cc::MAX_PATHS`] subflows; the first opens the connection.
    pub subflows: Vec<SubflowSpec>,
    /// Multipath TCP headers and data acknowledgments even with one subflow.
    pub multipath: bool,
    /// Rate at which the receiving application reads, in bits of payload per second; [`None`] reads at once.
    pub read_rate_bps: Option<u64>,
    /// Traffic class of the data packets in scheduled queues, 0-7.
    pub class: u8,
    /// Index of the RTT distribution to which samples of this connection go; at most 2^32 - 2.
    pub group: u32,
    /// Keep a series of window and RTT samples ([`super::World::sample_every`]).
    pub trace: bool,
}
