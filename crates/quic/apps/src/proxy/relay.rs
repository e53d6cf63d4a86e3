//! One program's connection and the stream that carries it.

use crate::session::Stream;
use nix::libc;
use socket2::{SockRef, TcpKeepalive};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// Bytes read at a time, and the most of a direction that wait for room here.
const CHUNK: usize = 32 << 10;
/// Time for the kernel to deliver what it has of a direction before the connection is reset.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(50);

thread_local! {
    /// One buffer for all directions: nothing stays in it between two polls.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into());
}

/// TCP keepalive of a connection one of whose directions has ended: the only way to learn that a silent end is gone.
#[derive(Clone, Copy)]
pub(super) struct Keepalive {
    idle: Duration,
    interval: Duration,
    probes: u32,
}

impl Keepalive {
    /// For programs of this host. Its kernel answers for as long as they have the socket open, and a minute longer
    /// (`net.ipv4.tcp_fin_timeout`).
    pub(super) const LOCAL: Keepalive =
        Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(5), probes: 3 };
    /// For targets behind a network: silent ones are given up after 2 min.
    pub(super) const REMOTE: Keepalive =
        Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(15), probes: 4 };

    fn enable(self, tcp: &impl AsFd) {
        let timing =
            TcpKeepalive::new().with_time(self.idle).with_interval(self.interval).with_retries(self.probes);
        // Without it the connection only stays longer.
        let _ = SockRef::from(tcp).set_tcp_keepalive(&timing);
    }
}

/// Progress of a [`relay`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Bytes were carried.
    Carried,
    /// One of both directions has ended.
    HalfClosed,
}

/// Carries bytes both ways until both directions have ended. An end that breaks off, also while nothing is carried, is broken off at
/// the other side as well: a part must not be taken for the whole. What one end has sent completely is delivered before that.
pub(super) async fn relay(tcp: TcpStream, stream: Stream, keepalive: Keepalive, on: impl Fn(Progress)) {
    let _ = tcp.set_nodelay(true);
    let Stream { mut send, mut recv, stopped } = stream;
    let up = async {
        pump(&mut Socket(&tcp), &mut send, &on).await?;
        on(Progress::HalfClosed);
        send.wait_acked().await
    };
    let down = async {
        pump(&mut recv, &mut Socket(&tcp), &on).await?;
        on(Progress::HalfClosed);
        Ok(())
    };
    if both(&tcp, up, down, stopped, keepalive).await.is_err() {
        let _ = tcp.set_zero_linger();
    }
}

/// Runs both directions; an error where the connection is to be reset.
async fn both(
    tcp: &TcpStream,
    up: impl Future<Output = io::Result<()>>,
    down: impl Future<Output = io::Result<()>>,
    stopped: impl Future<Output = ()>,
    keepalive: Keepalive,
) -> io::Result<()> {
    let (mut up, mut down, mut stopped) = (pin!(up), pin!(down), pin!(stopped));
    // Where the end of a direction has come nobody reads any more, and nobody writes while the other one is silent.
    let mut broken = pin!(tcp.ready(Interest::ERROR));
    let (mut up_ended, mut down_ended) = (false, false);
    while !(up_ended && down_ended) {
        tokio::select! {
            biased;
            ended = &mut up, if !up_ended => {
                ended?;
                up_ended = true;
            }
            ended = &mut down, if !down_ended => {
                ended?;
                down_ended = true;
            }
            // The other end reads no more. What it has sent completely still goes to this one.
            () = &mut stopped, if down_ended && !up_ended => {
                drained(tcp).await;
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            _ = &mut broken => return Err(io::ErrorKind::ConnectionReset.into()),
        }
        keepalive.enable(tcp);
    }
    Ok(())
}

/// Carries one direction to its end, and says that it has ended.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    on: &impl Fn(Progress),
) -> io::Result<()> {
    // Kept only as long as there is no room for it.
    let (mut left, mut written) = (Vec::new(), 0);
    let mut carry = |cx: &mut Context<'_>, buffer: &mut [u8]| -> Poll<io::Result<()>> {
        loop {
            while written < left.len() {
                written += ready!(poll_some(to, cx, &left[written..]))?;
            }
            (left, written) = (Vec::new(), 0);
            let mut read = ReadBuf::new(buffer);
            ready!(Pin::new(&mut *from).poll_read(cx, &mut read))?;
            let data = read.filled();
            if data.is_empty() {
                return Poll::Ready(Ok(()));
            }
            on(Progress::Carried);
            let len = match poll_some(to, cx, data) {
                Poll::Ready(len) => len?,
                Poll::Pending => 0,
            };
            left.extend_from_slice(&data[len..]);
        }
    };
    poll_fn(|cx| BUFFER.with_borrow_mut(|buffer| carry(cx, buffer))).await?;
    poll_fn(|cx| Pin::new(&mut *to).poll_shutdown(cx)).await
}

/// Writes at least one byte.
fn poll_some(
    to: &mut (impl AsyncWrite + Unpin),
    cx: &mut Context<'_>,
    data: &[u8],
) -> Poll<io::Result<usize>> {
    match ready!(Pin::new(to).poll_write(cx, data))? {
        0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        len => Poll::Ready(Ok(len)),
    }
}

/// Returns once the kernel has delivered everything that was written, or has had the time to.
async fn drained(tcp: &TcpStream) {
    let begun = Instant::now();
    while unsent(tcp) > 0 && begun.elapsed() < DRAIN_TIMEOUT {
        sleep(DRAIN_POLL_INTERVAL).await;
    }
}

/// Bytes that were written and have not been acknowledged; 0 where the system does not tell.
fn unsent(tcp: &TcpStream) -> libc::c_int {
    let mut bytes = 0;
    // SAFETY: the descriptor is open, and the place outlives the call.
    let done = unsafe { libc::ioctl(tcp.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { bytes } else { 0 }
}

/// A connection that is also watched while it is read from and written to.
struct Socket<'a>(&'a TcpStream);

impl AsyncRead for Socket<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(out.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|len| out.advance(len))),
            }
        }
    }
}

impl AsyncWrite for Socket<'_> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write(data) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(self.0).shutdown(Shutdown::Write))
    }
}
