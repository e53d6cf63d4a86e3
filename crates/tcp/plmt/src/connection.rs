//! A session as its application sees it.

use crate::driver::Driver;
use crate::handle::Handle;
use crate::shared::Shared;
use crate::stream::Stream;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use vmcc_tcp::{CarrierStats, Dir, Stats};

/// A session; its copies are the same one. It is closed when the last of them and of its streams is dropped.
#[derive(Clone, Debug)]
pub struct Connection(Handle);

impl Connection {
    /// A connection whose driver runs as a task of this runtime; `at_end` runs when that is over.
    pub(crate) fn spawn(shared: &Arc<Shared>, at_end: impl FnOnce() + Send + 'static) -> Connection {
        let driver = Driver::new(shared.clone());
        let driven = shared.clone();
        tokio::spawn(async move {
            driver.await;
            let mut inner = driven.lock();
            inner.drained = true;
            inner.wake_waiting();
            drop(inner);
            at_end();
        });
        Connection(Handle::new(shared.clone()))
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.0
    }

    /// Opens a stream of both directions, once the peer allows one more.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn open(&self) -> io::Result<Stream> {
        let id = poll_fn(|cx| {
            self.0.poll_state(cx, |inner| match inner.session.open_stream(Dir::Bi) {
                None if inner.error.is_none() => None,
                id => Some(id.ok_or_else(|| inner.broken())),
            })
        });
        Ok(Stream::new(self.0.clone(), id.await?))
    }

    /// The next stream that the peer has opened.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn accept(&self) -> io::Result<Stream> {
        let id = poll_fn(|cx| {
            self.0.poll_state(cx, |inner| match inner.opened.pop_front() {
                None if inner.error.is_none() => None,
                id => Some(id.ok_or_else(|| inner.broken())),
            })
        });
        Ok(Stream::new(self.0.clone(), id.await?))
    }

    /// Returns once the session has ended, with the reason.
    pub async fn closed(&self) -> io::Error {
        poll_fn(|cx| self.0.poll_state(cx, |inner| inner.error.is_some().then(|| inner.broken()))).await
    }

    /// Returns once the session has ended and its last bytes have left, or could not within a second: before that a runtime must not end.
    pub async fn drained(&self) {
        poll_fn(|cx| self.0.poll_state(cx, |inner| inner.drained.then_some(()))).await;
    }

    /// Ends the session. Data that have not arrived are lost: see [`Stream::wait_acked`].
    pub fn close(&self, code: u64, reason: &str) {
        let mut inner = self.0.shared().lock();
        inner.session.close(code, reason);
        inner.dispatch();
        inner.wake_driver();
    }

    /// State of its carriers.
    pub fn carriers(&self) -> Vec<CarrierStats> {
        self.0.shared().lock().session.carriers().collect()
    }

    /// Its counters.
    pub fn stats(&self) -> Stats {
        self.0.shared().lock().session.stats()
    }

    /// Tells the peer of an address at which this end can be reached, or cannot any more.
    pub fn announce(&self, address: SocketAddr, reachable: bool) {
        let mut inner = self.0.shared().lock();
        inner.session.announce(address, reachable);
        inner.wake_driver();
    }
}
