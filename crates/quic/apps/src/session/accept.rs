//! The server's side of sessions.

use super::connect::{ClientError, tcp_config};
use super::pipe::QuicPipe;
use super::{Carrier, Connection, PIPE_SUFFIX, TCP_ALPN};
use crate::keys::Identity;
use crate::status::{PipeGuard, Registry};
use crate::trust::{self, Trust};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;
use vmcc_plmt::{Listener, PipeAcceptor, ServerSecurity};
use vmcc_transport::Retry;
use vmcc_udp::Endpoint;

/// Time for the first bytes of a pipe over UDP.
const PIPE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bounds of handshakes and connections over UDP.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) retry_above: usize,
    pub(crate) max_connections: usize,
}

/// Accepts sessions. TCP is listened at only once [`Server::listen_tcp`] is called.
pub(crate) struct Server {
    pub(crate) carrier: Carrier,
    alpn: Vec<u8>,
    tcp_tls: Arc<rustls::ServerConfig>,
    tcp: vmcc_plmt::Config,
    listener: Option<Listener>,
    pub(crate) endpoint: Endpoint,
    pub(crate) registry: Arc<Registry>,
}

impl Server {
    pub(crate) fn new(
        carrier: Carrier,
        identity: &Identity,
        trust: Trust,
        alpn: &[u8],
        config: vmcc_transport::Config,
        bounds: Bounds,
    ) -> Result<Server, ClientError> {
        let mut tls = (*trust::server(identity, trust.clone(), alpn)?.0).clone();
        if carrier == Carrier::Auto {
            tls.alpn_protocols.push([alpn, PIPE_SUFFIX].concat());
        }
        let tls = Arc::new(vmcc_transport::crypto::ServerTls(Arc::new(tls)));
        let tcp_tls = trust::server(identity, trust, TCP_ALPN)?.0.clone();
        let Bounds { retry_above, max_connections } = bounds;
        let retry = Retry::Above(retry_above);
        let tcp = tcp_config(&config);
        let server = vmcc_transport::Server { tls, config: Arc::new(config), retry, max_connections };
        let endpoint = Endpoint::new((carrier != Carrier::Tcp).then_some(server))?;
        let registry = Arc::new(Registry::new(endpoint.clone()));
        Ok(Server { carrier, alpn: alpn.to_vec(), tcp_tls, tcp, listener: None, endpoint, registry })
    }

    /// Takes TCP carriers from these sockets, too.
    ///
    /// # Errors
    /// One of them has no address.
    pub(crate) fn listen_tcp(&mut self, listeners: Vec<TcpListener>) -> io::Result<()> {
        let security = ServerSecurity::Tls(self.tcp_tls.clone());
        let is_backup = self.carrier == Carrier::Auto;
        self.listener = Some(Listener::new(listeners, self.tcp.clone(), security, is_backup)?);
        Ok(())
    }

    /// The next session.
    pub(crate) async fn accept(&mut self) -> Connection {
        let Server { alpn, listener, endpoint, registry, carrier, .. } = self;
        let pipes = listener.as_ref().map(Listener::pipes);
        loop {
            let tcp = async {
                match listener {
                    Some(listener) => listener.accept().await,
                    None => std::future::pending().await,
                }
            };
            let udp = async {
                match carrier {
                    Carrier::Tcp => std::future::pending().await,
                    _ => endpoint.accept().await,
                }
            };
            tokio::select! {
                session = tcp => match session {
                    Ok(session) => {
                        registry.add(session.downgrade());
                        return Arc::new(session);
                    }
                    // Its tasks end with the runtime alone.
                    Err(_) => std::future::pending().await,
                },
                connection = udp => match &pipes {
                    Some(pipes) if connection.alpn().as_deref() != Some(alpn) => {
                        tokio::spawn(greet(pipes.clone(), connection, registry.pipe()));
                    }
                    _ => return Arc::new(connection),
                },
            }
        }
    }
}

/// Gives a pipe over UDP to its session. A peer that says something else is nobody's news.
async fn greet(pipes: PipeAcceptor, connection: vmcc_udp::Connection, guard: PipeGuard) {
    let accepted = timeout(PIPE_TIMEOUT, QuicPipe::accept(connection, guard)).await;
    if let Ok(Ok((pipe, binding))) = accepted {
        let _ = pipes.greet(pipe, binding).await;
    }
}
