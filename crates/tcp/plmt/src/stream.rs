//! Streams as `AsyncRead` and `AsyncWrite`.

use crate::handle::Handle;
use crate::shared::SendingEnd;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Both directions of a stream.
#[derive(Debug)]
pub struct Stream {
    send: SendStream,
    recv: RecvStream,
}

/// The direction from here. Dropped before `shutdown`, it is reset: a part never looks like the whole.
#[derive(Debug)]
pub struct SendStream {
    handle: Handle,
    id: u64,
    finished: bool,
}

/// The receiving direction. Dropped before its end, it sends STOP_SENDING.
#[derive(Debug)]
pub struct RecvStream {
    handle: Handle,
    id: u64,
    ended: bool,
}

impl Stream {
    pub(crate) fn new(handle: Handle, id: u64) -> Stream {
        handle.shared().lock().sending.insert(id, None);
        let send = SendStream { handle: handle.clone(), id, finished: false };
        Stream { send, recv: RecvStream { handle, id, ended: false } }
    }

    /// Returns once the peer wants nothing more of what is written here, or the session has ended, also while nobody writes. Never, if
    /// everything has arrived before.
    pub fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let (handle, id) = (self.send.handle.clone(), self.send.id);
        async move {
            if sending_end(&handle, id).await == Some(SendingEnd::Acked) {
                std::future::pending().await
            }
        }
    }

    /// Each direction by itself.
    pub fn into_split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }
}

/// End of a stream's written data; none: the stream or its session is gone.
async fn sending_end(handle: &Handle, id: u64) -> Option<SendingEnd> {
    let end = poll_fn(|cx| {
        handle.poll_state(cx, |inner| match inner.sending.get(&id) {
            None => Some(None),
            Some(None) => inner.error.is_some().then_some(None),
            Some(end) => Some(*end),
        })
    });
    end.await
}

impl SendStream {
    /// Returns once the peer has everything, or wants no more; to be called after `shutdown`.
    ///
    /// # Errors
    /// The session has ended before.
    pub async fn wait_acked(&self) -> io::Result<()> {
        match sending_end(&self.handle, self.id).await {
            Some(_) => Ok(()),
            None => Err(self.handle.shared().lock().broken()),
        }
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.handle.shared().lock();
        if inner.error.is_some() {
            return Poll::Ready(Err(inner.broken()));
        }
        match inner.session.write(self.id, data) {
            Ok(0) if !data.is_empty() => {
                inner.writers.insert(self.id, cx.waker().clone());
                Poll::Pending
            }
            Ok(len) => {
                inner.wake_driver();
                Poll::Ready(Ok(len))
            }
            Err(error) => Poll::Ready(Err(inner.explain(error))),
        }
    }

    /// Does nothing: written data leave by themselves.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::replace(&mut self.finished, true) {
            return Poll::Ready(Ok(()));
        }
        let mut inner = self.handle.shared().lock();
        if inner.error.is_some() {
            return Poll::Ready(Err(inner.broken()));
        }
        let finished = inner.session.finish(self.id);
        inner.wake_driver();
        Poll::Ready(finished.map_err(|error| inner.explain(error)))
    }
}

impl AsyncRead for RecvStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended || out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let handle = self.handle.clone();
        let mut inner = handle.shared().lock();
        match inner.session.read(self.id, out.initialize_unfilled()) {
            Ok(Some(0)) if inner.error.is_some() => Poll::Ready(Err(inner.broken())),
            Ok(Some(0)) => {
                inner.readers.insert(self.id, cx.waker().clone());
                Poll::Pending
            }
            Ok(Some(len)) => {
                out.advance(len);
                // Flow control may have more to say.
                inner.wake_driver();
                Poll::Ready(Ok(()))
            }
            Ok(None) => {
                self.ended = true;
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                self.ended = true;
                Poll::Ready(Err(inner.explain(error)))
            }
        }
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let mut inner = self.handle.shared().lock();
        // Nothing is left to give up where the session is gone.
        if !self.finished {
            let _ = inner.session.reset(self.id, 0);
        }
        inner.sending.remove(&self.id);
        inner.writers.remove(&self.id);
        // A waiter for its end gets an error.
        inner.wake_waiting();
        inner.wake_driver();
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        let mut inner = self.handle.shared().lock();
        if !self.ended {
            let _ = inner.session.stop(self.id, 0);
        }
        inner.readers.remove(&self.id);
        inner.wake_driver();
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

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.send).poll_shutdown(cx)
    }
}
