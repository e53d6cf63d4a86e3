//! Ordered byte pipes under carriers: TCP connections, and whatever else an application brings.

use crate::info;
use socket2::SockRef;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use vmcc_tcp::{Binding, CarrierInfo};

/// Ordered byte pipe of a carrier. Dropped, it is aborted: the peer must not take that for an end.
pub trait Pipe: AsyncRead + AsyncWrite + Send + Unpin {
    /// Snapshot of what it runs over, without the bytes that wait for it in user space.
    fn info(&self) -> CarrierInfo;

    /// Addresses of both ends; none where the connection is gone.
    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)>;

    /// Congestion control that its sender uses, if the system tells.
    fn congestion(&self) -> Option<String>;

    /// Lets what was written arrive, and then the pipe end, instead of aborting it when dropped.
    fn end_gracefully(&mut self);

    /// True if it carries data only while no other pipe can.
    fn is_backup(&self) -> bool {
        false
    }
}

/// Pipe that was made, and a secret that only its two ends know.
pub type NewPipe = (Box<dyn Pipe>, Binding);

/// Makes pipes to the server, one at a time.
pub trait PipeDialer: Send + Sync {
    /// Makes one. The caller tries again after a failure, and after the end of a pipe.
    fn dial(&self) -> Pin<Box<dyn Future<Output = io::Result<NewPipe>> + Send + '_>>;
}

/// A TCP connection.
pub(crate) struct TcpPipe {
    stream: TcpStream,
    backup: bool,
}

impl fmt::Debug for dyn Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipe({:?})", self.addresses())
    }
}

impl TcpPipe {
    pub(crate) fn new(stream: TcpStream, notsent_lowat: u64, backup: bool) -> TcpPipe {
        let socket = SockRef::from(&stream);
        // Failures cost latency, not function.
        let _ = socket.set_tcp_nodelay(true);
        #[cfg(target_os = "linux")]
        let _ = socket.set_tcp_notsent_lowat(u32::try_from(notsent_lowat).unwrap_or(u32::MAX));
        // An abort is a reset: the peer must not take it for an end.
        let _ = socket.set_linger(Some(Duration::ZERO));
        TcpPipe { stream, backup }
    }
}

impl Pipe for TcpPipe {
    fn info(&self) -> CarrierInfo {
        info::read(&self.stream)
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.stream.local_addr().ok()?, self.stream.peer_addr().ok()?))
    }

    fn congestion(&self) -> Option<String> {
        #[cfg(target_os = "linux")]
        {
            let name = SockRef::from(&self.stream).tcp_congestion().ok()?;
            let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
            Some(String::from_utf8_lossy(&name[..end]).into_owned())
        }
        #[cfg(not(target_os = "linux"))]
        None
    }

    fn end_gracefully(&mut self) {
        let _ = SockRef::from(&self.stream).set_linger(None);
    }

    fn is_backup(&self) -> bool {
        self.backup
    }
}

impl AsyncRead for TcpPipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, out)
    }
}

impl AsyncWrite for TcpPipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
