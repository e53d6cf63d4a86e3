//! Connections over the sockets of this host.

use crate::address::Source;
use crate::driver::Driver;
use crate::shared::{Inner, Shared};
use crate::socket::Socket;
use std::future::poll_fn;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use vmcc_transport::{Endpoint as Engine, Handle, PathReport, Server};

/// Sockets and the connections over them. Ends when it and its connections are dropped.
#[derive(Clone)]
pub struct Endpoint(Arc<Held>);

struct Held(Arc<Shared>);

/// A connection as it is now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionReport {
    /// No other connection of its endpoint has this number.
    pub number: u64,
    /// The congestion control of its paths.
    pub algorithm: &'static str,
    /// Paths that are not closed.
    pub paths: Vec<PathReport>,
}

/// The interface of a link-local address.
fn zone(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.abandoned = true;
        inner.wake_driver();
    }
}

impl Endpoint {
    /// Without a socket yet; with `server`, for connections of others as well. Its driver is a task of the current tokio runtime.
    ///
    /// # Errors
    /// The system gives no random bytes.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(server: Option<Server>) -> io::Result<Endpoint> {
        let mut seed = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
        // A server would hear of every client that has gone.
        let is_client = server.is_none();
        let shared = Shared::new(Engine::new(server, seed), is_client);
        tokio::spawn(Driver::new(shared.clone()));
        Ok(Endpoint(Arc::new(Held(shared))))
    }

    /// With the same key, a server that was started again tells its clients that it has lost their connections. It is a secret.
    pub fn set_reset_key(&self, key: &[u8]) {
        self.shared().lock().engine.set_reset_key(key);
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Opens a socket at an address; port 0 is any. Returns what it is bound to.
    ///
    /// # Errors
    /// The system refuses: the port is taken, the address is not of this host, there is no right to it.
    pub fn bind(&self, local: SocketAddr) -> io::Result<SocketAddr> {
        self.add(Socket::open(local, None)?)
    }

    /// Opens a socket at an address of an interface, whose packets leave there where the system allows that. Once per address.
    ///
    /// # Errors
    /// As [`Endpoint::bind`].
    pub fn bind_source(&self, source: &Source, port: u16) -> io::Result<SocketAddr> {
        let local = source.socket_address(port);
        // The same link-local address may be that of several interfaces.
        let same = |open: &SocketAddr| open.ip() == local.ip() && zone(open) == zone(&local);
        if let Some(open) = self.locals().into_iter().find(same) {
            return Ok(open);
        }
        self.add(Socket::open(local, Some(&source.interface))?)
    }

    fn add(&self, socket: Socket) -> io::Result<SocketAddr> {
        let local = socket.local();
        let mut inner = self.shared().lock();
        if inner.is_client {
            socket.enable_icmp_errors();
        }
        inner.sockets.push(socket);
        inner.wake_driver();
        Ok(local)
    }

    /// The socket at an address, if there is one.
    pub fn local_of(&self, ip: IpAddr) -> Option<SocketAddr> {
        self.locals().into_iter().find(|local| local.ip() == ip)
    }

    /// Addresses to which sockets are bound.
    pub fn locals(&self) -> Vec<SocketAddr> {
        self.shared().lock().sockets.iter().map(Socket::local).collect()
    }

    /// Closes sockets that were opened for addresses of interfaces that no longer have them, or that were re-added; but no socket that a
    /// connection uses, which would not know why.
    pub fn close_stale(&self, own: &[Source]) {
        let mut inner = self.shared().lock();
        let used = inner.used_locals();
        inner.sockets.retain(|socket| used.contains(&socket.local()) || !socket.is_stale(own));
        inner.wake_driver();
    }

    /// Closes the socket at an address that is gone.
    pub fn unbind(&self, local: SocketAddr) {
        let mut inner = self.shared().lock();
        inner.sockets.retain(|socket| socket.local() != local);
        inner.wake_driver();
    }

    /// The connections that are in use, as they are now, but no more than `most`; and how many there are.
    pub fn reports(&self, most: usize) -> (Vec<ConnectionReport>, usize) {
        let mut inner = self.shared().lock();
        let Inner { engine, connections, .. } = &mut *inner;
        let used = connections.iter().filter(|(_, state)| state.connected && state.error.is_none());
        let mut handles: Vec<Handle> = used.map(|(handle, _)| *handle).collect();
        handles.sort_unstable();
        let report = |handle: &Handle| {
            let connection = engine.connection(*handle)?;
            let algorithm = connection.algorithm().info().name;
            Some(ConnectionReport { number: handle.number(), algorithm, paths: connection.paths().collect() })
        };
        let reports = handles.iter().take(most).filter_map(report).collect();
        inner.wake_driver();
        (reports, handles.len())
    }

    /// Closes every connection, with a code and a reason for the peers' applications.
    pub fn close_all(&self, code: u64, reason: &str) {
        let mut inner = self.shared().lock();
        let (now, handles) = (inner.now(), inner.connections.keys().copied().collect::<Vec<_>>());
        for handle in handles {
            if let Some(engine) = inner.engine.connection(handle) {
                engine.close(now, code, reason.as_bytes());
            }
        }
        inner.wake_driver();
    }

    /// Waits until every connection is closed, its peer notified, and every relay allocation released.
    pub async fn wait_idle(&self) {
        let begun = self.shared().lock().rounds;
        let mut closing = false;
        poll_fn(|cx| {
            let mut inner = self.shared().lock();
            let Inner { engine, connections, rounds, .. } = &mut *inner;
            let over = |handle| engine.connection(handle).is_none_or(|engine| engine.error().is_some());
            // What was closed before has left in the round that followed.
            if *rounds > begun && connections.keys().copied().all(over) {
                if inner.relays.is_empty() {
                    return Poll::Ready(());
                }
                if !std::mem::replace(&mut closing, true) {
                    inner.close_relays(|_| true);
                }
            }
            inner.idle_wakers.push(cx.waker().clone());
            // Relays' answers wake it by themselves.
            if !closing {
                inner.wake_driver();
            }
            Poll::Pending
        })
        .await;
    }
}
