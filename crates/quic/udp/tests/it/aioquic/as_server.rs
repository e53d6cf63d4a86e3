//! aioquic fetches.

use crate::aioquic::program::Aioquic;
use crate::aioquic::{
    BYTES, HANDSHAKE_DAMAGE, HANDSHAKE_LOSS, HANDSHAKES, STREAMS, TRANSFER_DAMAGE, TRANSFER_LOSS, cut_once,
    within_timeout,
};
use crate::forward::{Faults, Forward};
use crate::hq::{self, bytes};
use std::net::SocketAddr;
use vmcc_transport::{ConnectionError, Retry};
use vmcc_udp::{Connection, Endpoint};

fn listen(retry: Retry) -> (Endpoint, SocketAddr) {
    let endpoint = hq::server(retry, vmcc_udp::config());
    let local = endpoint.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    (endpoint, local)
}

/// Serves one connection until its client closes it; `look` is called while it lasts.
async fn serve(endpoint: &Endpoint, len: usize, look: impl Fn(&Connection)) {
    let connection = endpoint.accept().await;
    let end = hq::serve(&connection, &bytes(len), async |_| look(&connection)).await;
    assert!(matches!(end, ConnectionError::ApplicationClosed { code: 0, .. }), "{end}");
}

/// A client with these options fetches [`BYTES`] by a way with these faults.
fn transfer(retry: Retry, options: &[&str], faults: Faults) {
    within_timeout(async {
        let (endpoint, local) = listen(retry);
        let forward = Forward::start_faulty("127.0.0.1:0".parse().unwrap(), local, faults).await;
        let mut client = Aioquic::fetch(forward.at.port(), options);
        // The client closes once: a close that is lost leaves the server to its idle timeout.
        tokio::select! {
            () = serve(&endpoint, BYTES, |_| {}) => client.ended().await,
            () = client.ended() => {}
        }
    });
}

#[test]
fn server_against_aioquic_transfers() {
    transfer(Retry::Above(100), &[], Faults::default());
}

#[test]
fn server_against_aioquic_with_retry() {
    transfer(Retry::Always, &[], Faults::default());
}

#[test]
fn server_against_aioquic_with_chacha20() {
    transfer(Retry::Above(100), &["--chacha20"], Faults::default());
}

#[test]
fn server_against_aioquic_loses_datagrams_of_a_transfer() {
    transfer(Retry::Above(100), &[], TRANSFER_LOSS);
}

#[test]
fn server_against_aioquic_drops_damaged_datagrams_of_a_transfer() {
    transfer(Retry::Above(100), &[], TRANSFER_DAMAGE);
}

#[test]
fn server_against_aioquic_outlives_an_outage() {
    within_timeout(async {
        let (endpoint, local) = listen(Retry::Above(100));
        let forward = Forward::start("127.0.0.1:0".parse().unwrap(), local).await;
        let mut client = Aioquic::fetch(forward.at.port(), &[]);
        let (connection, mut cut) = (endpoint.accept().await, false);
        let look = async |len| cut_once(&forward, &mut cut, len).await;
        let end = hq::serve(&connection, &bytes(BYTES), look).await;
        assert!(matches!(end, ConnectionError::ApplicationClosed { code: 0, .. }), "{end}");
        client.ended().await;
    });
}

#[test]
fn server_against_aioquic_over_ipv6() {
    within_timeout(async {
        let endpoint = hq::server(Retry::Always, vmcc_udp::config());
        let local = endpoint.bind("[::1]:0".parse().unwrap()).unwrap();
        let mut client = Aioquic::fetch(local.port(), &["--host", "::1"]);
        serve(&endpoint, BYTES, |_| {}).await;
        client.ended().await;
    });
}

#[test]
fn server_against_aioquic_multiplexes() {
    within_timeout(async {
        let (endpoint, local) = listen(Retry::Above(100));
        let (streams, len) = STREAMS;
        let (streams, length) = (streams.to_string(), len.to_string());
        let mut client = Aioquic::fetch(local.port(), &["--streams", &streams, "--length", &length]);
        serve(&endpoint, len, |_| {}).await;
        client.ended().await;
    });
}

#[test]
fn server_against_aioquic_is_made_to_update_keys() {
    within_timeout(async {
        let (endpoint, local) = listen(Retry::Above(100));
        let mut client = Aioquic::fetch(local.port(), &["--update-keys"]);
        let updates = std::cell::Cell::new(0);
        serve(&endpoint, BYTES, |connection| updates.set(updates.get().max(connection.key_updates()))).await;
        client.ended().await;
        assert_eq!(updates.get(), 1);
    });
}

/// Connections, each with a handshake and a small transfer, by a faulty way.
fn handshakes(faults: Faults) {
    within_timeout(async {
        let (endpoint, local) = listen(Retry::Above(100));
        let forward = Forward::start_faulty("127.0.0.1:0".parse().unwrap(), local, faults).await;
        let (connections, len) = HANDSHAKES;
        let (connections, length) = (connections.to_string(), len.to_string());
        let options = ["--connections", &connections, "--length", &length];
        let mut client = Aioquic::fetch(forward.at.port(), &options);
        let serve_all = async {
            loop {
                let connection = endpoint.accept().await;
                tokio::spawn(async move { hq::serve(&connection, &bytes(len), async |_| {}).await });
            }
        };
        tokio::select! {
            () = client.ended() => {}
            () = serve_all => {}
        }
    });
}

#[test]
fn server_against_aioquic_loses_datagrams_of_handshakes() {
    handshakes(HANDSHAKE_LOSS);
}

#[test]
fn server_against_aioquic_drops_damaged_datagrams_of_handshakes() {
    handshakes(HANDSHAKE_DAMAGE);
}

#[test]
fn server_against_aioquic_follows_a_rebinding() {
    within_timeout(async {
        let (endpoint, local) = listen(Retry::Above(100));
        let forward = Forward::start("127.0.0.1:0".parse().unwrap(), local).await;
        let mut client = Aioquic::fetch(forward.at.port(), &[]);
        let remotes = std::cell::RefCell::new(Vec::new());
        serve(&endpoint, BYTES, |connection| {
            let mut remotes = remotes.borrow_mut();
            if remotes.is_empty() {
                forward.rebind();
            }
            remotes.extend(connection.paths().first().map(|path| path.route.remote));
        })
        .await;
        client.ended().await;
        assert_ne!(remotes.borrow().first(), remotes.borrow().last());
    });
}
