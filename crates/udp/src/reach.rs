//! Connecting to a peer with several addresses from a host with several: the first pair that answers carries the handshake.

use crate::address::{Source, sources};
use crate::connection::Connection;
use crate::endpoint::Endpoint;
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

/// Between the beginnings of two attempts, as RFC 8305 section 5 has it.
const STAGGER: Duration = Duration::from_millis(250);
/// An attempt is given up after this time.
const PATIENCE: Duration = Duration::from_secs(8);

/// Whom to connect to, and from where.
#[derive(Clone, Debug)]
pub struct Target {
    /// The name that certificates are to be for, where they are checked by name.
    pub name: String,
    /// Its addresses, the most likely first.
    pub addresses: Vec<SocketAddr>,
    /// Addresses here to use; none: every usable one.
    pub locals: Vec<IpAddr>,
}

/// A pair of addresses that was tried, and why it did not work.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// From here.
    pub local: IpAddr,
    /// To there.
    pub remote: SocketAddr,
    /// Why not.
    pub reason: String,
}

/// No connection came about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReachError {
    /// No address here has the family of one there.
    #[error(
        "no address of this host can be a path to {0}: no interface with an address of the same family is up"
    )]
    NoPair(String),
    /// Every pair was tried.
    #[error("no path works:{}", list(.0))]
    NoPath(Vec<Attempt>),
    /// It answered, and one end refused the other.
    #[error("{remote}: {error}")]
    Refused {
        /// Who answered.
        remote: SocketAddr,
        /// What was wrong.
        error: ConnectionError,
    },
    /// The settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system does not tell its addresses.
    #[error("this host's addresses cannot be listed: {0}")]
    Sources(#[source] io::Error),
}

fn list(attempts: &[Attempt]) -> String {
    attempts.iter().map(|attempt| format!("\n  {attempt}")).collect()
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}: {}", self.local, self.remote, self.reason)
    }
}

impl Target {
    /// Pairs of addresses that may be paths now, the most diverse first: the one whose ends were used least so far.
    ///
    /// # Errors
    /// The system does not tell its addresses.
    pub fn pairs(&self) -> io::Result<Vec<(Source, SocketAddr)>> {
        let own = sources()?;
        let mut left: Vec<_> = self.addresses.iter().flat_map(|&to| self.pairs_to(to, &own)).collect();
        let mut chosen: Vec<(Source, SocketAddr)> = Vec::new();
        while !left.is_empty() {
            let uses = |pair: &(Source, SocketAddr)| {
                let from = chosen.iter().filter(|other| other.0.ip == pair.0.ip).count();
                let to = chosen.iter().filter(|other| other.1 == pair.1).count();
                (from.max(to), from + to)
            };
            let next = (0..left.len()).min_by_key(|&i| uses(&left[i])).unwrap_or(0);
            chosen.push(left.remove(next));
        }
        Ok(chosen)
    }

    fn pairs_to(&self, to: SocketAddr, own: &[Source]) -> Vec<(Source, SocketAddr)> {
        let same_family = |ip: &IpAddr| ip.is_ipv4() == to.is_ipv4();
        let here = is_loopback(to.ip()) || own.iter().any(|source| source.ip == to.ip());
        let from: Vec<Source> = match &self.locals[..] {
            // This host's own addresses are reached by the loopback.
            [] if here => vec![Source { ip: to.ip(), interface: String::new() }],
            [] => own.iter().filter(|source| same_family(&source.ip)).cloned().collect(),
            locals => locals.iter().copied().filter(same_family).map(|ip| Source::at(ip, own)).collect(),
        };
        from.into_iter().map(|source| (source, to)).collect()
    }
}

/// An attempt under way.
struct Trial {
    local: IpAddr,
    remote: SocketAddr,
    route: Route,
    connection: Connection,
    done: Pin<Box<dyn Future<Output = Result<(), ConnectionError>> + Send>>,
    patience: Pin<Box<Sleep>>,
}

