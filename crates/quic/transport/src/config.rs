//! Settings of endpoints and connections.

use crate::paths::mtu;
use crate::qlog::Sinks;
use std::sync::Arc;
use vmcc_cc::{Algorithm, Params};
use vmcc_multipath::{AckPath, Coupling, Scheduler};
use vmcc_streams::Limits;
use vmcc_units::time::Span;

/// Settings of a connection; the defaults suit most.
#[derive(Clone, Debug)]
pub struct Config {
    /// The congestion control of all paths.
    pub algorithm: Algorithm,
    /// Its parameters.
    pub params: Params,
    /// Congestion windows: one per path, or one for all.
    pub coupling: Coupling,
    /// A detector of shared bottlenecks has paths abandoned only while more than this many are in use (d of mTCP's MPd), at least 1.
    pub min_paths: u32,
    /// Packet scheduler.
    pub scheduler: Scheduler,
    /// Path of acknowledgments.
    pub ack_path: AckPath,
    /// Paths at a time, from 1 to [`vmcc_cc::MAX_PATHS`]; with 1 the multipath extension is not offered.
    pub max_paths: u32,
    /// The connection ends when nothing came for this long; zero: never.
    pub idle_timeout: Span,
    /// Something is sent at least this often, so that neither end gives up; zero: only what there is to send.
    pub keep_alive: Span,
    /// Acknowledgments wait for company at most this long.
    pub max_ack_delay: Span,
    /// Bytes of a stream that may come before they are read.
    pub stream_window: u64,
    /// Of a stream at first: that doubles for as long as the application keeps up, so that many which nobody reads do not take up what all may send.
    pub first_stream_window: u64,
    /// Bytes of a stream that may come before they are read, whatever other streams hold. Windows beyond it share half of
    /// `connection_window`, each at most as much as is left of that. So unread streams never stop others while `reserved_stream_window`
    /// times the number of streams is at most the other half. By default nothing is shared: streams may use up the connection's window.
    pub reserved_stream_window: u64,
    /// Bytes of all streams that may come before they are read.
    pub connection_window: u64,
    /// Bytes of a stream that are kept until they are acknowledged.
    pub send_window: u64,
    /// Bytes of all streams that are kept until they are acknowledged, besides 16 KiB of each. They are shared like windows beyond
    /// `reserved_stream_window`.
    pub connection_send_window: u64,
    /// Bytes of a stream of those that are taken before they leave: what is written just before is in the processor's cache still.
    pub unsent_window: u64,
    /// Streams of both directions that the peer may have open.
    pub max_streams_bidi: u64,
    /// Streams of one direction that the peer may have open.
    pub max_streams_uni: u64,
    /// The largest datagram that is taken; 0: none.
    pub max_datagram: u16,
    /// Bytes of datagrams that wait, in each direction.
    pub datagram_buffer: usize,
    /// Packets of the first window.
    pub initial_window_pkt: u32,
    /// Bytes of a UDP payload that are tried without a search, at least 1200.
    pub initial_mtu: u16,
    /// Bytes of a UDP payload that the search for the path's size goes up to.
    pub max_mtu: u16,
    /// Packets are spread over a round trip.
    pub pacing: bool,
    /// Packets are sent ECN-capable where the path carries marks.
    pub ecn: bool,
    /// Packets of the same size that one transmission holds at most.
    pub max_segments: usize,
    /// Sinks of connections' logs.
    pub qlog: Option<Arc<dyn Sinks>>,
}

impl Default for Config {
    fn default() -> Config {
        let algorithm = Algorithm::by_name("lia").expect("it is in the registry");
        Config {
            algorithm,
            params: Params::defaults(algorithm),
            coupling: Coupling::default(),
            min_paths: vmcc_multipath::MIN_PATHS,
            scheduler: Scheduler::PipeCwnd,
            ack_path: AckPath::Best,
            max_paths: 8,
            idle_timeout: Span::from_secs(30),
            keep_alive: Span::ZERO,
            max_ack_delay: Span::from_ms(25),
            stream_window: 8 << 20,
            first_stream_window: u64::MAX,
            reserved_stream_window: u64::MAX,
            connection_window: 16 << 20,
            send_window: 8 << 20,
            connection_send_window: u64::MAX,
            unsent_window: u64::MAX,
            max_streams_bidi: 256,
            max_streams_uni: 256,
            max_datagram: 65_000,
            datagram_buffer: 1 << 20,
            initial_window_pkt: 10,
            initial_mtu: mtu::BASE,
            // What Ethernet leaves after IPv6 and UDP.
            max_mtu: 1452,
            pacing: true,
            ecn: true,
            max_segments: 10,
            qlog: None,
        }
    }
}

impl Config {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            first_stream_window: self.first_stream_window.min(self.stream_window),
            stream_window: self.stream_window,
            reserved_stream_window: self.reserved_stream_window,
            connection_window: self.connection_window,
            max_streams_bidi: self.max_streams_bidi,
            max_streams_uni: self.max_streams_uni,
            send_window: self.send_window,
            connection_send_window: self.connection_send_window,
            unsent_window: self.unsent_window.clamp(1, self.send_window.max(1)),
        }
    }
}
