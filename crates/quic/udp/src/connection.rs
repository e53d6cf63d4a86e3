//! A connection as applications hold it.

use crate::endpoint::Endpoint;
use crate::event::PathEvent;
use crate::shared::{Inner, SendingEnd, State, closed_error};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use vmcc_transport::crypto::{Tls, TlsError};
use vmcc_transport::{
    Config, Connection as Engine, ConnectionError, Handle, PathError, PathReport, Route, Stats,
};

/// A connection; closed when the last of its handles and streams is dropped.
#[derive(Clone)]
pub struct Connection(Arc<Held>);

struct Held {
    endpoint: Endpoint,
    handle: Handle,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut inner = self.endpoint.shared().lock();
        let now = inner.now();
        if let Some(engine) = inner.engine.connection(self.handle).filter(|engine| engine.error().is_none()) {
            engine.close(now, 0, b"");
        }
        inner.connections.remove(&self.handle);
        inner.wake_driver();
    }
}

impl Endpoint {
    /// Connects along one route, which another path may follow.
    ///
    /// # Errors
    /// The name is none, or the TLS configuration does not suit.
    pub fn connect_route(
        &self,
        tls: Arc<dyn Tls>,
        config: Arc<Config>,
        name: &str,
        route: Route,
    ) -> Result<Connection, TlsError> {
        let mut inner = self.shared().lock();
        let now = inner.now();
        inner.refusals.remove(&route);
        let handle = inner.engine.connect(now, tls, config, name, route, Vec::new())?;
        inner.connections.insert(handle, State::default());
        inner.start_icmp_polling(now);
        inner.wake_driver();
        drop(inner);
        Ok(Connection::new(self.clone(), handle))
    }

