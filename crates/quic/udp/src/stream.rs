//! Streams as `AsyncRead` and `AsyncWrite`.

use crate::connection::Connection;
use crate::shared::{Sending, SendingEnd, io_error};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use vmcc_transport::{ConnectionError, Dir, StreamError};

/// Both directions of a stream.
pub struct Stream {
    send: SendStream,
    recv: RecvStream,
}

/// The direction from here. Dropped before [`AsyncWrite::poll_shutdown`], it is reset: the peer is never told that a part is all.
pub struct SendStream {
    connection: Connection,
    id: u64,
    finished: bool,
}

/// The receiving direction. Dropped before its end, it sends STOP_SENDING.
pub struct RecvStream {
    connection: Connection,
    id: u64,
    ended: bool,
}

impl Connection {
    /// Opens a stream, as soon as the peer allows one more.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn open_stream(&self) -> Result<Stream, ConnectionError> {
        let id = self.wait(|_, engine| engine?.open_stream(Dir::Bi)).await?;
        Ok(Stream::new(self.clone(), id))
    }

    /// The next stream that the peer opens.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn accept_stream(&self) -> Result<Stream, ConnectionError> {
        let id = self.wait(|state, _| state.opened.pop_front()).await?;
        Ok(Stream::new(self.clone(), id))
    }
}

impl Stream {
    fn new(connection: Connection, id: u64) -> Stream {
        connection.with_state(|inner, handle| inner.state(handle).sending.insert(id, Sending::default()));
        let send = SendStream { connection: connection.clone(), id, finished: false };
        Stream { send, recv: RecvStream { connection, id, ended: false } }
    }

    /// Its number on the wire.
    pub fn id(&self) -> u64 {
        self.send.id
    }

    /// The connection that it belongs to.
    pub fn connection(&self) -> &Connection {
        &self.send.connection
    }

    /// Returns once the peer wants nothing more of what is written here, or the connection has ended, whether or not
    /// somebody is writing. Never, if everything has arrived before.
    pub fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let (connection, id) = (self.connection().clone(), self.id());
        async move {
            if poll_fn(|cx| connection.poll_sending(id, cx)).await == Some(SendingEnd::Acked) {
                std::future::pending().await
            }
        }
    }

    /// Each direction by itself.
    pub fn into_split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }
}

impl SendStream {
    /// Gives it up, with a code for the peer's application.
    pub fn reset(&mut self, code: u64) {
        if !self.finished {
            self.finished = true;
            // There is nothing to give up where the connection is gone.
            let _ = self.connection.with(|engine| engine.reset(self.id, code));
        }
    }

    /// Returns once the peer has everything; to be called after the stream was shut down.
    ///
    /// # Errors
    /// The connection has ended before.
    pub async fn wait_acked(&mut self) -> io::Result<()> {
        match poll_fn(|cx| self.connection.poll_sending(self.id, cx)).await {
            Some(_) => Ok(()),
            None => Err(self.connection.broken()),
        }
    }

    fn poll_write_some(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.connection.with_state(|inner, handle| {
            let written = inner.engine.connection(handle).map(|engine| engine.write(self.id, data));
            match written {
                Some(Ok(0)) if !data.is_empty() => {
                    inner.state(handle).writers.insert(self.id, cx.waker().clone());
                }
                _ => inner.wake_driver(),
            }
            written
        });
        match written {
            None => Poll::Ready(Err(self.connection.broken())),
            Some(Err(error)) => Poll::Ready(Err(self.explain(error))),
            Some(Ok(0)) if !data.is_empty() => match self.connection.error() {
                Some(_) => Poll::Ready(Err(self.connection.broken())),
                None => Poll::Pending,
            },
            Some(Ok(len)) => Poll::Ready(Ok(len)),
        }
    }

    fn explain(&self, error: StreamError) -> io::Error {
        if self.connection.error().is_some() { self.connection.broken() } else { io_error(error) }
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.finished {
            return Ok(());
        }
        self.finished = true;
        match self.connection.with(|engine| engine.finish(self.id)) {
            None => Err(self.connection.broken()),
            Some(Err(error)) => Err(self.explain(error)),
            Some(Ok(())) => Ok(()),
        }
    }
}

impl RecvStream {
    fn poll_read_some(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ended || out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let buffer = out.initialize_unfilled();
        let read = self.connection.with_state(|inner, handle| {
            let read = inner.engine.connection(handle).map(|engine| engine.read(self.id, buffer));
            match read {
                Some(Ok(Some(0))) => {
                    inner.state(handle).readers.insert(self.id, cx.waker().clone());
                }
                // Flow control may have to be told.
                _ => inner.wake_driver(),
            }
            read
        });
        match read {
            Some(Ok(Some(0))) => match self.connection.error() {
                Some(_) => Poll::Ready(Err(self.connection.broken())),
                None => Poll::Pending,
            },
            Some(Ok(Some(len))) => {
                out.advance(len);
                Poll::Ready(Ok(()))
            }
            Some(Ok(None)) => {
                self.ended = true;
                Poll::Ready(Ok(()))
            }
            Some(Err(error)) => {
                self.ended = true;
                let gone = self.connection.error().is_some();
                Poll::Ready(Err(if gone { self.connection.broken() } else { io_error(error) }))
            }
            None => Poll::Ready(Err(self.connection.broken())),
        }
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        self.reset(0);
        self.connection.with_state(|inner, handle| {
            let state = inner.state(handle);
            state.writers.remove(&self.id);
            state.sending.remove(&self.id);
        });
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        if !self.ended {
            // There is nothing to stop where the connection is gone.
            let _ = self.connection.with(|engine| engine.stop(self.id, 0));
        }
        self.connection.with_state(|inner, handle| inner.state(handle).readers.remove(&self.id));
    }
}

impl AsyncRead for RecvStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_read_some(cx, out)
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_some(cx, data)
    }

    /// Does nothing: written data leave by themselves.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_mut().finish())
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().recv.poll_read_some(cx, out)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().send.poll_write_some(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_mut().send.finish())
    }
}
