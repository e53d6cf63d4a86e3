//! The client: routes are dialled side by side, and again after they end.

use crate::connection::Connection;
use crate::handle::poll_state;
use crate::http;
use crate::pipe::{PipeDialer, TcpPipe};
use crate::security::{ClientSecurity, Secured, random_secret};
use crate::shared::{Shared, time_since};
use crate::socket::NewSocket;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use vmcc_tcp::{CarrierId, Config, Secrets, Session, SessionError};

/// Time for a connection and its TLS handshake.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay of TCP behind a preferred dialer (Connection Attempt Delay of RFC 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Waiting time before a route is dialled again, at first; it doubles.
const REDIAL_DELAY: Duration = Duration::from_millis(250);
/// That time at most.
const MAX_REDIAL_DELAY: Duration = Duration::from_secs(10);

/// A route to the server: from an address here, by an interface, to one of its addresses, perhaps by an HTTP proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Source address; none: the system's choice.
    pub local: Option<SocketAddr>,
    /// Interface by which its packets leave (`SO_BINDTODEVICE`, where the system allows it); none: the routing table's choice.
    pub device: Option<String>,
    /// The server.
    pub remote: SocketAddr,
    /// HTTP proxy that is asked to CONNECT (RFC 9110, section 9.3.6).
    pub proxy: Option<HttpProxy>,
}

/// A request to an HTTP proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HttpProxy {
    /// The proxy.
    pub address: SocketAddr,
    /// HOST:PORT of the server, as the proxy resolves it.
    pub target: String,
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
    /// The preferred dialer reached nothing.
    #[error("{0}")]
    Preferred(io::Error),
    /// Neither did TCP.
    #[error("{preferred}\nTCP to {remote}: {tcp}")]
    Neither {
        /// Error of the preferred dialer.
        preferred: io::Error,
        /// The server's address for TCP.
        remote: SocketAddr,
        /// The system's or TLS's error.
        tcp: io::Error,
    },
    /// The server answered and refused, or ended the session at once.
    #[error("{0}")]
    Session(#[from] SessionError),
    /// The system has no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(io::Error),
}

/// Makes a session along the first route that answers; the others join it. Each is dialled again for as long as the session lives and the
/// [`Dialer`] has it. Where there is a `preferred` dialer, TCP starts 250 ms after it, and its carriers are backups.
///
/// # Errors
/// Every route failed once before one answered, or the server refused.
pub async fn connect(
    config: Config,
    security: ClientSecurity,
    routes: Vec<Route>,
    preferred: Option<Arc<dyn PipeDialer>>,
) -> Result<(Connection, Dialer), ConnectError> {
    if routes.is_empty() && preferred.is_none() {
        return Err(ConnectError::NoRoute);
    }
    let begin = Instant::now();
    let dialing = Dialing { security, notsent_lowat: config.notsent_lowat(), preferred };
    let secrets = Secrets(random_secret().map_err(ConnectError::Random)?);
    let session = Session::connect(time_since(begin), config, secrets);
    let shared = Shared::new(session, begin);
    let connection = Connection::spawn(&shared, || {});
    let dialer =
        Dialer { shared: Arc::downgrade(&shared), dialing: Arc::new(dialing), state: Arc::default() };
    // Registered together: the session is given up when all have failed once.
    dialer.set_targets(routes.into_iter().map(Some), true);
    let outcome = poll_fn(|cx| {
        connection.handle().poll_state(cx, |inner| match &inner.error {
            Some(error) => Some(Err(error.clone())),
            None => inner.connected.then_some(Ok(())),
        })
    });
    match outcome.await {
        Ok(()) => Ok((connection, dialer)),
        Err(error) => Err(dialer.unreachable().unwrap_or(ConnectError::Session(error))),
    }
}

/// Dials the routes of a client's session.
#[derive(Debug)]
pub struct Dialer {
    shared: Weak<Shared>,
    dialing: Arc<Dialing>,
    state: Arc<Mutex<State>>,
}

struct Dialing {
    security: ClientSecurity,
    notsent_lowat: u64,
    preferred: Option<Arc<dyn PipeDialer>>,
}

impl std::fmt::Debug for Dialing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dialing({:?})", self.security)
    }
}

/// A route over TCP, or the preferred dialer.
type To = Option<Route>;

#[derive(Debug, Default)]
struct State {
    tasks: HashMap<To, AbortHandle>,
    /// Last failure of what does not answer.
    failures: HashMap<To, io::Error>,
}

impl Dialer {
    /// Replaces the routes: new ones are dialled, carriers of those that are gone are closed.
    pub fn set_routes(&self, routes: Vec<Route>) {
        self.set_targets(routes.into_iter().map(Some), self.dialing.preferred.is_some());
    }

