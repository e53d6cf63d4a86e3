//! A client and a server on this host, with the TLS of a test.

use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::{RootCertStore, ServerConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use vmcc_plmt::{ClientSecurity, Config, Connection, Listener, Route, ServerSecurity, connect};

/// A bound that only a hang reaches.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

pub(crate) fn security() -> (ClientSecurity, ServerSecurity) {
    let own = rcgen::generate_simple_self_signed(["peer.test".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = &[&rustls::version::TLS13];
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.into())
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("peer.test").unwrap();
    (ClientSecurity::Tls(Arc::new(client), name), ServerSecurity::Tls(Arc::new(server)))
}

pub(crate) fn routes(addresses: &[SocketAddr]) -> Vec<Route> {
    addresses.iter().map(|&remote| Route { local: None, device: None, remote, proxy: None }).collect()
}

/// A server at two addresses of this host.
pub(crate) async fn listen(security: ServerSecurity) -> Listener {
    let addresses = ["127.0.0.1:0", "127.0.0.2:0"].map(|text| text.parse().unwrap());
    Listener::bind(&addresses, Config::default(), security, false).await.unwrap()
}

/// Both ends of a session, once `carriers` carriers are open at both.
pub(crate) async fn pair(
    listener: &mut Listener,
    security: ClientSecurity,
    carriers: usize,
) -> (Connection, Connection) {
    let routes = routes(listener.addresses());
    let client = timeout(BOUND, connect(Config::default(), security, routes, None)).await.unwrap().unwrap().0;
    let server = timeout(BOUND, listener.accept()).await.unwrap().unwrap();
    wait_carriers(&client, carriers).await;
    wait_carriers(&server, carriers).await;
    (client, server)
}

/// Waits until exactly this many carriers are open.
pub(crate) async fn wait_carriers(connection: &Connection, count: usize) {
    let wait = async {
        while connection.carriers().iter().filter(|carrier| carrier.open).count() != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(BOUND, wait).await.unwrap_or_else(|_| panic!("{count} carriers: {:?}", connection.carriers()));
}
