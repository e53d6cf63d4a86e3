//! aioquic serves.

use crate::aioquic::program::Aioquic;
use crate::aioquic::{
    BYTES, HANDSHAKE_DAMAGE, HANDSHAKE_LOSS, HANDSHAKES, STREAMS, TRANSFER_DAMAGE, TRANSFER_LOSS, cut_once,
    within_timeout,
};
use crate::forward::{Faults, Forward};
use crate::hq::{self, bytes};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use vmcc_transport::{Config, Route};
use vmcc_udp::{Connection, Endpoint};
use vmcc_units::time::Span;

/// An address of the loopback.
fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

async fn connect(remote: SocketAddr) -> Connection {
    let endpoint = Endpoint::new(None).unwrap();
    let local = if remote.is_ipv4() { loopback(0) } else { SocketAddr::from((Ipv6Addr::LOCALHOST, 0)) };
    let route = Route { local: endpoint.bind(local).unwrap(), remote };
    // With a third of all datagrams lost, probes may all be lost for longer than the default.
    let config = Arc::new(Config { idle_timeout: Span::from_secs(180), ..vmcc_udp::config() });
    let connection = endpoint.connect_route(hq::client(), config, "localhost", route).unwrap();
    connection.connected().await.unwrap();
    assert!(!connection.is_multipath(), "the peer does not speak it");
    connection
}

async fn fetch(connection: &Connection, len: usize) {
    assert!(hq::get(connection, &len.to_string(), async |_| {}).await == bytes(len));
}

async fn close(connection: Connection) {
    connection.close(0, "done");
    connection.endpoint().wait_idle().await;
}

/// A transfer from a server with these options.
fn transfer(options: &[&str]) {
    within_timeout(async {
        let server = Aioquic::serve(options);
        let connection = connect(loopback(server.port)).await;
        fetch(&connection, BYTES).await;
        close(connection).await;
    });
}

#[test]
fn client_against_aioquic_transfers() {
    transfer(&[]);
}

#[test]
fn client_against_aioquic_with_retry() {
    transfer(&["--retry"]);
}

#[test]
fn client_against_aioquic_with_chacha20() {
    transfer(&["--chacha20"]);
}

#[test]
fn client_against_aioquic_multiplexes() {
    within_timeout(async {
        let server = Aioquic::serve(&[]);
        let connection = connect(loopback(server.port)).await;
        let (streams, len) = STREAMS;
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..streams {
            let connection = connection.clone();
            all.spawn(async move { fetch(&connection, len).await });
        }
        all.join_all().await;
        close(connection).await;
    });
}

#[test]
fn client_against_aioquic_updates_keys_and_is_made_to() {
    within_timeout(async {
        let server = Aioquic::serve(&["--update-keys"]);
        let connection = connect(loopback(server.port)).await;
        fetch(&connection, BYTES).await;
        assert_eq!(connection.key_updates(), 1, "the peer's");
        // Not before the peer has acknowledged a packet with the new keys.
        while !connection.update_keys() {
            fetch(&connection, 1).await;
        }
        fetch(&connection, BYTES).await;
        assert_eq!(connection.key_updates(), 2);
        close(connection).await;
    });
}

/// Connections, each with a handshake and a small transfer, by a faulty way.
fn handshakes(faults: Faults) {
    within_timeout(async {
        let server = Aioquic::serve(&[]);
        let forward = Forward::start_faulty(loopback(0), loopback(server.port), faults).await;
        let (connections, len) = HANDSHAKES;
        for _ in 0..connections {
            let connection = connect(forward.at).await;
            fetch(&connection, len).await;
            connection.close(0, "done");
        }
    });
}

#[test]
fn client_against_aioquic_loses_datagrams_of_handshakes() {
    handshakes(HANDSHAKE_LOSS);
}

#[test]
fn client_against_aioquic_drops_damaged_datagrams_of_handshakes() {
    handshakes(HANDSHAKE_DAMAGE);
}

fn faulty_transfer(faults: Faults) {
    within_timeout(async {
        let server = Aioquic::serve(&[]);
        let forward = Forward::start_faulty(loopback(0), loopback(server.port), faults).await;
        let connection = connect(forward.at).await;
        fetch(&connection, BYTES).await;
        close(connection).await;
    });
}

#[test]
fn client_against_aioquic_loses_datagrams_of_a_transfer() {
    faulty_transfer(TRANSFER_LOSS);
}

#[test]
fn client_against_aioquic_drops_damaged_datagrams_of_a_transfer() {
    faulty_transfer(TRANSFER_DAMAGE);
}

#[test]
fn client_against_aioquic_outlives_an_outage() {
    within_timeout(async {
        let server = Aioquic::serve(&[]);
        let forward = Forward::start(loopback(0), loopback(server.port)).await;
        let connection = connect(forward.at).await;
        let mut cut = false;
        let look = async |len| cut_once(&forward, &mut cut, len).await;
        assert!(hq::get(&connection, &BYTES.to_string(), look).await == bytes(BYTES));
        close(connection).await;
    });
}

#[test]
fn client_against_aioquic_over_ipv6() {
    within_timeout(async {
        let server = Aioquic::serve(&["--host", "::1"]);
        let connection = connect(SocketAddr::from((Ipv6Addr::LOCALHOST, server.port))).await;
        fetch(&connection, BYTES).await;
        close(connection).await;
    });
}

#[test]
fn client_against_aioquic_is_rebound_by_a_nat() {
    within_timeout(async {
        let server = Aioquic::serve(&[]);
        let forward = Forward::start(loopback(0), loopback(server.port)).await;
        let connection = connect(forward.at).await;
        fetch(&connection, BYTES).await;
        forward.rebind();
        fetch(&connection, BYTES).await;
        close(connection).await;
    });
}

#[test]
fn client_against_aioquic_gives_up_ecn_that_is_not_reported() {
    within_timeout(async {
        let server = Aioquic::serve(&[]);
        let connection = connect(loopback(server.port)).await;
        fetch(&connection, BYTES).await;
        assert!(connection.paths().iter().all(|path| !path.ecn), "{:?}", connection.paths());
        close(connection).await;
    });
}
