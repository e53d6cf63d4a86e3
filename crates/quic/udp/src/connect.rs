//! Connection establishment between multihomed hosts: staggered attempts over address pairs (Happy Eyeballs, RFC 8305).

use crate::address::{Source, is_link_local, link_local, sources};
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::relay::{ALLOCATION_LOST, Relay, RelayState};
use crate::slots::{self, Ends};
use crate::socket::is_loopback;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};
use vmcc_transport::crypto::{Tls, TlsError};
use vmcc_transport::{Config, ConnectionError, Route};

/// Connection attempt delay (RFC 8305 section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// An attempt is given up after this time.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(8);

/// Default of [`Target::most`]: mTCP's number of paths (section 3.3 of its paper).
const DEFAULT_MAX_PATHS: usize = 5;

/// Addresses of both ends.
#[derive(Clone, Debug)]
pub struct Target {
    /// The name that certificates are to be for, where they are checked by name.
    pub name: String,
    /// Its addresses, the most likely first.
    pub addresses: Vec<SocketAddr>,
    /// Addresses here to use; none: every usable one.
    pub locals: Vec<IpAddr>,
    /// Relays, which are used as long as there are fewer paths than `most`.
    pub relays: Vec<Relay>,
    /// Number of paths above which no further relay is used.
    pub most: usize,
}

impl Default for Target {
    fn default() -> Target {
        let (addresses, locals, relays) = (Vec::new(), Vec::new(), Vec::new());
        Target { name: String::new(), addresses, locals, relays, most: DEFAULT_MAX_PATHS }
    }
}

/// Possible path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// From here.
    pub source: Source,
    /// By this relay, if by any.
    pub relay: Option<Relay>,
    /// To there.
    pub remote: SocketAddr,
}

/// Failed attempt over an address pair, with its reason.
#[derive(Clone, Debug)]
pub struct FailedAttempt {
    /// From here.
    pub local: IpAddr,
    /// By this relay, if by any.
    pub relay: Option<String>,
    /// To there.
    pub remote: SocketAddr,
    /// Reason.
    pub reason: String,
}

/// Error of [`Endpoint::connect`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No address here has the family of one there.
    #[error(
        "no address of this host can be a path to {0}: no interface with an address of the same family is up"
    )]
    NoPair(String),
    /// Every pair was tried.
    #[error("no path works:{}", list(.0))]
    NoPath(Vec<FailedAttempt>),
    /// It answered, and one end refused the other.
    #[error("{remote}: {error}")]
    Refused {
        /// Peer that answered.
        remote: SocketAddr,
        /// Fault.
        error: ConnectionError,
    },
    /// The settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system does not tell its addresses.
    #[error("this host's addresses cannot be listed: {0}")]
    Sources(#[source] io::Error),
}

fn list(attempts: &[FailedAttempt]) -> String {
    attempts.iter().map(|attempt| format!("\n  {attempt}")).collect()
}

impl fmt::Display for FailedAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.relay {
            None => write!(f, "{} to {}: {}", self.local, self.remote, self.reason),
            Some(relay) => write!(f, "{} by {relay} to {}: {}", self.local, self.remote, self.reason),
        }
    }
}

impl Target {
    /// Candidates for paths now: direct ones before those by relays, of each the most diverse first.
    ///
    /// # Errors
    /// The system does not tell its addresses.
    pub fn candidates(&self) -> io::Result<Vec<Candidate>> {
        let own = sources()?;
        let to = |remote: SocketAddr| {
            let from = self.sources_for(remote, &own).into_iter();
            from.map(move |source| Candidate { source, relay: None, remote })
        };
        let direct = order_by_diversity(self.addresses.iter().copied().flat_map(to).collect());
        let by = |relay: &Relay| {
            let from = self.sources_for(relay.address, &own);
            // A relay does not lead back to this host's own addresses, to its links, nor to its own loopback.
            let near = |ip| is_loopback(ip) || is_link_local(ip) || own.iter().any(|own| own.ip == ip);
            let far = |to: &&SocketAddr| !near(to.ip());
            let to = self.addresses.iter().filter(far).copied();
            let by = |remote| from.iter().map(move |source| (source.clone(), remote)).collect::<Vec<_>>();
            let relay = Some(relay.clone());
            let pairs = to.flat_map(by).collect::<Vec<_>>().into_iter();
            pairs.map(move |(source, remote)| Candidate { source, relay: relay.clone(), remote })
        };
        let relayed = order_by_diversity(self.relays.iter().flat_map(by).collect());
        Ok(direct.into_iter().chain(relayed).collect())
    }

