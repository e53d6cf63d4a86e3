//! Connections of other programs through one connection of ours: `vmcc proxy`.
//!
//! The client side listens for SOCKS5 and at fixed addresses; each connection becomes a stream, whose first message says where it leads. The
//! server side connects there. UDP (SOCKS5's UDP ASSOCIATE) travels in datagrams (RFC 9221), each with the number of its association; it is
//! refused where the session has none, because TCP carries it.

mod client;
mod datagrams;
mod dial;
mod job;
mod link;
mod lookup;
mod owner;
mod relay;
mod reset;
mod server;
mod slots;
mod socks;

pub use client::client;
pub use job::{ClientJob, Forward};
pub use server::{ServerJob, server};

use crate::endpoint_addr::{EndpointAddr, ResolveError};
use crate::keys::KeysError;
use crate::session::ConnectError;
use crate::session::connect::ClientError;
use crate::status::server::StatusServer;
use crate::status::{Registry, metrics};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use vmcc_telemetry::Server;
use vmcc_transport::Config;
use vmcc_udp::Qlog;
use vmcc_units::time::Span;

/// Default address of SOCKS5.
pub const DEFAULT_SOCKS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);

const ALPN: &[u8] = b"vmcc-proxy/1";
/// Paths are asked this often whether they live, also while nobody says anything.
const KEEP_ALIVE: Span = Span::from_secs(5);

/// Events of a proxy while it runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// It listens here for this.
    Listening(&'static str, SocketAddr),
    /// It is connected to its server, or a client to it.
    Connected(SocketAddr),
    /// The server there speaks no multipath QUIC: everything goes over one path.
    Single(SocketAddr),
    /// That connection is over.
    Lost(SocketAddr, String),
    /// From here by a relay to there there is no path, for this reason.
    NoPath(String),
    /// The server's side cannot be reached at present.
    Unreachable(String),
    /// As many programs are served as there can be; the next one waits.
    Full(usize),
}

/// Reason of a proxy's end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// It would serve anybody.
    #[error("{0}: clients are not authenticated, so only the loopback may reach it")]
    Open(SocketAddr),
    /// Nobody is trusted.
    #[error("no server is trusted")]
    NoPeer,
    /// The address is taken, not of this host, or needs rights.
    #[error("{address}: cannot be listened at: {source}")]
    Listen {
        /// Address that could not be used.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// The server's name has no address.
    #[error(transparent)]
    Name(#[from] ResolveError),
    /// It was not reached a moment ago.
    #[error("{0}: not reached just now")]
    NotNow(EndpointAddr),
    /// The server ended the first connection before it had accepted this side's certificate.
    #[error("{0}: the server refused this side: {1}")]
    NotAccepted(EndpointAddr, String),
    /// The server cannot be reached.
    #[error(transparent)]
    Reach(#[from] ConnectError),
    /// The user wanted it.
    #[error("interrupted")]
    Interrupted,
    /// An option that the carrier does not have.
    #[error("{0} needs --carrier udp: {1}")]
    NotOverTcp(&'static str, &'static str),
    /// The other way round.
    #[error("--via-http-proxy needs --carrier tcp or auto: HTTP proxies do not pass on UDP")]
    NeedsTcp,
    /// Keys.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// TLS refuses its settings.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<ClientError> for ProxyError {
    fn from(error: ClientError) -> ProxyError {
        match error {
            ClientError::Tls(error) => ProxyError::Tls(error),
            ClientError::System(error) => ProxyError::System(error),
        }
    }
}

/// The first message on a stream.
#[derive(Debug, Serialize, Deserialize)]
enum Open {
    /// A TCP connection to there.
    Connect { host: String, port: u16 },
    /// UDP, in datagrams of this number, as long as the stream is open.
    Associate { number: u32 },
}

/// The answer to it, as SOCKS5 has it: 0 is success.
#[derive(Debug, Serialize, Deserialize)]
struct Reply {
    code: u8,
}

/// Bytes of the first message of a stream, and of its answer: SOCKS5's longest name, each byte of which JSON may write as six.
const MAX_MESSAGE: usize = 2 << 10;
/// Streams of a client at a time: its programs.
const MAX_STREAMS: u64 = 1024;

/// Settings of the session: many streams, none of which can use up what all may send when nobody reads it. What the peer may open is
/// `streams`.
fn config(qlog: Option<Arc<Qlog>>, streams: u64) -> Config {
    const CONNECTION_WINDOW: u64 = 64 << 20;
    Config {
        keep_alive: KEEP_ALIVE,
        stream_window: 4 << 20,
        first_stream_window: 256 << 10,
        reserved_stream_window: CONNECTION_WINDOW / 2 / MAX_STREAMS,
        connection_window: CONNECTION_WINDOW,
        send_window: 2 << 20,
        connection_send_window: CONNECTION_WINDOW / 2,
        max_streams_bidi: streams,
        max_streams_uni: 0,
        qlog: qlog.map(|qlog| qlog as _),
        ..vmcc_udp::config()
    }
}

/// Publication of the connections, until it is dropped: to `vmcc status` and, where that is wanted, to Prometheus.
struct Exporters {
    _status: Option<StatusServer>,
    _metrics: Option<Server>,
}

fn start_exporters(
    registry: &Arc<Registry>,
    metrics: Option<SocketAddr>,
    tell: &link::EventHandler,
) -> Result<Exporters, ProxyError> {
    let serve =
        |address| metrics::serve(address, registry).map_err(|source| ProxyError::Listen { address, source });
    let server = metrics.map(serve).transpose()?;
    server.iter().for_each(|server| tell(Event::Listening("Prometheus", server.at())));
    Ok(Exporters { _status: StatusServer::open(registry, "proxy"), _metrics: server })
}
