//! A stream of a multipath QUIC connection as a carrier of a session. Its bytes begin with a secret, to which greetings are bound as those
//! over TCP are to their TLS.

use crate::status::PipeGuard;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;
use vmcc_plmt::{Binding, CarrierInfo, NewPipe, Pipe, random_secret};
use vmcc_udp::{Connection, PathManager, RecvStream, SendStream};
use vmcc_units::time::Span;

/// Time for the last bytes of a session to arrive.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Window for the session's scheduler, in segments: the stream itself says by its room how much it takes.
const WINDOW_PKT: u32 = u32::MAX >> 12;

pub(super) struct QuicPipe {
    /// None once it has ended.
    send: Option<SendStream>,
    recv: RecvStream,
    connection: Connection,
    paths: Option<PathManager>,
    guard: PipeGuard,
}

impl QuicPipe {
    /// Opens the stream of a client's connection.
    pub(super) async fn open(
        connection: Connection,
        paths: PathManager,
        guard: PipeGuard,
    ) -> io::Result<NewPipe> {
        let (mut send, recv) = connection.open_stream().await.map_err(io::Error::other)?.into_split();
        let secret = random_secret()?;
        send.write_all(&secret).await?;
        let pipe = QuicPipe { send: Some(send), recv, connection, paths: Some(paths), guard };
        Ok((Box::new(pipe), Binding(secret)))
    }

    /// Accepts the stream of a server's connection.
    pub(super) async fn accept(connection: Connection, guard: PipeGuard) -> io::Result<NewPipe> {
        let (send, mut recv) = connection.accept_stream().await.map_err(io::Error::other)?.into_split();
        let mut secret = [0; 32];
        recv.read_exact(&mut secret).await?;
        let pipe = QuicPipe { send: Some(send), recv, connection, paths: None, guard };
        Ok((Box::new(pipe), Binding(secret)))
    }

    fn with_send<T>(
        &mut self,
        call: impl FnOnce(Pin<&mut SendStream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.send {
            Some(send) => call(Pin::new(send)),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl Pipe for QuicPipe {
    fn info(&self) -> CarrierInfo {
        let paths = self.connection.paths();
        let srtt = paths.iter().filter(|path| path.open && !path.failed).map(|path| path.srtt).min();
        CarrierInfo { cwnd_pkt: WINDOW_PKT, srtt: srtt.unwrap_or(Span::ZERO), ..CarrierInfo::default() }
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let paths = self.connection.paths();
        let path = paths.iter().find(|path| path.open && !path.failed).or(paths.first())?;
        Some((path.route.local, path.route.remote))
    }

    fn congestion(&self) -> Option<String> {
        None
    }

    /// The connection outlives the pipe until its last bytes have arrived.
    fn end_gracefully(&mut self) {
        let Some(mut send) = self.send.take() else { return };
        let (connection, paths, guard) = (self.connection.clone(), self.paths.take(), self.guard.clone());
        tokio::spawn(async move {
            let last = async {
                send.shutdown().await?;
                send.wait_acked().await
            };
            let _ = timeout(CLOSE_TIMEOUT, last).await;
            connection.close(0, "");
            drop((paths, guard));
        });
    }
}

impl Drop for QuicPipe {
    fn drop(&mut self) {
        if self.send.is_some() {
            self.connection.close(1, "the carrier was given up");
        }
    }
}

impl AsyncRead for QuicPipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.recv).poll_read(cx, out)
    }
}

impl AsyncWrite for QuicPipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.with_send(|send| send.poll_write(cx, data))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with_send(|send| send.poll_shutdown(cx))
    }
}
