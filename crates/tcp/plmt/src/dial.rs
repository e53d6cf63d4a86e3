//! The client: routes are dialled side by side, and again after they end.

use crate::connection::Connection;
use crate::handle::poll_state;
use crate::security::ClientSecurity;
use crate::shared::{Shared, time_since};
use crate::socket::NewSocket;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use vmcc_tcp::{CarrierId, Config, Secrets, Session, SessionError};

/// Time for a connection and its TLS handshake.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Waiting time before a route is dialled again, at first; it doubles.
const REDIAL_DELAY: Duration = Duration::from_millis(250);
/// That time at most.
const MAX_REDIAL_DELAY: Duration = Duration::from_secs(10);

/// A route to the server: from a local address, by an interface, to one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Source address; none: the system's choice.
    pub local: Option<IpAddr>,
    /// Interface by which its packets leave (`SO_BINDTODEVICE`); none: the routing table's choice.
    pub device: Option<String>,
    /// The server.
    pub remote: SocketAddr,
}

/// Reason of a session that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No route was given.
    #[error("no route to the server was given; name at least one of its addresses")]
    NoRoute,
    /// No route reached the server; the last failure.
    #[error("cannot connect to {remote}: {error}; check the address and that the server runs")]
    Unreachable {
        /// The server's address.
        remote: SocketAddr,
        /// The system's or TLS's error.
        error: io::Error,
    },
    /// The server answered and refused, or ended the session at once.
    #[error("{0}")]
    Session(#[from] SessionError),
    /// The system has no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(io::Error),
}

/// Makes a session along the first route that answers; the others join it. Each is dialled again for as long as the session lives.
///
/// # Errors
/// Every route failed once before one answered, or the server refused.
pub async fn connect(
    config: Config,
    security: ClientSecurity,
    routes: Vec<Route>,
) -> Result<Connection, ConnectError> {
    if routes.is_empty() {
        return Err(ConnectError::NoRoute);
    }
    let begin = Instant::now();
    let unsent_limit = config.unsent_limit;
    let secrets = secrets().map_err(ConnectError::Random)?;
    let session = Session::connect(time_since(begin), config, secrets);
    let shared = Shared::new(session, begin, unsent_limit);
    let connection = Connection::spawn(&shared, || {});
    let failures = Arc::new(Failures { left: Mutex::new((routes.len(), None)) });
    for route in routes {
        let weak = Arc::downgrade(&shared);
        tokio::spawn(keep(weak, route, security.clone(), failures.clone()));
    }
    let outcome = poll_fn(|cx| {
        connection.handle().poll_state(cx, |inner| match &inner.error {
            Some(error) => Some(Err(error.clone())),
            None => inner.connected.then_some(Ok(())),
        })
    });
    match outcome.await {
        Ok(()) => Ok(connection),
        Err(error) => Err(failures.last().map_or(ConnectError::Session(error), |(remote, error)| {
            ConnectError::Unreachable { remote, error }
        })),
    }
}

pub(crate) fn secrets() -> io::Result<Secrets> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("the random number generator failed"))?;
    Ok(Secrets(bytes))
}

/// First failures of the routes: the session is given up when all have failed before it was made.
struct Failures {
    left: Mutex<(usize, Option<(SocketAddr, io::Error)>)>,
}

impl Failures {
    /// Notes a route's first failure; true if no route is left.
    fn note(&self, remote: SocketAddr, error: io::Error) -> bool {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = (left.0 - 1, Some((remote, error)));
        left.0 == 0
    }

    fn last(&self) -> Option<(SocketAddr, io::Error)> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if left.0 == 0 { left.1.take() } else { None }
    }
}

/// Keeps a carrier along a route until the session ends.
async fn keep(shared: Weak<Shared>, route: Route, security: ClientSecurity, failures: Arc<Failures>) {
    let (mut delay, mut failed) = (REDIAL_DELAY, false);
    loop {
        match dial(&route, &security).await {
            Ok(new) => {
                let Some(shared) = shared.upgrade() else { return };
                let Some(id) = add(&shared, new).await else { return };
                wait_end(&shared, id).await;
                if shared.lock().error.is_some() {
                    return;
                }
                delay = REDIAL_DELAY;
            }
            Err(error) => {
                let Some(shared) = shared.upgrade() else { return };
                let mut inner = shared.lock();
                if !failed && !inner.connected && failures.note(route.remote, error) {
                    inner.session.close(0, "");
                    inner.dispatch();
                    inner.wake_driver();
                }
                failed = true;
                if inner.error.is_some() {
                    return;
                }
            }
        }
        sleep(delay).await;
        delay = (2 * delay).min(MAX_REDIAL_DELAY);
    }
}

async fn dial(route: &Route, security: &ClientSecurity) -> io::Result<NewSocket> {
    let work = async {
        let mut stream = open(route).await?;
        let secured = security.handshake(&mut stream).await?;
        Ok(NewSocket { stream, secured })
    };
    timeout(DIAL_TIMEOUT, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn open(route: &Route) -> io::Result<TcpStream> {
    let (socket, any): (_, IpAddr) = match route.remote {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, Ipv4Addr::UNSPECIFIED.into()),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, Ipv6Addr::UNSPECIFIED.into()),
    };
    #[cfg(target_os = "linux")]
    if let Some(device) = &route.device {
        socket2::SockRef::from(&socket).bind_device(Some(device.as_bytes()))?;
    }
    socket.bind(SocketAddr::new(route.local.unwrap_or(any), 0))?;
    socket.connect(route.remote).await
}

/// Adds a connection to the session as soon as that takes one; none if it has ended.
async fn add(shared: &Shared, new: NewSocket) -> Option<CarrierId> {
    let mut new = Some(new);
    let added = poll_fn(|cx| {
        poll_state(shared, cx, |inner| {
            if inner.error.is_some() {
                return Some(None);
            }
            let (now, binding) = (inner.now(), new.as_ref()?.secured.binding);
            let id = inner.session.add_carrier(now, binding)?;
            inner.add_socket(id, new.take()?);
            Some(Some(id))
        })
    });
    added.await
}

async fn wait_end(shared: &Shared, id: CarrierId) {
    let ended = poll_fn(|cx| {
        poll_state(shared, cx, |inner| {
            let is_live = inner.session.carrier_ids().any(|own| own == id);
            (!is_live || inner.error.is_some()).then_some(())
        })
    });
    ended.await;
}