    /// Addresses here that packets to there can leave from.
    fn sources_for(&self, to: SocketAddr, own: &[Source]) -> Vec<Source> {
        let same_family = |ip: &IpAddr| ip.is_ipv4() == to.is_ipv4();
        let here = is_loopback(to.ip()) || own.iter().any(|source| source.ip == to.ip());
        let link = match to {
            SocketAddr::V6(to) if is_link_local(IpAddr::V6(*to.ip())) => {
                Some(link_local(to.scope_id()).unwrap_or_default())
            }
            _ => None,
        };
        match (&self.locals[..], link) {
            // Those of one link lead to each other alone.
            ([], Some(link)) => link,
            // This host's own addresses are reached by the loopback.
            ([], None) if here => vec![Source { ip: to.ip(), interface: String::new() }],
            ([], None) => {
                let leads = |ip: IpAddr| same_family(&ip) && (ip.is_ipv4() || !is_link_local(ip));
                own.iter().filter(|source| leads(source.ip)).cloned().collect()
            }
            (locals, link) => {
                let own = link.as_deref().unwrap_or(own);
                locals.iter().copied().filter(same_family).map(|ip| Source::at(ip, own)).collect()
            }
        }
    }
}

/// Candidates in the order in which they are worth a path.
fn order_by_diversity(all: Vec<Candidate>) -> Vec<Candidate> {
    slots::order_by_diversity(all, |one| Ends {
        interface: one.link(),
        source: one.source.ip.to_string(),
        relay: one.relay.as_ref().map(Relay::to_string),
        remote: one.remote.to_string(),
    })
}

impl Candidate {
    /// The interface that it begins at; its address where none is known.
    pub(crate) fn link(&self) -> String {
        let Source { ip, interface } = &self.source;
        if interface.is_empty() { ip.to_string() } else { interface.clone() }
    }

    fn failed(&self, reason: String) -> FailedAttempt {
        let relay = self.relay.as_ref().map(Relay::to_string);
        FailedAttempt { local: self.source.ip, relay, remote: self.remote, reason }
    }
}

/// An attempt under way.
struct PendingAttempt {
    candidate: Candidate,
    done: Pin<Box<dyn Future<Output = Result<Connection, AttemptError>> + Send>>,
    timeout: Pin<Box<Sleep>>,
}

impl Endpoint {
    /// Connects to a target: tries pairs of addresses, one more every quarter of a second, until one answers.
    ///
    /// # Errors
    /// None does, or the peer is refused or refuses.
    pub async fn connect(
        &self,
        tls: Arc<dyn Tls>,
        config: Arc<Config>,
        target: &Target,
    ) -> Result<Connection, ConnectError> {
        // Of an earlier connection, perhaps; sockets that have vanished meanwhile are reopened.
        self.close_stale(&sources().map_err(ConnectError::Sources)?);
        let mut candidates = target.candidates().map_err(ConnectError::Sources)?.into_iter();
        let mut trials: Vec<PendingAttempt> = Vec::new();
        let mut failed: Vec<FailedAttempt> = Vec::new();
        let mut refused: Option<(SocketAddr, ConnectionError)> = None;
        loop {
            if let Some(candidate) = candidates.next() {
                trials.push(self.begin(tls.clone(), config.clone(), &target.name, candidate));
            } else if trials.is_empty() && failed.is_empty() {
                let to: Vec<_> = target.addresses.iter().map(ToString::to_string).collect();
                return Err(ConnectError::NoPair(to.join(", ")));
            } else if trials.is_empty() {
                return Err(match refused {
                    Some((remote, error)) => ConnectError::Refused { remote, error },
                    None => ConnectError::NoPath(failed),
                });
            }
            let mut next = (candidates.len() > 0).then(|| Box::pin(sleep(ATTEMPT_DELAY)));
            if let Some(connection) = first(&mut trials, &mut failed, &mut refused, &mut next).await? {
                return Ok(connection);
            }
        }
    }

