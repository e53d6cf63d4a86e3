//! Sessions of streams between two hosts, whatever carries them. Programs know this trait alone.
//!
//! | module | does |
//! |---|---|
//! | `quic` | sessions that are multipath QUIC connections |
//! | `tcp` | sessions over TCP carriers |
//! | `pipe` | a stream of a QUIC connection as a carrier of such a session |
//! | `connect` | the client's side: dialling, and following addresses |
//! | `accept` | the server's side |

pub(crate) mod accept;
pub(crate) mod connect;
mod pipe;
mod quic;
mod tcp;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Protocol of sessions whose first pipe is a QUIC stream, after the one of the program.
const PIPE_SUFFIX: &[u8] = b"+carriers";
/// Protocol that TCP carriers name in TLS: what browsers name on port 443, since the networks that need them look at it.
const TCP_ALPN: &[u8] = b"http/1.1";

/// Transport of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// Multipath QUIC.
    #[default]
    Udp,
    /// TCP connections.
    Tcp,
    /// QUIC while UDP passes, TCP connections while it does not; a session moves between them.
    Auto,
}

impl FromStr for Carrier {
    type Err = String;

    fn from_str(text: &str) -> Result<Carrier, String> {
        match text {
            "udp" => Ok(Carrier::Udp),
            "tcp" => Ok(Carrier::Tcp),
            "auto" => Ok(Carrier::Auto),
            _ => Err("it is udp, tcp or auto".to_owned()),
        }
    }
}

impl Carrier {
    /// Its name on command lines and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Udp => "udp",
            Carrier::Tcp => "tcp",
            Carrier::Auto => "auto",
        }
    }
}

/// No session came about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Over UDP.
    #[error(transparent)]
    Udp(#[from] vmcc_udp::ConnectError),
    /// Over TCP, or over neither.
    #[error(transparent)]
    Tcp(#[from] vmcc_plmt::ConnectError),
    /// No address here has the family of one there.
    #[error(
        "no address of this host can be a path to {0}: no interface with an address of the same family is up"
    )]
    NoPair(String),
    /// The system does not tell its addresses.
    #[error("this host's addresses cannot be listed: {0}")]
    Sources(#[source] io::Error),
}

impl ConnectError {
    /// True if something answered, and one end refused the other.
    pub fn is_refusal(&self) -> bool {
        matches!(self, ConnectError::Udp(vmcc_udp::ConnectError::Refused { .. }))
    }
}

/// A path that was in use, and what it has carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathUsage {
    /// From here; by a relay, from its address.
    pub local: IpAddr,
    /// By this relay, if by any.
    pub relay: Option<String>,
    /// To there.
    pub remote: SocketAddr,
    /// Bytes that came.
    pub received: u64,
    /// Bytes that left.
    pub sent: u64,
    /// Silent at the end.
    pub failed: bool,
}

/// End of a session.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) reason: String,
    /// The peer's program has ended it.
    pub(crate) by_peer: bool,
}

/// Work of a session that is awaited.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A session.
pub(crate) type Connection = Arc<dyn Session>;

/// Streams between two hosts, closed when the last handle and stream is dropped.
pub(crate) trait Session: Send + Sync {
    /// Opens a stream, as soon as the peer allows one more.
    fn open_stream(&self) -> Pending<'_, io::Result<Stream>>;

    /// The next stream that the peer opens.
    fn accept_stream(&self) -> Pending<'_, io::Result<Stream>>;

    /// Sends a datagram, which may be lost. False where that is certain.
    fn send_datagram(&self, data: &[u8]) -> bool;

    /// The next datagram; an error at the end of the session, and at once where it carries none.
    fn read_datagram(&self) -> Pending<'_, io::Result<Vec<u8>>>;

    /// True if datagrams can be sent.
    fn has_datagrams(&self) -> bool;

    /// Waits for its end.
    fn closed(&self) -> Pending<'_, End>;

    /// Its end, if it has ended.
    fn end(&self) -> Option<End>;

    /// Ends it, with a code and a reason for the peer's program.
    fn close(&self, code: u64, reason: &str);

    /// Paths that carry data or could.
    fn paths(&self) -> Vec<PathUsage>;

    /// True if more than one path is possible.
    fn is_multipath(&self) -> bool;

    /// True once the peer has accepted this side's certificate: with TLS 1.3 a server judges it after its client is done.
    fn is_confirmed(&self) -> bool;

    /// Number that changes whenever something comes from the peer.
    fn heard(&self) -> u64;
}

/// Sending half of a stream. Dropped before its shutdown, it is reset.
pub(crate) trait SendHalf: AsyncWrite + Send + Unpin {
    /// Returns once the peer has everything, or wants no more; to be called after the shutdown.
    fn wait_acked(&mut self) -> Pending<'_, io::Result<()>>;
}

pub(crate) type SendStream = Box<dyn SendHalf>;
pub(crate) type RecvStream = Box<dyn AsyncRead + Send + Unpin>;

/// Both directions of a stream.
pub(crate) struct Stream {
    pub(crate) send: SendStream,
    pub(crate) recv: RecvStream,
    /// Returns once the peer wants nothing more of what is written, or the session has ended; never, if everything has arrived before.
    pub(crate) stopped: Pending<'static, ()>,
}

impl Stream {
    /// Each direction by itself.
    pub(crate) fn into_split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.recv).poll_read(cx, out)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.send).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.send).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.send).poll_shutdown(cx)
    }
}
