//! The client side's connection: made when it is needed, and again when it was lost.

use super::{ALPN, ClientJob, Event, ProxyError, config};
use crate::endpoint_addr::EndpointAddr;
use crate::session::connect::{CarrierManager, Client, Via};
use crate::session::{Carrier, Connection};
use crate::trust::Trust;
use rustls::pki_types::ServerName;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use vmcc_udp::{FailedAttempt, Relay, Target};

/// Pause after a failed attempt, or every connection of a browser would cause one.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Interval at which it is checked that the server has accepted a connection.
const CONFIRM_POLL_INTERVAL: Duration = Duration::from_millis(10);

pub(super) type EventHandler = Arc<dyn Fn(Event) + Send + Sync>;

pub(super) struct Link {
    pub(super) client: Client,
    server: EndpointAddr,
    http_proxy: Option<EndpointAddr>,
    carrier: Carrier,
    locals: Vec<IpAddr>,
    relays: Vec<Relay>,
    most: usize,
    tell: EventHandler,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: Option<(Connection, CarrierManager)>,
    failed: Option<Instant>,
}

impl Link {
    pub(super) fn new(job: &ClientJob, relays: Vec<Relay>, tell: EventHandler) -> Result<Link, ProxyError> {
        // The server side opens no streams.
        let config = config(job.qlog.clone(), 0);
        let trust = Trust::Only(job.peers.clone());
        let client = Client::new(job.carrier, &job.identity, trust, ALPN, config)?;
        Ok(Link {
            client,
            server: job.server.clone(),
            http_proxy: job.http_proxy.clone(),
            carrier: job.carrier,
            locals: job.locals.clone(),
            relays,
            most: job.most,
            tell,
            state: Mutex::default(),
        })
    }

    /// The connection, made now if there is none.
    pub(super) async fn connection(&self) -> Result<Connection, ProxyError> {
        let mut state = self.state.lock().await;
        if let Some((connection, _)) =
            state.held.as_ref().filter(|(connection, _)| connection.end().is_none())
        {
            return Ok(connection.clone());
        }
        state.held = None;
        if state.failed.is_some_and(|at| at.elapsed() < RECONNECT_DELAY) {
            return Err(ProxyError::NotNow(self.server.clone()));
        }
        match self.reach().await {
            Ok((connection, manager)) => {
                state.failed = None;
                self.watch(connection.clone());
                state.held = Some((connection.clone(), manager));
                Ok(connection)
            }
            Err(error) => {
                state.failed = Some(Instant::now());
                (self.tell)(Event::Unreachable(error.to_string()));
                Err(error)
            }
        }
    }

    /// Makes the first connection, and waits until the server has accepted it.
    pub(super) async fn accepted(&self) -> Result<(), ProxyError> {
        let connection = self.connection().await?;
        while !connection.is_confirmed() {
            if let Some(end) = connection.end() {
                return Err(ProxyError::NotAccepted(self.server.clone(), end.reason));
            }
            sleep(CONFIRM_POLL_INTERVAL).await;
        }
        Ok(())
    }

    async fn reach(&self) -> Result<(Connection, CarrierManager), ProxyError> {
        let via = match &self.http_proxy {
            Some(proxy) => Some(Via { addresses: proxy.resolve().await?, target: self.server.to_string() }),
            None => None,
        };
        // An HTTP proxy may know names that nobody here knows.
        let addresses = match self.server.resolve().await {
            Err(_) if via.is_some() && self.carrier == Carrier::Tcp => Vec::new(),
            addresses => addresses?,
        };
        let (name, locals) = (self.name(), self.locals.clone());
        let target = Target { name, addresses, locals, relays: self.relays.clone(), most: self.most };
        let tell = self.tell.clone();
        // That a direct pair is none is usual: not every network leads everywhere.
        let failed = move |attempt: &FailedAttempt| {
            if attempt.relay.is_some() {
                tell(Event::NoPath(attempt.to_string()));
            }
        };
        Ok(self.client.connect(target, via, failed).await?)
    }

    /// Name of the server in TLS, which networks on the way see over TCP.
    fn name(&self) -> String {
        let host = &self.server.host;
        let is_seen = self.carrier != Carrier::Udp && ServerName::try_from(host.as_str()).is_ok();
        if is_seen { host.clone() } else { "vmcc".to_owned() }
    }

    fn watch(&self, connection: Connection) {
        let tell = self.tell.clone();
        let remote = connection.paths().first().map(|path| path.remote);
        let Some(remote) = remote else { return };
        tell(Event::Connected(remote));
        if !connection.is_multipath() {
            tell(Event::Single(remote));
        }
        tokio::spawn(async move {
            let end = connection.closed().await;
            tell(Event::Lost(remote, end.reason));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAX_STREAMS;
    use super::*;
    use crate::keys::Identity;
    use crate::run::block_on;
    use crate::trust;
    use std::collections::BTreeSet;
    use std::net::SocketAddr;
    use std::sync::Mutex as Told;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use vmcc_transport::{Config, Retry, Server};
    use vmcc_udp::Endpoint;

    fn job(at: SocketAddr, server: &Identity, client: Identity) -> ClientJob {
        ClientJob {
            server: at.to_string().parse().unwrap(),
            peers: BTreeSet::from([server.fingerprint()]),
            identity: client,
            locals: Vec::new(),
            relays: Vec::new(),
            most: 5,
            socks: None,
            forwards: Vec::new(),
            carrier: Carrier::Udp,
            http_proxy: None,
            qlog: None,
            metrics: None,
        }
    }

    #[test]
    fn server_that_does_not_trust_this_side_ends_the_client() {
        let (server, client) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let tls = trust::server(&server, Trust::Only(BTreeSet::from([server.fingerprint()])), ALPN).unwrap();
        block_on(async {
            let config = Arc::new(config(None, MAX_STREAMS));
            let far = Endpoint::new(Some(Server { tls, config, retry: Retry::Above(8), max_connections: 8 }));
            let far = far.unwrap();
            let at = far.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let link = Link::new(&job(at, &server, client), Vec::new(), Arc::new(|_| {})).unwrap();
            let error = link.accepted().await.unwrap_err();
            assert!(matches!(error, ProxyError::NotAccepted(..) | ProxyError::Reach(_)), "{error}");
        })
        .unwrap();
    }

    #[test]
    fn single_path_server_is_used_and_reported() {
        let (server, client) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let trust = Trust::Only(BTreeSet::from([client.fingerprint()]));
        let tls = trust::server(&server, trust, ALPN).unwrap();
        let single = Config { max_paths: 1, ..config(None, MAX_STREAMS) };
        let told = Arc::new(Told::new(Vec::new()));
        let events = told.clone();
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
                locals: ["127.0.0.1", "127.0.0.2"].map(|ip| ip.parse().unwrap()).to_vec(),
                ..job(at, &server, client)
            };
            let link =
                Link::new(&job, Vec::new(), Arc::new(move |one| events.lock().unwrap().push(one))).unwrap();
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
