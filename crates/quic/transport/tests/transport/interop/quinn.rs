//! `quinn`: one path.

use super::{BYTES, client, server};
use crate::net::pattern;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, ServerConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use vmcc_quic_testkit::tls;
use vmcc_transport::{Config, Dir, Retry, Route};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A server that gives back what comes on one stream, in a thread of its own.
fn echo(retry: bool) -> (SocketAddr, thread::JoinHandle<()>) {
    let (tell, address) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        runtime().block_on(async {
            let crypto = QuicServerConfig::try_from(tls::server_config()).unwrap();
            let config = ServerConfig::with_crypto(Arc::new(crypto));
            let endpoint = Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
            tell.send(endpoint.local_addr().unwrap()).unwrap();
            let mut incoming = endpoint.accept().await.unwrap();
            if retry {
                incoming.retry().unwrap();
                incoming = endpoint.accept().await.unwrap();
            }
            let connection = incoming.await.unwrap();
            let (mut send, mut recv) = connection.accept_bi().await.unwrap();
            let mut buffer = vec![0; 64 << 10];
            while let Some(len) = recv.read(&mut buffer).await.unwrap() {
                send.write_all(&buffer[..len]).await.unwrap();
            }
            send.finish().unwrap();
            connection.closed().await;
        });
    });
    (address.recv().unwrap(), thread)
}

fn as_client(retry: bool) {
    let (remote, thread) = echo(retry);
    let mut udp = client(&["127.0.0.1"]);
    let (now, route) = (udp.now(), Route { local: udp.address(0), remote });
    let config = Arc::new(Config::default());
    let handle = udp.endpoint.connect(now, tls::client(), config, "localhost", route, Vec::new()).unwrap();
    assert_eq!(udp.connected(), handle);
    let connection = udp.endpoint.connection(handle).unwrap();
    assert!(!connection.is_multipath());
    let stream = connection.open_stream(Dir::Bi).unwrap();
    let data = pattern(0, BYTES);
    let mut updated = false;
    let answer = udp.exchange(handle, stream, &data, |udp, len| {
        let now = udp.now();
        // Once, under way.
        updated = updated || (len > BYTES / 2 && udp.endpoint.connection(handle).unwrap().update_keys(now));
    });
    assert!(answer == data && updated);
    udp.close(handle);
    thread.join().unwrap();
}

#[test]
fn client_against_quinn_with_key_update() {
    as_client(false);
}

#[test]
fn client_against_quinn_with_retry() {
    as_client(true);
}

#[test]
fn server_against_quinn() {
    for retry in [Retry::Above(usize::MAX), Retry::Always] {
        let mut udp = server(retry, &["127.0.0.1"]);
        let remote = udp.address(0);
        let thread = thread::spawn(move || {
            runtime().block_on(async {
                let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
                let crypto = QuicClientConfig::try_from(tls::client_config()).unwrap();
                endpoint.set_default_client_config(ClientConfig::new(Arc::new(crypto)));
                let connection = endpoint.connect(remote, "localhost").unwrap().await.unwrap();
                let (mut send, mut recv) = connection.open_bi().await.unwrap();
                let data = pattern(0, BYTES);
                let sent = data.clone();
                let writer = tokio::spawn(async move {
                    let (first, second) = sent.split_at(BYTES / 2);
                    send.write_all(first).await.unwrap();
                    send.write_all(second).await.unwrap();
                    send.finish().unwrap();
                });
                let answer = recv.read_to_end(BYTES).await.unwrap();
                writer.await.unwrap();
                connection.force_key_update();
                assert!(answer == data);
                connection.close(0u32.into(), b"done");
                endpoint.wait_idle().await;
            });
        });
        udp.echo(|_| {});
        thread.join().unwrap();
    }
}
