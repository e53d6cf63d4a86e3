//! The side of the net: connects to where clients' streams are to lead.

use super::datagrams::Flows;
use super::dial::dial;
use super::link::EventHandler;
use super::lookup::Lookups;
use super::relay::{Keepalive, relay};
use super::{ALPN, Event, MAX_MESSAGE, MAX_STREAMS, Open, ProxyError, Reply, config, socks, start_exporters};
use crate::keys::{Fingerprint, Identity};
use crate::run::{block_on, run_until, stop_requested};
use crate::session::accept::{Bounds, Server};
use crate::session::{Carrier, Connection, Stream};
use crate::trust::Trust;
use crate::wire;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;
use vmcc_udp::Qlog;

/// Handshakes under way from which on clients have to show that they receive, and connections at a time.
const BOUNDS: Bounds = Bounds { retry_above: 32, max_connections: 4096 };
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
    /// Transport of sessions.
    pub carrier: Carrier,
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
    if job.carrier == Carrier::Tcp && job.metrics.is_some() {
        return Err(ProxyError::NotOverTcp(
            "--metrics",
            "its figures are those of QUIC; `vmcc status` has those of TCP",
        ));
    }
    let trust = if job.peers.is_empty() { Trust::Any } else { Trust::Only(job.peers.clone()) };
    // Each program takes two.
    vmcc_config::allow_open_files();
    block_on(async {
        let config = config(job.qlog.clone(), MAX_STREAMS);
        let mut server = Server::new(job.carrier, &job.identity, trust, ALPN, config, BOUNDS)?;
        let listening = |source| ProxyError::Listen { address: job.listen, source };
        let mut listen = job.listen;
        if job.carrier != Carrier::Udp {
            let listener = TcpListener::bind(listen).await.map_err(listening)?;
            listen = listener.local_addr()?;
            server.listen_tcp(vec![listener])?;
        }
        if job.carrier != Carrier::Tcp {
            listen = server.endpoint.bind(listen).map_err(listening)?;
            server.endpoint.set_reset_key(&super::reset::key(&job.identity, listen)?);
        }
        let _exporters = start_exporters(&server.registry, job.metrics, &tell)?;
        tell(Event::Listening("clients", listen));
        let accept = async {
            loop {
                tokio::spawn(client(server.accept().await, tell.clone()));
            }
        };
        run_until(stop_requested(stop), accept).await.unwrap_or(());
        let _ = timeout(CLOSE_TIMEOUT, server.registry.close(0, "the proxy ends")).await;
        Ok(())
    })?
}

async fn client(connection: Connection, tell: EventHandler) {
    let remote = connection.paths().first().map(|path| path.remote);
    if let Some(remote) = remote {
        tell(Event::Connected(remote));
    }
    let lookups = Lookups::new();
    let flows = Flows::new(&connection, lookups.clone());
    let error = loop {
        match connection.accept_stream().await {
            Ok(stream) => {
                let (flows, lookups) = (flows.clone(), lookups.clone());
                tokio::spawn(async move {
                    // What goes wrong with one stream ends it, which its client sees.
                    let _ = serve(stream, flows, &lookups).await;
                });
            }
            Err(error) => break error,
        }
    };
    if let Some(remote) = remote {
        let reason = connection.end().map_or_else(|| error.to_string(), |end| end.reason);
        tell(Event::Lost(remote, reason));
    }
}

async fn serve(mut stream: Stream, flows: Flows, lookups: &Lookups) -> io::Result<()> {
    match timeout(MESSAGE_TIMEOUT, wire::read_at_most(&mut stream, MAX_MESSAGE)).await?? {
        Open::Connect { host, port } => match dial(&host, port, lookups).await {
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
