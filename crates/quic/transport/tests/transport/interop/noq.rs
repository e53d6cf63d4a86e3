//! `noq`: multipath.

use super::{BYTES, client, server};
use crate::net::pattern;
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{ClientConfig, Endpoint, FourTuple, PathStatus, ServerConfig, TransportConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use vmcc_quic_testkit::tls;
use vmcc_transport::{Config, Dir, Event, Retry, Route};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_multipath_paths(4);
    // A path that was cut is given up by then.
    transport.default_path_max_idle_timeout(Some(Duration::from_secs(1)));
    Arc::new(transport)
}

/// A server that takes everything that comes on one stream, and then gives it back.
fn noq_server() -> (SocketAddr, thread::JoinHandle<()>) {
    let (tell, address) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        runtime().block_on(async {
            let crypto = QuicServerConfig::try_from(tls::server_config()).unwrap();
            let mut config = ServerConfig::with_crypto(Arc::new(crypto));
            config.transport_config(transport());
            let endpoint = Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
            tell.send(endpoint.local_addr().unwrap()).unwrap();
            let connection = endpoint.accept().await.unwrap().await.unwrap();
            let (mut send, mut recv) = connection.accept_bi().await.unwrap();
            let data = recv.read_to_end(BYTES).await.unwrap();
            send.write_all(&data).await.unwrap();
            send.finish().unwrap();
            connection.closed().await;
        });
    });
    (address.recv().unwrap(), thread)
}

#[test]
fn client_against_noq_loses_one_of_three_paths_and_abandons_one() {
    let (remote, thread) = noq_server();
    let mut udp = client(&["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    let (now, route) = (udp.now(), Route { local: udp.address(0), remote });
    let handle = udp
        .endpoint
        .connect(now, tls::client(), Arc::new(Config::default()), "localhost", route, Vec::new())
        .unwrap();
    udp.connected();
    assert!(udp.endpoint.connection(handle).unwrap().is_multipath());
    for i in 1..3 {
        let (mut path, local) = (None, udp.address(i));
        udp.until(|udp| {
            let now = udp.now();
            let connection = udp.endpoint.connection(handle).unwrap();
            path = path.or_else(|| connection.open_path(now, Route { local, remote }).ok());
            path.filter(|&path| udp.events.contains(&(handle, Event::PathOpened { path })))
        });
    }
    let stream = udp.endpoint.connection(handle).unwrap().open_stream(Dir::Bi).unwrap();
    let data = pattern(0, BYTES);
    let mut abandoned = 0;
    udp.cut = None;
    let answer = udp.exchange(handle, stream, &data, |udp, _| {
        let now = udp.now();
        let connection = udp.endpoint.connection(handle).unwrap();
        let sent: Vec<_> = connection.paths().map(|path| path.bytes.1).collect();
        if abandoned == 0 && sent.iter().all(|&sent| sent > 20_000) {
            connection.abandon_path(now, 2).unwrap();
            abandoned = 1;
            udp.cut = Some(udp.address(1));
        } else if abandoned == 1 && udp.events.contains(&(handle, Event::PathSuspected { path: 1 })) {
            udp.endpoint.connection(handle).unwrap().abandon_path(now, 1).unwrap();
            abandoned = 2;
        }
    });
    assert!(answer == data);
    assert_eq!(abandoned, 2, "both were in use");
    udp.close(handle);
    thread.join().unwrap();
}

#[test]
fn server_against_noq_loses_one_of_three_paths_and_abandons_one() {
    let mut udp = server(Retry::Always, &["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    let remotes = [0, 1, 2].map(|i| udp.address(i));
    let (cut, cut_now) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        runtime().block_on(async {
            let endpoint = Endpoint::client("0.0.0.0:0".parse().unwrap()).unwrap();
            let crypto = QuicClientConfig::try_from(tls::client_config()).unwrap();
            let mut config = ClientConfig::new(Arc::new(crypto));
            config.transport_config(transport());
            let connection = endpoint.connect_with(config, remotes[0], "localhost").unwrap().await.unwrap();
            connection.handshake_confirmed().await.unwrap();
            let mut paths = Vec::new();
            for remote in &remotes[1..] {
                let tuple = FourTuple::from_remote(*remote);
                paths.push(connection.open_path(tuple, PathStatus::Available).await.unwrap());
            }
            let (mut send, mut recv) = connection.open_bi().await.unwrap();
            let data = pattern(0, BYTES);
            let (first, second) = data.split_at(BYTES / 2);
            send.write_all(first).await.unwrap();
            paths[1].close().unwrap();
            cut.send(()).unwrap();
            send.write_all(second).await.unwrap();
            send.finish().unwrap();
            let answer = recv.read_to_end(BYTES).await.unwrap();
            assert!(answer == data);
            connection.close(0u32.into(), b"done");
            endpoint.wait_idle().await;
        });
    });
    let address = udp.address(1);
    udp.echo(|udp| {
        if cut_now.try_recv().is_ok() {
            udp.cut = Some(address);
        }
    });
    thread.join().unwrap();
    let closed =
        |path| move |event: &Event| matches!(event, Event::PathClosed { path: own, .. } if *own == path);
    assert!([1, 2].map(closed).iter().all(|closed| udp.events.iter().any(|(_, event)| closed(event))));
}
