//! A session as its application sees it.

use crate::driver::Driver;
use crate::handle::{Handle, poll_state};
use crate::shared::{Inner, Shared};
use crate::stream::Stream;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use vmcc_tcp::{CarrierInfo, CarrierStats, Dir, SessionError, Stats};

/// A carrier with its connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CarrierReport {
    /// State at session level.
    pub stats: CarrierStats,
    /// State of its TCP.
    pub info: CarrierInfo,
    /// Congestion control of its sender, if the system tells.
    pub congestion: Option<String>,
    /// Address here.
    pub local: SocketAddr,
    /// Address there: the server's, or an HTTP proxy's.
    pub remote: SocketAddr,
}

impl Inner {
    fn reports(&self) -> Vec<CarrierReport> {
        let report = |stats: CarrierStats| {
            let socket = self.sockets.iter().find(|socket| socket.id == stats.carrier)?;
            let (local, remote) = socket.addresses()?;
            Some(CarrierReport { stats, info: socket.info(), congestion: socket.congestion(), local, remote })
        };
        self.session.carriers().filter(|stats| stats.open).filter_map(report).collect()
    }
}

/// A session that ends although this is held.
#[derive(Clone, Debug)]
pub struct WeakConnection(Weak<Shared>);

impl WeakConnection {
    /// State of the carriers; none once the session has ended.
    pub fn reports(&self) -> Option<Vec<CarrierReport>> {
        let shared = self.0.upgrade()?;
        let inner = shared.lock();
        inner.error.is_none().then(|| inner.reports())
    }

    /// Ends the session, if it has not ended.
    pub fn close(&self, code: u64, reason: &str) {
        if let Some(shared) = self.0.upgrade() {
            shared.close(code, reason);
        }
    }

    /// Returns once the session has ended and its last bytes have left, or could not within a second.
    pub async fn drained(&self) {
        if let Some(shared) = self.0.upgrade() {
            poll_fn(|cx| poll_state(&shared, cx, |inner| inner.drained.then_some(()))).await;
        }
    }
}

impl Shared {
    fn close(&self, code: u64, reason: &str) {
        let mut inner = self.lock();
        inner.session.close(code, reason);
        inner.dispatch();
        inner.wake_driver();
    }
}

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
    pub async fn open_stream(&self) -> io::Result<Stream> {
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
    pub async fn accept_stream(&self) -> io::Result<Stream> {
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
        self.0.shared().close(code, reason);
    }

    /// Reason of its end, if it has ended.
    pub fn error(&self) -> Option<SessionError> {
        self.0.shared().lock().error.clone()
    }

    /// State of its carriers.
    pub fn carriers(&self) -> Vec<CarrierStats> {
        self.0.shared().lock().session.carriers().collect()
    }

    /// State of its carriers whose connection is open, with their addresses.
    pub fn reports(&self) -> Vec<CarrierReport> {
        self.0.shared().lock().reports()
    }

    /// A handle that does not keep the session open.
    pub fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(self.0.shared()))
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
