//! The side of the net: connects to where clients' streams are to lead.

use super::datagrams::Flows;
use super::dial::dial;
use super::link::EventHandler;
use super::relay::{Keepalive, relay};
use super::{ALPN, Event, MAX_MESSAGE, MAX_STREAMS, Open, ProxyError, Reply, config, socks, start_exporters};
use crate::keys::{Fingerprint, Identity};
use crate::run::{block_on, run_until, stop_requested};
use crate::trust::{self, Trust};
use crate::wire;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::time::timeout;
use vmcc_transport::{Retry, Server};
use vmcc_udp::{Connection, Endpoint, Qlog, Stream};

/// Handshakes under way from which on clients have to show that they receive.
const RETRY_ABOVE: usize = 32;
const MAX_CONNECTIONS: usize = 4096;
/// Time for a stream's first message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(15);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Settings of the server side.
pub struct ServerJob {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Fingerprints of served clients; none: everybody, who can only come through the loopback.
    pub peers: BTreeSet<Fingerprint>,
    /// Certificate of this side.
    pub identity: Identity,
    /// Log of connections.
    pub qlog: Option<Arc<Qlog>>,
    /// Address for Prometheus.
    pub metrics: Option<SocketAddr>,
}

/// Serves clients until `stop`.
///
/// # Errors
/// It cannot begin.
pub fn server(job: &ServerJob, tell: EventHandler, stop: &AtomicBool) -> Result<(), ProxyError> {
    if job.peers.is_empty() && !job.listen.ip().is_loopback() {
        return Err(ProxyError::Open(job.listen));
    }
    let trust = if job.peers.is_empty() { Trust::Any } else { Trust::Only(job.peers.clone()) };
    // Each program takes two.
    vmcc_config::allow_open_files();
    block_on(async {
        let tls = trust::server(&job.identity, trust, ALPN)?;
        let retry = Retry::Above(RETRY_ABOVE);
        let config = Arc::new(config(job.qlog.clone(), MAX_STREAMS));
        let server = Server { tls, config, retry, max_connections: MAX_CONNECTIONS };
        let endpoint = Endpoint::new(Some(server))?;
        let bound =
            endpoint.bind(job.listen).map_err(|source| ProxyError::Listen { address: job.listen, source })?;
        endpoint.set_reset_key(&super::reset::key(&job.identity, bound)?);
        let _exporters = start_exporters(&endpoint, job.metrics, &tell)?;
        tell(Event::Listening("clients", bound));
        let accept = async {
            loop {
                tokio::spawn(client(endpoint.accept().await, tell.clone()));
            }
        };
        run_until(stop_requested(stop), accept).await.unwrap_or(());
        endpoint.close_all(0, "the proxy ends");
        let _ = timeout(CLOSE_TIMEOUT, endpoint.wait_idle()).await;
        Ok(())
    })?
}

async fn client(connection: Connection, tell: EventHandler) {
    let remote = connection.paths().first().map(|path| path.route.remote);
    if let Some(remote) = remote {
        tell(Event::Connected(remote));
    }
    let flows = Flows::new(&connection);
    let error = loop {
        match connection.accept_stream().await {
            Ok(stream) => {
                let flows = flows.clone();
                tokio::spawn(async move {
                    // What goes wrong with one stream ends it, which its client sees.
                    let _ = serve(stream, flows).await;
                });
            }
            Err(error) => break error,
        }
    };
    if let Some(remote) = remote {
        tell(Event::Lost(remote, error.to_string()));
    }
}

async fn serve(mut stream: Stream, flows: Flows) -> io::Result<()> {
    match timeout(MESSAGE_TIMEOUT, wire::read_at_most(&mut stream, MAX_MESSAGE)).await?? {
        Open::Connect { host, port } => match dial(&host, port).await {
            Ok(tcp) => {
                wire::write(&mut stream, &Reply { code: socks::SUCCEEDED }).await?;
                relay(tcp, stream, Keepalive::REMOTE, |_| {}).await;
                Ok(())
            }
            Err(error) => {
                wire::write(&mut stream, &Reply { code: socks::code_of(&error) }).await?;
                let (mut send, _) = stream.into_split();
                tokio::io::AsyncWriteExt::shutdown(&mut send).await?;
                send.wait_acked().await
            }
        },
        Open::Associate { number } => flows.serve(number, stream).await,
    }
}
