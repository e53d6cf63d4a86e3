//! The client side's connection: made when it is needed, and again when it was lost.

use super::{ALPN, ClientJob, Event, ProxyError, config};
use crate::endpoint_addr::EndpointAddr;
use crate::trust::{self, Trust};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use vmcc_transport::Config;
use vmcc_transport::crypto::Tls;
use vmcc_udp::{Connection, Endpoint, FailedAttempt, PathManager, Relay, Target};

/// Pause after a failed attempt, or every connection of a browser would cause one.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

pub(super) type EventHandler = Arc<dyn Fn(Event) + Send + Sync>;

pub(super) struct Link {
    pub(super) endpoint: Endpoint,
    tls: Arc<dyn Tls>,
    config: Arc<Config>,
    server: EndpointAddr,
    locals: Vec<IpAddr>,
    relays: Vec<Relay>,
    most: usize,
    tell: EventHandler,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: Option<(Connection, PathManager)>,
    failed: Option<Instant>,
}

impl Link {
    pub(super) fn new(job: &ClientJob, relays: Vec<Relay>, tell: EventHandler) -> Result<Link, ProxyError> {
        let tls = trust::client(&job.identity, Trust::Only(job.peers.clone()), ALPN)?;
        let endpoint = Endpoint::new(None)?;
        // The server side opens no streams.
        let config = Arc::new(config(job.qlog.clone(), 0));
        let (server, locals, most) = (job.server.clone(), job.locals.clone(), job.most);
        Ok(Link { endpoint, tls, config, server, locals, relays, most, tell, state: Mutex::default() })
    }

    /// The connection, made now if there is none.
    pub(super) async fn connection(&self) -> Result<Connection, ProxyError> {
        let mut state = self.state.lock().await;
        if let Some((connection, _)) =
            state.held.as_ref().filter(|(connection, _)| connection.error().is_none())
        {
            return Ok(connection.clone());
        }
        state.held = None;
        if state.failed.is_some_and(|at| at.elapsed() < RECONNECT_DELAY) {
            return Err(ProxyError::NotNow(self.server.clone()));
        }
        match self.reach().await {
            Ok((connection, keeper)) => {
                state.failed = None;
                self.watch(connection.clone());
                state.held = Some((connection.clone(), keeper));
                Ok(connection)
            }
            Err(error) => {
                state.failed = Some(Instant::now());
                (self.tell)(Event::Unreachable(error.to_string()));
                Err(error)
            }
        }
    }

    async fn reach(&self) -> Result<(Connection, PathManager), ProxyError> {
        let addresses = self.server.resolve().await?;
        let (name, locals) = ("vmcc".to_owned(), self.locals.clone());
        let target = Target { name, addresses, locals, relays: self.relays.clone(), most: self.most };
        let connection = self.endpoint.connect(self.tls.clone(), self.config.clone(), &target).await?;
        let tell = self.tell.clone();
        // That a direct pair is none is usual: not every network leads everywhere.
        let failed = move |attempt: &FailedAttempt| {
            if attempt.relay.is_some() {
                tell(Event::NoPath(attempt.to_string()));
            }
        };
        let keeper = PathManager::start_with_callback(&connection, target, failed);
        Ok((connection, keeper))
    }

    fn watch(&self, connection: Connection) {
        let tell = self.tell.clone();
        let remote = connection.paths().first().map(|path| path.route.remote);
        let Some(remote) = remote else { return };
        tell(Event::Connected(remote));
        if !connection.is_multipath() {
            tell(Event::Single(remote));
        }
        tokio::spawn(async move {
            let error = connection.closed().await;
            tell(Event::Lost(remote, error.to_string()));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAX_STREAMS;
    use super::*;
    use crate::keys::Identity;
    use crate::run::block_on;
    use std::collections::BTreeSet;
    use std::sync::Mutex as Told;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use vmcc_transport::{Retry, Server};

    #[test]
    fn single_path_server_is_used_and_reported() {
        let (server, client) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let trust = Trust::Only(BTreeSet::from([client.fingerprint()]));
        let tls = trust::server(&server, trust, ALPN).unwrap();
        let single = Config { max_paths: 1, ..config(None, MAX_STREAMS) };
        let told = Arc::new(Told::new(Vec::new()));
        let news = told.clone();
        block_on(async {
            let far = Endpoint::new(Some(Server {
                tls,
                config: Arc::new(single),
                retry: Retry::Above(8),
                max_connections: 8,
            }));
            let far = far.unwrap();
            let at = far.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let job = ClientJob {
                server: at.to_string().parse().unwrap(),
                peers: BTreeSet::from([server.fingerprint()]),
                identity: client,
                locals: ["127.0.0.1", "127.0.0.2"].map(|ip| ip.parse().unwrap()).to_vec(),
                relays: Vec::new(),
                most: 5,
                socks: None,
                forwards: Vec::new(),
                qlog: None,
                metrics: None,
            };
            let link =
                Link::new(&job, Vec::new(), Arc::new(move |one| news.lock().unwrap().push(one))).unwrap();
            let (near, far) = tokio::join!(link.connection(), far.accept());
            let near = near.unwrap();
            let mut stream = near.open_stream().await.unwrap();
            stream.write_all(b"one way").await.unwrap();
            stream.shutdown().await.unwrap();
            let mut all = Vec::new();
            far.accept_stream().await.unwrap().read_to_end(&mut all).await.unwrap();
            assert_eq!(all, b"one way");
            assert_eq!((near.paths().len(), far.paths().len()), (1, 1));
        })
        .unwrap();
        let told = told.lock().unwrap();
        assert!(matches!(told[..], [Event::Connected(_), Event::Single(_)]), "{told:?}");
    }
}