    fn begin(
        &self,
        tls: Arc<dyn Tls>,
        config: Arc<Config>,
        name: &str,
        candidate: Candidate,
    ) -> PendingAttempt {
        let (endpoint, name, to) = (self.clone(), name.to_owned(), candidate.clone());
        let done = Box::pin(async move {
            let route = Route {
                local: endpoint.local_for(&to).await.map_err(AttemptError::Dead)?,
                remote: to.remote,
            };
            let connection = endpoint.connect_route(tls, config, &name, route).map_err(AttemptError::Tls)?;
            connected(&connection, route).await.map(|()| connection)
        });
        PendingAttempt { candidate, done, timeout: Box::pin(sleep(ATTEMPT_TIMEOUT)) }
    }

    /// Source address of a candidate's packets, once that is known.
    async fn local_for(&self, candidate: &Candidate) -> Result<SocketAddr, String> {
        let Candidate { source, relay: Some(relay), remote } = candidate else {
            let bound = self.bind_source(&candidate.source, 0);
            return bound.map_err(|error| format!("no socket at {}: {error}", candidate.source.ip));
        };
        let (mut seen, mut lost) = (0, false);
        loop {
            match self.relay(source, relay, *remote) {
                RelayState::Ready(local) => return Ok(local),
                RelayState::Refused(reason) | RelayState::Failed(reason) => return Err(reason),
                RelayState::Lost if std::mem::replace(&mut lost, true) => {
                    return Err(ALLOCATION_LOST.to_owned());
                }
                RelayState::Lost => {}
                RelayState::Waiting => self.wait_relay_change(&mut seen).await,
            }
        }
    }
}

/// Returns once streams can be used. What the system refuses is not waited for.
async fn connected(connection: &Connection, route: Route) -> Result<(), AttemptError> {
    let mut done = std::pin::pin!(connection.connected());
    poll_fn(|cx| match done.as_mut().poll(cx) {
        Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
        Poll::Ready(Err(ConnectionError::TimedOut)) => Poll::Ready(Err(AttemptError::silence())),
        Poll::Ready(Err(error)) => Poll::Ready(Err(AttemptError::Refused(error))),
        Poll::Pending => match connection.refusal(route) {
            Some(reason) => Poll::Ready(Err(AttemptError::Dead(reason))),
            None => Poll::Pending,
        },
    })
    .await
}

/// Waits until a trial succeeds (it is returned), all have failed, or it is time for the next one.
async fn first(
    trials: &mut Vec<PendingAttempt>,
    failed: &mut Vec<FailedAttempt>,
    refused: &mut Option<(SocketAddr, ConnectionError)>,
    next: &mut Option<Pin<Box<Sleep>>>,
) -> Result<Option<Connection>, TlsError> {
    poll_fn(|cx| {
        let mut i = 0;
        while i < trials.len() {
            let Poll::Ready(done) = trials[i].poll(cx) else {
                i += 1;
                continue;
            };
            let PendingAttempt { candidate, .. } = trials.remove(i);
            match done {
                Ok(connection) => return Poll::Ready(Ok(Some(connection))),
                Err(AttemptError::Tls(error)) => return Poll::Ready(Err(error)),
                Err(AttemptError::Refused(error)) => {
                    // Perhaps somebody else is at this address, or on the way there: other pairs may lead to the peer.
                    failed.push(candidate.failed(error.to_string()));
                    refused.get_or_insert((candidate.remote, error));
                }
                Err(AttemptError::Dead(reason)) => failed.push(candidate.failed(reason)),
            }
        }
        let time = next.as_mut().is_some_and(|next| next.as_mut().poll(cx).is_ready());
        if time || trials.is_empty() { Poll::Ready(Ok(None)) } else { Poll::Pending }
    })
    .await
}

/// Reason for which an attempt failed.
enum AttemptError {
    /// The settings cannot be used.
    Tls(TlsError),
    /// The peer answered, and one end refused the other.
    Refused(ConnectionError),
    /// No answer, or the system refuses to send.
    Dead(String),
}

impl AttemptError {
    fn silence() -> AttemptError {
        AttemptError::Dead(format!("no answer within {} s", ATTEMPT_TIMEOUT.as_secs()))
    }
}

impl PendingAttempt {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connection, AttemptError>> {
        match self.done.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => self.timeout.as_mut().poll(cx).map(|()| Err(AttemptError::silence())),
        }
    }
}