    /// The next connection of a peer whose handshake is complete.
    pub async fn accept(&self) -> Connection {
        let handle = poll_fn(|cx| {
            let mut inner = self.shared().lock();
            match inner.incoming.pop_front() {
                Some(handle) => Poll::Ready(handle),
                None => {
                    inner.accept_wakers.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        });
        Connection::new(self.clone(), handle.await)
    }
}

impl Connection {
    fn new(endpoint: Endpoint, handle: Handle) -> Connection {
        Connection(Arc::new(Held { endpoint, handle }))
    }

    /// The endpoint that it belongs to.
    pub fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// With the engine's connection, as long as there is one.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        let mut inner = self.0.endpoint.shared().lock();
        let answer = inner.engine.connection(self.0.handle).map(call);
        inner.wake_driver();
        answer
    }

    /// With everything; for who waits.
    pub(crate) fn with_state<T>(&self, call: impl FnOnce(&mut Inner, Handle) -> T) -> T {
        call(&mut self.0.endpoint.shared().lock(), self.0.handle)
    }

    /// Waits until `found` finds something, or the connection is over.
    pub(crate) async fn wait<T>(
        &self,
        mut found: impl FnMut(&mut State, Option<&mut Engine>) -> Option<T>,
    ) -> Result<T, ConnectionError> {
        poll_fn(|cx| {
            let mut inner = self.0.endpoint.shared().lock();
            let Inner { engine, connections, .. } = &mut *inner;
            let state = connections.entry(self.0.handle).or_default();
            if let Some(answer) = found(state, engine.connection(self.0.handle)) {
                inner.wake_driver();
                return Poll::Ready(Ok(answer));
            }
            if let Some(error) = &state.error {
                return Poll::Ready(Err(error.clone()));
            }
            state.wait(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Returns once streams can be used.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn connected(&self) -> Result<(), ConnectionError> {
        self.wait(|state, _| state.connected.then_some(())).await
    }

    /// Sends a datagram, which may be lost, and is dropped where it would wait too long; whether it fits a packet and there was room.
    pub fn send_datagram(&self, data: &[u8]) -> bool {
        self.with_state(|inner, handle| {
            let now = inner.now();
            let sent = inner.engine.connection(handle).is_some_and(|engine| engine.send_datagram(now, data));
            inner.wake_driver();
            sent
        })
    }

    /// The largest datagram that can be sent now; none if the peer takes none.
    pub fn max_datagram(&self) -> Option<usize> {
        self.with(|engine| engine.max_datagram()).flatten()
    }

    /// The next datagram that comes.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn read_datagram(&self) -> Result<Vec<u8>, ConnectionError> {
        self.wait(|_, engine| engine?.read_datagram()).await
    }

    /// The next thing that happens to a path.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn path_event(&self) -> Result<PathEvent, ConnectionError> {
        self.wait(|state, _| state.events.pop_front()).await
    }

    /// Reason of its end, once it has ended.
    pub async fn closed(&self) -> ConnectionError {
        match self.wait(|_, _| None::<()>).await {
            Err(error) => error,
            Ok(()) => unreachable!("nothing is waited for but the end"),
        }
    }

    /// Reason of its end, if it has ended.
    pub fn error(&self) -> Option<ConnectionError> {
        self.with_state(|inner, handle| inner.connections.get(&handle).and_then(|state| state.error.clone()))
    }

    /// State of a stream's written data; `None`: it, or the connection, is no more.
    pub(crate) fn poll_sending(&self, stream: u64, cx: &Context<'_>) -> Poll<Option<SendingEnd>> {
        self.with_state(|inner, handle| {
            let State { error, sending, .. } = inner.state(handle);
            let Some(sending) = sending.get_mut(&stream) else { return Poll::Ready(None) };
            if sending.end.is_some() || error.is_some() {
                return Poll::Ready(sending.end);
            }
            sending.wait(cx.waker());
            Poll::Pending
        })
    }

    pub(crate) fn broken(&self) -> io::Error {
        match self.error() {
            Some(error) => closed_error(&error),
            None => io::Error::from(io::ErrorKind::NotConnected),
        }
    }

    /// Opens another path; its event tells whether it carries data.
    ///
    /// # Errors
    /// It cannot be opened now; the error says why.
    pub fn open_path(&self, route: Route) -> Result<u32, PathError> {
        self.with_state(|inner, handle| {
            let now = inner.now();
            inner.refusals.remove(&route);
            let opened = inner.engine.connection(handle).map(|engine| engine.open_path(now, route));
            inner.wake_driver();
            opened.unwrap_or(Err(PathError::Unknown))
        })
    }

    /// Gives a path up; what is on it leaves on the others.
    ///
    /// # Errors
    /// There is no such path, or it is the last one.
    pub fn abandon_path(&self, path: u32) -> Result<(), PathError> {
        self.with_state(|inner, handle| {
            let now = inner.now();
            let done = inner.engine.connection(handle).map(|engine| engine.abandon_path(now, path));
            inner.wake_driver();
            done.unwrap_or(Err(PathError::Unknown))
        })
    }

    /// Reason of the system's last refusal to send along a route, if there was one.
    pub fn refusal(&self, route: Route) -> Option<String> {
        self.with_state(|inner, _| inner.refusals.get(&route).map(|(_, text)| text.clone()))
    }

    /// The paths that there are, with their figures.
    pub fn paths(&self) -> Vec<PathReport> {
        self.with(|engine| engine.paths().collect()).unwrap_or_default()
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.with(|engine| engine.stats()).unwrap_or_default()
    }

    /// Returns true if more than one path is possible: both ends speak multipath QUIC.
    pub fn is_multipath(&self) -> bool {
        self.with(|engine| engine.is_multipath()).unwrap_or(false)
    }

    /// Returns true if paths can be opened.
    pub fn is_confirmed(&self) -> bool {
        self.with(|engine| engine.is_confirmed()).unwrap_or(false)
    }

    /// Begins an update of keys (RFC 9001 section 6), unless one is under way or it is over; whether it did. Keys that have encrypted much are updated
    /// without being told.
    pub fn update_keys(&self) -> bool {
        self.with_state(|inner, handle| {
            let now = inner.now();
            let begun = inner.engine.connection(handle).is_some_and(|engine| engine.update_keys(now));
            inner.wake_driver();
            begun
        })
    }

    /// Number of key updates, by whichever end.
    pub fn key_updates(&self) -> u64 {
        self.with(|engine| engine.key_updates()).unwrap_or(0)
    }

    /// The peer's certificates, its own first.
    pub fn peer_certificates(&self) -> Vec<Vec<u8>> {
        self.with(|engine| engine.peer_certificates()).unwrap_or_default()
    }

    /// The application protocol that was agreed.
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.with(|engine| engine.alpn().map(<[u8]>::to_vec)).flatten()
    }

    /// Ends it, with a code and a reason for the peer's application.
    pub fn close(&self, code: u64, reason: &str) {
        self.with_state(|inner, handle| {
            let now = inner.now();
            if let Some(engine) = inner.engine.connection(handle) {
                engine.close(now, code, reason.as_bytes());
            }
            inner.wake_driver();
        });
    }
}
