//! The client's side of sessions: dialling, and following addresses that come and go.

use super::pipe::QuicPipe;
use super::{Carrier, ConnectError, Connection, PIPE_SUFFIX, TCP_ALPN};
use crate::keys::Identity;
use crate::status::Registry;
use crate::trust::{self, Trust};
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::task::JoinHandle;
use vmcc_plmt::{ClientSecurity, Dialer, HttpProxy, NewPipe, PipeDialer, Route};
use vmcc_transport::crypto::Tls;
use vmcc_udp::{Candidate, Changes, Endpoint, FailedAttempt, PathManager, Target};

/// Carriers over TCP that are dialled at a time: as many as a session takes, but for one over UDP.
const MAX_ROUTES: usize = 7;

/// Settings of a session over TCP that has the streams and windows of one over QUIC.
pub(super) fn tcp_config(quic: &vmcc_transport::Config) -> vmcc_plmt::Config {
    vmcc_plmt::Config {
        first_stream_window: quic.first_stream_window,
        stream_window: quic.stream_window,
        reserved_stream_window: quic.reserved_stream_window,
        connection_window: quic.connection_window,
        send_window: quic.send_window,
        connection_send_window: quic.connection_send_window,
        max_streams_bidi: quic.max_streams_bidi,
        max_streams_uni: quic.max_streams_uni,
        ..vmcc_plmt::Config::default()
    }
}

/// Makes sessions with servers.
pub(crate) struct Client {
    carrier: Carrier,
    tls: Arc<dyn Tls>,
    tcp_tls: Arc<rustls::ClientConfig>,
    config: Arc<vmcc_transport::Config>,
    endpoint: Endpoint,
    pub(crate) registry: Arc<Registry>,
}

/// An HTTP proxy by which TCP carriers go.
pub(crate) struct Via {
    /// Its addresses.
    pub(crate) addresses: Vec<SocketAddr>,
    /// HOST:PORT of the server, as the proxy resolves it.
    pub(crate) target: String,
}

/// Follows addresses for a session, until it is dropped.
pub(crate) enum CarrierManager {
    Udp(PathManager),
    Tcp { dialer: Arc<Dialer>, task: JoinHandle<()> },
}

impl Drop for CarrierManager {
    fn drop(&mut self) {
        if let CarrierManager::Tcp { task, .. } = self {
            task.abort();
        }
    }
}

impl CarrierManager {
    /// Pairs of addresses that are no path now.
    pub(crate) fn failed(&self) -> Vec<FailedAttempt> {
        match self {
            CarrierManager::Udp(paths) => paths.failed(),
            CarrierManager::Tcp { dialer, .. } => {
                let failures = dialer.failures().into_iter();
                let attempt = |(route, reason): (Route, String)| {
                    let (local, remote) = (route.local?.ip(), route.remote);
                    Some(FailedAttempt { local, relay: None, remote, reason })
                };
                failures.filter_map(attempt).collect()
            }
        }
    }
}

impl Client {
    pub(crate) fn new(
        carrier: Carrier,
        identity: &Identity,
        trust: Trust,
        alpn: &[u8],
        config: vmcc_transport::Config,
    ) -> Result<Client, ClientError> {
        let pipe_alpn = [alpn, PIPE_SUFFIX].concat();
        let quic_alpn = if carrier == Carrier::Auto { &pipe_alpn[..] } else { alpn };
        let tls = trust::client(identity, trust.clone(), quic_alpn)?;
        let tcp_tls = trust::client(identity, trust, TCP_ALPN)?.0.clone();
        let endpoint = Endpoint::new(None)?;
        let registry = Arc::new(Registry::new(endpoint.clone()));
        Ok(Client { carrier, tls, tcp_tls, config: Arc::new(config), endpoint, registry })
    }