impl Endpoint {
    /// Connects to a target: tries pairs of addresses, one more every quarter of a second, until one answers.
    ///
    /// # Errors
    /// None does, or the peer is refused or refuses.
    pub async fn reach(
        &self,
        tls: Arc<dyn Tls>,
        config: Arc<Config>,
        target: &Target,
    ) -> Result<Connection, ReachError> {
        // Of an earlier connection, perhaps; what was found to be gone meanwhile is opened anew.
        self.close_stale(&sources().map_err(ReachError::Sources)?);
        let mut pairs = target.pairs().map_err(ReachError::Sources)?.into_iter();
        let mut trials: Vec<Trial> = Vec::new();
        let mut failed: Vec<Attempt> = Vec::new();
        let mut refused: Option<(SocketAddr, ConnectionError)> = None;
        loop {
            if let Some((source, remote)) = pairs.next() {
                match self.begin(tls.clone(), config.clone(), target, &source, remote)? {
                    Ok(trial) => trials.push(trial),
                    Err(reason) => {
                        failed.push(Attempt { local: source.ip, remote, reason });
                        continue;
                    }
                }
            } else if trials.is_empty() && failed.is_empty() {
                let to: Vec<_> = target.addresses.iter().map(ToString::to_string).collect();
                return Err(ReachError::NoPair(to.join(", ")));
            } else if trials.is_empty() {
                return Err(match refused {
                    Some((remote, error)) => ReachError::Refused { remote, error },
                    None => ReachError::NoPath(failed),
                });
            }
            let mut next = (pairs.len() > 0).then(|| Box::pin(sleep(STAGGER)));
            if let Some(connection) = first(&mut trials, &mut failed, &mut refused, &mut next).await {
                return Ok(connection);
            }
        }
    }

    fn begin(
        &self,
        tls: Arc<dyn Tls>,
        config: Arc<Config>,
        target: &Target,
        source: &Source,
        remote: SocketAddr,
    ) -> Result<Result<Trial, String>, TlsError> {
        let local = match self.bind_source(source, 0) {
            Ok(local) => local,
            Err(error) => return Ok(Err(format!("no socket at {}: {error}", source.ip))),
        };
        let route = Route { local, remote };
        let connection = self.connect(tls, config, &target.name, route)?;
        let waits = connection.clone();
        let done = Box::pin(async move { waits.connected().await });
        let patience = Box::pin(sleep(PATIENCE));
        Ok(Ok(Trial { local: source.ip, remote, route, connection, done, patience }))
    }
}

/// Waits until a trial succeeds (it is returned), all have failed, or it is time for the next one.
async fn first(
    trials: &mut Vec<Trial>,
    failed: &mut Vec<Attempt>,
    refused: &mut Option<(SocketAddr, ConnectionError)>,
    next: &mut Option<Pin<Box<Sleep>>>,
) -> Option<Connection> {
    poll_fn(|cx| {
        let mut i = 0;
        while i < trials.len() {
            match trials[i].look(cx) {
                Poll::Pending => i += 1,
                Poll::Ready(Ok(())) => return Poll::Ready(Some(trials[i].connection.clone())),
                Poll::Ready(Err(Verdict::Refused(error))) => {
                    // Perhaps somebody else is at this address, or on the way there: other pairs may lead to the peer.
                    let trial = trials.remove(i);
                    let reason = error.to_string();
                    failed.push(Attempt { local: trial.local, remote: trial.remote, reason });
                    refused.get_or_insert((trial.remote, error));
                }
                Poll::Ready(Err(Verdict::Dead(reason))) => {
                    let trial = trials.remove(i);
                    failed.push(Attempt { local: trial.local, remote: trial.remote, reason });
                }
            }
        }
        let time = next.as_mut().is_some_and(|next| next.as_mut().poll(cx).is_ready());
        if time || trials.is_empty() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

enum Verdict {
    /// Somebody is there, and one end refused the other.
    Refused(ConnectionError),
    /// Nobody is there.
    Dead(String),
}

impl Trial {
    fn look(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Verdict>> {
        match self.done.as_mut().poll(cx) {
            Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
            Poll::Ready(Err(ConnectionError::TimedOut)) => return Poll::Ready(Err(self.silence())),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Verdict::Refused(error))),
            Poll::Pending => {}
        }
        // What the system refuses is not waited for.
        match self.connection.refusal(self.route) {
            Some(reason) => Poll::Ready(Err(Verdict::Dead(reason))),
            None => self.patience.as_mut().poll(cx).map(|()| Err(self.silence())),
        }
    }

    fn silence(&self) -> Verdict {
        Verdict::Dead(format!("no answer within {} s", PATIENCE.as_secs()))
    }
}