    fn set_targets(&self, routes: impl Iterator<Item = To>, preferred: bool) {
        let preferred = (preferred && self.dialing.preferred.is_some()).then_some(None);
        let all: Vec<To> = preferred.into_iter().chain(routes).collect();
        let mut state = lock(&self.state);
        let State { tasks, failures } = &mut *state;
        failures.retain(|to, _| all.contains(to));
        tasks.retain(|to, task| {
            let stays = all.contains(to);
            if !stays {
                task.abort();
            }
            stays
        });
        for to in all {
            tasks.entry(to.clone()).or_insert_with(|| {
                let keep = keep(self.shared.clone(), to, self.dialing.clone(), self.state.clone());
                tokio::spawn(keep).abort_handle()
            });
        }
    }

    /// Routes that do not answer now, with the reason.
    pub fn failures(&self) -> Vec<(Route, String)> {
        let state = lock(&self.state);
        let failures = state.failures.iter();
        failures.filter_map(|(to, error)| Some((to.clone()?, error.to_string()))).collect()
    }

    /// The failure of everything, if everything has failed.
    fn unreachable(&self) -> Option<ConnectError> {
        let mut state = lock(&self.state);
        let all = !state.has_untried();
        let preferred = state.failures.remove(&None);
        let route = state.failures.drain().find_map(|(to, error)| Some((to?, error)));
        match (route, preferred) {
            _ if !all => None,
            (Some((route, error)), None) => Some(ConnectError::Unreachable { remote: route.remote, error }),
            (None, Some(error)) => Some(ConnectError::Preferred(error)),
            (Some((route, tcp)), Some(error)) => {
                Some(ConnectError::Neither { preferred: error, remote: route.remote, tcp })
            }
            (None, None) => None,
        }
    }
}

impl State {
    fn has_untried(&self) -> bool {
        self.tasks.keys().any(|route| !self.failures.contains_key(route))
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a carrier along a route until the session ends.
async fn keep(shared: Weak<Shared>, to: To, dialing: Arc<Dialing>, state: Arc<Mutex<State>>) {
    let mut delay = REDIAL_DELAY;
    if to.is_some() && dialing.preferred.is_some() {
        sleep(ATTEMPT_DELAY).await;
    }
    loop {
        match dialing.dial(to.as_ref()).await {
            Ok(new) => {
                lock(&state).failures.remove(&to);
                let Some(shared) = shared.upgrade() else { return };
                let Some(id) = add(&shared, new).await else { return };
                let carrier = HeldCarrier { shared: Arc::downgrade(&shared), id };
                wait_end(&shared, id).await;
                drop(carrier);
                if shared.lock().error.is_some() {
                    return;
                }
                delay = REDIAL_DELAY;
            }
            Err(error) => {
                let Some(shared) = shared.upgrade() else { return };
                let is_last = {
                    let mut state = lock(&state);
                    state.failures.insert(to.clone(), error);
                    !state.has_untried()
                };
                let mut inner = shared.lock();
                if is_last && !inner.connected {
                    inner.session.close(0, "");
                    inner.dispatch();
                    inner.wake_driver();
                }
                if inner.error.is_some() {
                    return;
                }
            }
        }
        sleep(delay).await;
        delay = (2 * delay).min(MAX_REDIAL_DELAY);
    }
}

/// A carrier that ends with the task of its route.
struct HeldCarrier {
    shared: Weak<Shared>,
    id: CarrierId,
}

impl Drop for HeldCarrier {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut inner = shared.lock();
        // The last bytes of a closed session are the driver's to send.
        if inner.error.is_some() {
            return;
        }
        let now = inner.now();
        inner.session.carrier_closed(now, self.id, "its route is gone");
        inner.dispatch();
        inner.wake_driver();
    }
}

impl Dialing {
    async fn dial(&self, to: Option<&Route>) -> io::Result<NewSocket> {
        match (to, &self.preferred) {
            (Some(route), _) => {
                let work = self.dial_tcp(route);
                timeout(DIAL_TIMEOUT, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
            (None, Some(dialer)) => {
                let (pipe, binding) = dialer.dial().await?;
                Ok(NewSocket { pipe, secured: Secured::by_pipe(binding) })
            }
            (None, None) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    async fn dial_tcp(&self, route: &Route) -> io::Result<NewSocket> {
        let mut stream = open(route).await?;
        if let Some(proxy) = &route.proxy {
            http::connect(&mut stream, &proxy.target).await?;
        }
        let secured = self.security.handshake(&mut stream).await?;
        let pipe = TcpPipe::new(stream, self.notsent_lowat, self.preferred.is_some());
        Ok(NewSocket { pipe: Box::new(pipe), secured })
    }
}

async fn open(route: &Route) -> io::Result<TcpStream> {
    let to = route.proxy.as_ref().map_or(route.remote, |proxy| proxy.address);
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    #[cfg(target_os = "linux")]
    if let Some(device) = &route.device {
        let _ = socket2::SockRef::from(&socket).bind_device(Some(device.as_bytes()));
    }
    if let Some(local) = route.local {
        socket.bind(local)?;
    }
    socket.connect(to).await
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
