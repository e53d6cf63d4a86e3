//! picoquic serves.

use crate::forward::Forward;
use crate::hq::{self, bytes};
use crate::picoquic::paths::{self, Trial};
use crate::picoquic::{BYTES, with_picoquic};
use std::net::SocketAddr;
use std::sync::Arc;
use vmcc_transport::{Config, Route};
use vmcc_udp::{Connection, Endpoint};

fn at(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, last], port))
}

async fn connect(endpoint: &Endpoint, config: Config, port: u16) -> Connection {
    let local = endpoint.bind(at(1, 0)).unwrap();
    let route = Route { local, remote: at(1, port) };
    let connection = endpoint.connect_route(hq::client(), Arc::new(config), "localhost", route).unwrap();
    connection.connected().await.unwrap();
    assert_eq!(connection.alpn().unwrap(), b"hq-interop");
    connection
}

/// The program's answer to a request with `BYTES`. It adds the room that it has for this answer, 512 bytes, to what came.
fn assert_received(answer: &[u8]) {
    let all = [BYTES, BYTES + 512].map(|bytes| format!("Received {bytes} bytes.\n"));
    let answer = String::from_utf8_lossy(answer);
    assert!(all.contains(&answer.clone().into_owned()), "{answer}");
}

async fn close(connection: Connection) {
    connection.close(0, "done");
    connection.endpoint().wait_idle().await;
}

#[test]
#[ignore = "needs picoquicdemo, which VMCC_PICOQUIC names"]
fn client_against_picoquic_with_retry_and_key_updates() {
    for options in [&[][..], &["-r"]] {
        with_picoquic(async |picoquic| {
            let data = bytes(BYTES);
            picoquic.serve("data", &data);
            let (_server, port) = picoquic.server(options).await;
            let endpoint = Endpoint::new(None).unwrap();
            let connection = connect(&endpoint, vmcc_udp::config(), port).await;
            assert!(!connection.is_multipath(), "it was not told to");
            let mut updated = 0;
            let got = hq::get(&connection, "data", async |len| {
                // A second one needs an acknowledgment of what left since the first.
                if len > BYTES / 4 * (updated + 1) && updated < 2 && connection.update_keys() {
                    updated += 1;
                }
            });
            assert!(got.await == data);
            assert_eq!((updated, connection.key_updates()), (2, 2));
            let answer = hq::post(&connection, &data, async |_| {}).await;
            assert_received(&answer);
            close(connection).await;
        });
    }
}

#[test]
#[ignore = "needs picoquicdemo, which VMCC_PICOQUIC names"]
fn client_against_picoquic_receives_while_losing_and_abandoning_paths() {
    three_paths(async |connection, trial, data| {
        let got = hq::get(connection, "data", async |len| trial.look(len)).await;
        assert!(got == data);
    });
}

#[test]
#[ignore = "needs picoquicdemo, which VMCC_PICOQUIC names"]
fn client_against_picoquic_sends_while_losing_and_abandoning_paths() {
    three_paths(async |connection, trial, data| {
        let answer = hq::post(connection, data, async |len| trial.look(len)).await;
        assert_received(&answer);
    });
}

fn three_paths(carry: impl AsyncFn(&Connection, &mut Trial<'_>, &[u8])) {
    with_picoquic(async |picoquic| {
        let data = bytes(BYTES);
        picoquic.serve("data", &data);
        let (_server, port) = picoquic.server(&["-M"]).await;
        let endpoint = Endpoint::new(None).unwrap();
        let connection = connect(&endpoint, vmcc_udp::config(), port).await;
        assert!(connection.is_multipath());
        let forward = Forward::start(at(4, 0), at(1, port)).await;
        let locals = [2, 3].map(|last| endpoint.bind(at(last, 0)).unwrap());
        paths::open(&connection, &[(locals[0], forward.at), (locals[1], at(1, port))]).await;
        let mut trial = Trial::new(&connection, &forward);
        carry(&connection, &mut trial, &data).await;
        trial.begun_early();
        trial.end().await;
        // What is left of it still works.
        assert!(hq::get(&connection, "data", async |_| {}).await == data);
        close(connection).await;
    });
}
