//! Streams as `AsyncRead` and `AsyncWrite`.

use crate::handle::Handle;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream of both directions. Dropped before `shutdown`, its sending half is reset: a part never looks like the whole.
#[derive(Debug)]
pub struct Stream {
    handle: Handle,
    id: u64,
    finished: bool,
    ended: bool,
}

impl Stream {
    pub(crate) fn new(handle: Handle, id: u64) -> Stream {
        handle.shared().lock().unacked.insert(id);
        Stream { handle, id, finished: false, ended: false }
    }

    /// Returns once the peer has everything, or wants no more; to be called after `shutdown`.
    ///
    /// # Errors
    /// The session has ended before.
    pub async fn wait_acked(&self) -> io::Result<()> {
        let arrived = poll_fn(|cx| {
            self.handle.poll_state(cx, |inner| match inner.unacked.contains(&self.id) {
                false => Some(Ok(())),
                true => inner.error.is_some().then(|| Err(inner.broken())),
            })
        });
        arrived.await
    }
}

impl AsyncWrite for Stream {
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

impl AsyncRead for Stream {
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

impl Drop for Stream {
    fn drop(&mut self) {
        let mut inner = self.handle.shared().lock();
        // Nothing is left to give up where the session is gone.
        if !self.finished {
            let _ = inner.session.reset(self.id, 0);
        }
        if !self.ended {
            let _ = inner.session.stop(self.id, 0);
        }
        inner.unacked.remove(&self.id);
        inner.readers.remove(&self.id);
        inner.writers.remove(&self.id);
        inner.wake_driver();
    }
}
