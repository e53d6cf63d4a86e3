//! `quinn`: one path.

use crate::options::Case;
use crate::process::Usage;
use crate::{Result, payload, setup};
use ::quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use ::quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};
use std::net::SocketAddr;
use std::sync::Arc;

fn transport(case: &Case) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(setup::STREAM_WINDOW.into());
    transport.receive_window(setup::CONNECTION_WINDOW.into());
    transport.send_window(setup::SEND_WINDOW);
    transport.initial_mtu(setup::MTU).mtu_discovery_config(None);
    transport.enable_segmentation_offload(case.offload);
    Arc::new(transport)
}

fn endpoint(server: Option<ServerConfig>, at: SocketAddr) -> Result<Endpoint> {
    let runtime = Arc::new(TokioRuntime);
    Ok(Endpoint::new(EndpointConfig::default(), server, setup::socket(at)?, runtime)?)
}

pub(crate) async fn receive(case: &Case) -> Result<Usage> {
    let crypto = QuicServerConfig::try_from(setup::server()?)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport(case));
    let endpoint = endpoint(Some(config), case.at[0])?;
    setup::tell(&[endpoint.local_addr()?]);
    let connection = endpoint.accept().await.ok_or("closed")?.await?;
    let (mut to, mut from) = connection.accept_bi().await?;
    let usage = payload::receive(case.bytes(), &mut to, &mut from).await?;
    connection.closed().await;
    Ok(usage)
}

pub(crate) async fn send(case: &Case) -> Result<Usage> {
    let endpoint = endpoint(None, SocketAddr::new(case.from[0], 0))?;
    let crypto = QuicClientConfig::try_from(setup::client()?)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport(case));
    let connection = endpoint.connect_with(config, case.at[0], "localhost")?.await?;
    let (mut to, mut from) = connection.open_bi().await?;
    let usage = payload::send(case.bytes(), &mut to, &mut from).await?;
    connection.close(0u32.into(), b"done");
    endpoint.wait_idle().await;
    Ok(usage)
}
