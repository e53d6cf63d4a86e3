//! A carrier's pipe: TLS between its bytes and the session's records.

use crate::pipe::Pipe;
use crate::security::Secured;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use vmcc_tcp::tls::Tls;
use vmcc_tcp::{CarrierId, CarrierInfo, MAX_RECORD};

/// Bytes of one write.
const WRITE_SIZE: usize = MAX_RECORD;
/// Bytes of sent ciphertext at the front of the buffer before it is moved.
const COMPACT_SIZE: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct CarrierSocket {
    pub(crate) id: CarrierId,
    pipe: Box<dyn Pipe>,
    tls: Option<Tls>,
    /// Bytes for the socket, the first `written` of which it has.
    out: Vec<u8>,
    written: usize,
}

impl CarrierSocket {
    pub(crate) fn new(id: CarrierId, pipe: Box<dyn Pipe>, tls: Option<Tls>) -> CarrierSocket {
        CarrierSocket { id, pipe, tls, out: Vec::new(), written: 0 }
    }

    fn waiting(&self) -> &[u8] {
        &self.out[self.written..]
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.waiting().is_empty()
    }

    /// Snapshot of its pipe, with the bytes that wait for it here.
    pub(crate) fn info(&self) -> CarrierInfo {
        let (info, waiting) = (self.pipe.info(), self.waiting().len() as u64);
        CarrierInfo { queued: info.queued + waiting, blocked: waiting > 0, ..info }
    }

    pub(crate) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.pipe.addresses()
    }

    pub(crate) fn congestion(&self) -> Option<String> {
        self.pipe.congestion()
    }

    /// Reads once and appends plaintext; `buffer` is scratch. The bytes read; 0 at the end of the connection.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        plain: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let mut read = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.pipe).poll_read(cx, &mut read))?;
        let bytes = read.filled();
        match &mut self.tls {
            Some(tls) => {
                tls.read(bytes, plain).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
            }
            None => plain.extend_from_slice(bytes),
        }
        Poll::Ready(Ok(bytes.len()))
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
        while self.written < self.out.len() {
            let end = self.out.len().min(self.written + WRITE_SIZE);
            match ready!(Pin::new(&mut self.pipe).poll_write(cx, &self.out[self.written..end]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                len => self.written += len,
            }
        }
        self.out.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Lets what was written arrive before the connection ends, instead of a reset.
    pub(crate) fn end_gracefully(&mut self) {
        self.pipe.end_gracefully();
    }
}

/// A pipe that belongs to a session now.
pub(crate) struct NewSocket {
    pub(crate) pipe: Box<dyn Pipe>,
    pub(crate) secured: Secured,
}
