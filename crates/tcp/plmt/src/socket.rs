//! A carrier's connection: TLS between its bytes and the session's records.

use crate::info;
use crate::security::Secured;
use socket2::SockRef;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;
use vmcc_tcp::tls::Tls;
use vmcc_tcp::{CarrierId, CarrierInfo, MAX_RECORD};

/// Part of [`vmcc_tcp::Config::unsent_limit`] that the kernel may hold. With a write on top it stays below that limit, so a carrier
/// without room has bytes in user space and is woken by its socket.
const LOWAT_SHARE: u64 = 4;
/// Bytes of one write.
const WRITE_SIZE: usize = MAX_RECORD;
/// Bytes of sent ciphertext at the front of the buffer before it is moved.
const COMPACT_SIZE: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct CarrierSocket {
    pub(crate) id: CarrierId,
    stream: TcpStream,
    tls: Option<Tls>,
    /// Bytes for the socket, the first `written` of which it has.
    out: Vec<u8>,
    written: usize,
}

impl CarrierSocket {
    pub(crate) fn new(
        id: CarrierId,
        stream: TcpStream,
        secured: Option<Tls>,
        unsent_limit: u64,
    ) -> CarrierSocket {
        let socket = SockRef::from(&stream);
        // Failures cost latency, not function.
        let _ = socket.set_tcp_nodelay(true);
        #[cfg(target_os = "linux")]
        let _ = socket.set_tcp_notsent_lowat(u32::try_from(unsent_limit / LOWAT_SHARE).unwrap_or(u32::MAX));
        // An abort is a reset: the peer must not take it for an end.
        let _ = socket.set_linger(Some(Duration::ZERO));
        CarrierSocket { id, stream, tls: secured, out: Vec::new(), written: 0 }
    }

    fn waiting(&self) -> &[u8] {
        &self.out[self.written..]
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.waiting().is_empty()
    }

    pub(crate) fn info(&self) -> CarrierInfo {
        info::read(&self.stream, self.waiting().len())
    }

    /// Reads once and appends plaintext; `buffer` is scratch. The bytes read; 0 at the end of the connection.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        plain: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buffer) {
                Ok(len) => {
                    match &mut self.tls {
                        Some(tls) => tls
                            .read(&buffer[..len], plain)
                            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?,
                        None => plain.extend_from_slice(&buffer[..len]),
                    }
                    return Poll::Ready(Ok(len));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Takes records to send.
    pub(crate) fn queue(&mut self, records: &[u8]) -> io::Result<()> {
        if self.written >= COMPACT_SIZE {
            self.out.drain(..self.written);
            self.written = 0;
        }
        match &mut self.tls {
            Some(tls) => tls.write(records, &mut self.out).map_err(io::Error::other),
            None => {
                self.out.extend_from_slice(records);
                Ok(())
            }
        }
    }

    /// Writes what the socket takes; pending once it takes no more.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_flushed() {
            ready!(self.stream.poll_write_ready(cx))?;
            let waiting = self.waiting();
            match self.stream.try_write(&waiting[..waiting.len().min(WRITE_SIZE)]) {
                Ok(len) => self.written += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.out.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Lets what was written arrive before the connection ends, instead of a reset.
    pub(crate) fn end_gracefully(&self) {
        let _ = SockRef::from(&self.stream).set_linger(None);
    }
}

/// A connection that belongs to a session now.
pub(crate) struct NewSocket {
    pub(crate) stream: TcpStream,
    pub(crate) secured: Secured,
}
