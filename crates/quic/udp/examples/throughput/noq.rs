//! `noq`: one socket for all paths.

use crate::options::Case;
use crate::process::Usage;
use crate::{Result, payload, setup};
use ::noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use ::noq::{
    ClientConfig, Endpoint, EndpointConfig, FourTuple, PathError, PathStatus, ServerConfig, TokioRuntime,
    TransportConfig,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

fn transport(case: &Case) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(setup::STREAM_WINDOW.into());
    transport.receive_window(setup::CONNECTION_WINDOW.into());
    transport.send_window(setup::SEND_WINDOW);
    transport.initial_mtu(setup::MTU).mtu_discovery_config(None);
    transport.enable_segmentation_offload(case.offload);
    if case.paths() > 1 {
        transport.max_concurrent_multipath_paths(case.paths() as u32);
    }
    Arc::new(transport)
}

fn endpoint(server: Option<ServerConfig>, at: SocketAddr) -> Result<Endpoint> {
    let runtime = Arc::new(TokioRuntime);
    Ok(Endpoint::new(EndpointConfig::default(), server, setup::socket(at)?, runtime)?)
}

/// With one path the only address there is, as the others have it; with several all.
fn bound(case: &Case, one: SocketAddr) -> SocketAddr {
    if case.paths() == 1 { one } else { SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0) }
}

pub(crate) async fn receive(case: &Case) -> Result<Usage> {
    let crypto = QuicServerConfig::try_from(setup::server()?)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport(case));
    let endpoint = endpoint(Some(config), bound(case, case.at[0]))?;
    let port = endpoint.local_addr()?.port();
    setup::tell(&case.at.iter().map(|at| SocketAddr::new(at.ip(), port)).collect::<Vec<_>>());
    let connection = endpoint.accept().await.ok_or("closed")?.await?;
    let (mut to, mut from) = connection.accept_bi().await?;
    let usage = payload::receive(case.bytes(), &mut to, &mut from).await?;
    connection.closed().await;
    Ok(usage)
}

pub(crate) async fn send(case: &Case) -> Result<Usage> {
    let endpoint = endpoint(None, bound(case, SocketAddr::new(case.from[0], 0)))?;
    let crypto = QuicClientConfig::try_from(setup::client()?)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport(case));
    let connection = endpoint.connect_with(config, case.at[0], "localhost")?.await?;
    let mut paths = Vec::new();
    if case.paths() > 1 {
        connection.handshake_confirmed().await?;
    }
    for (&remote, &ip) in case.at.iter().zip(&case.from).skip(1) {
        let tuple = FourTuple::new(remote, Some(ip));
        // Possible once the peer has given connection ids.
        paths.push(loop {
            match connection.open_path(tuple, PathStatus::Available).await {
                Err(PathError::RemoteCidsExhausted) => tokio::time::sleep(Duration::from_millis(5)).await,
                opened => break opened?,
            }
        });
    }
    let (mut to, mut from) = connection.open_bi().await?;
    let usage = payload::send(case.bytes(), &mut to, &mut from).await?;
    connection.close(0u32.into(), b"done");
    endpoint.wait_idle().await;
    Ok(usage)
}