    /// Connects to a target. `failed` is called for pairs of addresses that are no path over UDP.
    ///
    /// # Errors
    /// No session comes about.
    pub(crate) async fn connect(
        &self,
        target: Target,
        via: Option<Via>,
        failed: impl Fn(&FailedAttempt) + Send + 'static,
    ) -> Result<(Connection, CarrierManager), ConnectError> {
        if self.carrier == Carrier::Udp {
            let connection = self.endpoint.connect(self.tls.clone(), self.config.clone(), &target).await?;
            let manager = PathManager::start_with_callback(&connection, target, failed);
            return Ok((Arc::new(connection), CarrierManager::Udp(manager)));
        }
        let routes = Routes::new(&target, via);
        let security = ClientSecurity::Tls(self.tcp_tls.clone(), server_name(&target));
        let first = routes.now().map_err(ConnectError::Sources)?;
        let preferred = (self.carrier == Carrier::Auto).then(|| self.pipes(target));
        if first.is_empty() && preferred.is_none() {
            return Err(ConnectError::NoPair(routes.names()));
        }
        let (connection, dialer) =
            vmcc_plmt::connect(tcp_config(&self.config), security, first, preferred).await?;
        self.registry.add(connection.downgrade());
        let dialer = Arc::new(dialer);
        let task = tokio::spawn(follow(routes, dialer.clone()));
        Ok((Arc::new(connection), CarrierManager::Tcp { dialer, task }))
    }

    fn pipes(&self, target: Target) -> Arc<dyn PipeDialer> {
        let (endpoint, tls, config) = (self.endpoint.clone(), self.tls.clone(), self.config.clone());
        Arc::new(QuicDialer { endpoint, tls, config, target, registry: self.registry.clone() })
    }
}

/// Settings of TLS cannot be used, or the system has no sockets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Name of the server for TLS. Trust does not depend on it, but networks on the way see it.
fn server_name(target: &Target) -> ServerName<'static> {
    let address = target.addresses.first().map(SocketAddr::ip);
    let name = ServerName::try_from(target.name.clone()).ok();
    name.or(address.map(ServerName::from))
        .unwrap_or_else(|| ServerName::try_from("vmcc").expect("a DNS name"))
}

/// Multipath QUIC as the preferred pipe of a session.
struct QuicDialer {
    endpoint: Endpoint,
    tls: Arc<dyn Tls>,
    config: Arc<vmcc_transport::Config>,
    target: Target,
    registry: Arc<Registry>,
}

impl PipeDialer for QuicDialer {
    fn dial(&self) -> super::Pending<'_, io::Result<NewPipe>> {
        Box::pin(async {
            let reach = self.endpoint.connect(self.tls.clone(), self.config.clone(), &self.target);
            let connection = reach.await.map_err(io::Error::other)?;
            let paths = PathManager::start(&connection, self.target.clone());
            QuicPipe::open(connection, paths, self.registry.pipe()).await
        })
    }
}

/// Routes of TCP carriers: every pair of addresses, or every address here to the proxy.
struct Routes {
    target: Target,
    proxy: Option<String>,
}

impl Routes {
    fn new(target: &Target, via: Option<Via>) -> Routes {
        let mut target = Target { relays: Vec::new(), ..target.clone() };
        let proxy = via.map(|via| {
            target.addresses = via.addresses;
            via.target
        });
        Routes { target, proxy }
    }

    fn now(&self) -> io::Result<Vec<Route>> {
        let candidates = self.target.candidates()?.into_iter();
        let route = |Candidate { source, remote, .. }: Candidate| Route {
            local: Some(source.socket_address(0)),
            device: (!source.interface.is_empty()).then(|| source.interface.clone()),
            remote,
            proxy: self.proxy.as_ref().map(|target| HttpProxy { address: remote, target: target.clone() }),
        };
        Ok(candidates.map(route).take(MAX_ROUTES).collect())
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.target.addresses.iter().map(ToString::to_string).collect();
        names.join(", ")
    }
}

/// Adapts a session's routes whenever the addresses here change.
async fn follow(routes: Routes, dialer: Arc<Dialer>) {
    let Ok(mut changes) = Changes::open() else { return };
    loop {
        // Also at first: something may have changed since the routes were made.
        if let Ok(now) = routes.now() {
            dialer.set_routes(now);
        }
        changes.changed().await;
    }
}
