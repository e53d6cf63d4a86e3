//! This repository's library: a socket for each address, one path for each pair.

use crate::options::Case;
use crate::process::Usage;
use crate::{Result, payload, setup};
use std::sync::Arc;
use std::time::Duration;
use vmcc_transport::crypto::{ClientTls, ServerTls};
use vmcc_transport::{Config, Retry, Route, Server};
use vmcc_udp::{Endpoint, Target};

fn config(case: &Case) -> Arc<Config> {
    let usual = vmcc_udp::config();
    let max_segments = if case.offload { usual.max_segments } else { 1 };
    let (initial_mtu, max_mtu) = (setup::MTU, setup::MTU);
    Arc::new(Config { max_segments, initial_mtu, max_mtu, ..usual })
}

pub(crate) async fn receive(case: &Case) -> Result<Usage> {
    let tls = Arc::new(ServerTls(Arc::new(setup::server()?)));
    let server = Server { tls, config: config(case), retry: Retry::Above(8), max_connections: 8 };
    let endpoint = Endpoint::new(Some(server))?;
    let bound = case.at.iter().map(|&at| endpoint.bind(at)).collect::<std::io::Result<Vec<_>>>()?;
    setup::tell(&bound);
    let connection = endpoint.accept().await;
    let (mut to, mut from) = connection.accept_stream().await?.into_split();
    let usage = payload::receive(case.bytes(), &mut to, &mut from).await?;
    connection.closed().await;
    Ok(usage)
}

pub(crate) async fn send(case: &Case) -> Result<Usage> {
    let tls = Arc::new(ClientTls(Arc::new(setup::client()?)));
    let endpoint = Endpoint::new(None)?;
    let target = Target {
        name: "localhost".into(),
        addresses: case.at[..1].to_vec(),
        locals: case.from[..1].to_vec(),
        ..Target::default()
    };
    let connection = endpoint.connect(tls, config(case), &target).await?;
    for (&remote, &ip) in case.at.iter().zip(&case.from).skip(1) {
        let route = Route { local: endpoint.bind(std::net::SocketAddr::new(ip, 0))?, remote };
        // Possible once the handshake is confirmed and the peer has given connection ids.
        while connection.open_path(route).is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    while connection.paths().iter().filter(|path| path.open).count() < case.paths() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (mut to, mut from) = connection.open_stream().await?.into_split();
    let usage = payload::send(case.bytes(), &mut to, &mut from).await?;
    connection.close(0, "done");
    endpoint.wait_idle().await;
    Ok(usage)
}
