//! Two endpoints over real sockets of the loopback, with two addresses each.

use crate::hq::bytes;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use vmcc_transport::{ConnectionError, Retry, Server};
use vmcc_udp::{ConnectError, Connection, Endpoint, PathManager, Target};

/// Longest wait of a test.
const TIMEOUT: Duration = Duration::from_secs(30);

fn server() -> Endpoint {
    let config = Arc::new(vmcc_udp::config());
    let server = Server {
        tls: vmcc_quic_testkit::tls::server(),
        config,
        retry: Retry::Above(16),
        max_connections: 16,
    };
    Endpoint::new(Some(server)).unwrap()
}

/// Addresses of the loopback, which are all of this host.
fn ips(last: &[u8]) -> Vec<IpAddr> {
    last.iter().map(|last| IpAddr::from([127, 0, 0, *last])).collect()
}

fn bind(endpoint: &Endpoint, last: &[u8]) -> Vec<SocketAddr> {
    ips(last).into_iter().map(|ip| endpoint.bind(SocketAddr::new(ip, 0)).unwrap()).collect()
}

fn target(addresses: Vec<SocketAddr>, last: &[u8]) -> Target {
    Target { name: "localhost".into(), addresses, locals: ips(last), ..Target::default() }
}

async fn connect(endpoint: &Endpoint, target: &Target) -> Result<Connection, ConnectError> {
    endpoint.connect(vmcc_quic_testkit::tls::client(), Arc::new(vmcc_udp::config()), target).await
}

/// Gives every stream back until the peer closes.
async fn echo(server: Endpoint) -> ConnectionError {
    let connection = server.accept().await;
    loop {
        let mut stream = match connection.accept_stream().await {
            Ok(stream) => stream,
            Err(error) => break error,
        };
        tokio::spawn(async move {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            stream.write_all(&all).await.unwrap();
            stream.shutdown().await.unwrap();
            let (mut send, _) = stream.into_split();
            let _ = send.wait_acked().await;
        });
    }
}

async fn opened(connection: &Connection, wanted: usize) {
    while connection.paths().iter().filter(|path| path.open).count() < wanted {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn stream_uses_both_paths_and_survives_loss_of_one() {
    let (far, near) = (server(), Endpoint::new(None).unwrap());
    let target = target(bind(&far, &[3, 4]), &[1, 2]);
    let echo = tokio::spawn(echo(far.clone()));
    let done = timeout(TIMEOUT, async {
        let connection = connect(&near, &target).await.unwrap();
        let path_manager = PathManager::start(&connection, target);
        opened(&connection, 4).await;
        assert!(path_manager.failed().is_empty());
        let data = bytes(4 << 20);
        for round in 0..3 {
            let (mut send, mut recv) = connection.open_stream().await.unwrap().into_split();
            let (write, read) = (
                async {
                    send.write_all(&data).await.unwrap();
                    send.shutdown().await.unwrap();
                    send.wait_acked().await.unwrap();
                },
                async {
                    let mut back = Vec::new();
                    recv.read_to_end(&mut back).await.unwrap();
                    back
                },
            );
            let ((), back) = tokio::join!(write, read);
            assert!(back == data, "round {round}");
            let paths = connection.paths();
            match round {
                // The address is gone: the system refuses its packets, and what they carried leaves elsewhere.
                0 => {
                    assert!(paths.iter().all(|path| path.bytes.1 > 20_000), "{paths:?}");
                    near.unbind(near.local_of(ips(&[2])[0]).unwrap());
                }
                _ => assert!(paths.iter().any(|path| path.failed), "{paths:?}"),
            }
        }
        connection.close(7, "enough");
        near.wait_idle().await;
    });
    done.await.expect("it takes no such time");
    let end = echo.await.unwrap();
    assert!(matches!(end, ConnectionError::ApplicationClosed { code: 7, .. }), "{end}");
}

#[tokio::test]
async fn wildcard_server_replies_from_the_destination_address() {
    let far = server();
    let port = far.bind("0.0.0.0:0".parse().unwrap()).unwrap().port();
    let addresses: Vec<_> = ips(&[3, 4]).into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
    let echo = tokio::spawn(echo(far.clone()));
    let near = Endpoint::new(None).unwrap();
    let target = target(addresses, &[1]);
    timeout(TIMEOUT, async {
        let connection = connect(&near, &target).await.unwrap();
        let _path_manager = PathManager::start(&connection, target);
        opened(&connection, 2).await;
        let mut stream = connection.open_stream().await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).await.unwrap();
        assert_eq!(back, b"hello");
        assert!(connection.paths().iter().any(|path| path.ecn), "marks pass the loopback");
    })
    .await
    .expect("it takes no such time");
    drop(near);
    echo.await.unwrap();
}

#[tokio::test]
async fn datagrams_keep_their_boundaries() {
    let (far, near) = (server(), Endpoint::new(None).unwrap());
    let target = target(bind(&far, &[1]), &[1]);
    timeout(TIMEOUT, async {
        let (connection, accepted) = tokio::join!(connect(&near, &target), far.accept());
        let connection = connection.unwrap();
        let most = connection.max_datagram().unwrap();
        assert!(!connection.send_datagram(&vec![0; most + 1]));
        assert!(connection.send_datagram(b"ping"));
        assert_eq!(accepted.read_datagram().await.unwrap(), b"ping");
        drop(accepted);
        assert!(matches!(connection.closed().await, ConnectionError::ApplicationClosed { code: 0, .. }));
    })
    .await
    .expect("it takes no such time");
}

#[tokio::test]
async fn keys_are_updated_while_data_flows() {
    let (far, near) = (server(), Endpoint::new(None).unwrap());
    let target = target(bind(&far, &[1]), &[1]);
    timeout(TIMEOUT, async {
        let (connection, accepted) = tokio::join!(connect(&near, &target), far.accept());
        let (connection, data) = (connection.unwrap(), bytes(1 << 20));
        assert_eq!((connection.key_updates(), accepted.key_updates()), (0, 0));
        for (updater, updates) in [(&connection, 1), (&accepted, 2)] {
            let mut stream = connection.open_stream().await.unwrap();
            stream.write_all(&data[..1000]).await.unwrap();
            let mut at_peer = accepted.accept_stream().await.unwrap();
            // Only once a packet of the present keys is acknowledged, and never twice at once.
            while !updater.update_keys() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(!updater.update_keys());
            stream.write_all(&data[1000..]).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut got = Vec::new();
            at_peer.read_to_end(&mut got).await.unwrap();
            assert!(got == data);
            while (connection.key_updates(), accepted.key_updates()) != (updates, updates) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        connection.close(0, "done");
        assert!(!connection.update_keys(), "there is nothing left to encrypt");
    })
    .await
    .expect("it takes no such time");
}

#[tokio::test]
async fn dropped_stream_is_reset_not_finished() {
    let (far, near) = (server(), Endpoint::new(None).unwrap());
    let target = target(bind(&far, &[1]), &[1]);
    timeout(TIMEOUT, async {
        let (connection, accepted) = tokio::join!(connect(&near, &target), far.accept());
        let connection = connection.unwrap();
        let mut stream = connection.open_stream().await.unwrap();
        stream.write_all(b"part").await.unwrap();
        let mut at_peer = accepted.accept_stream().await.unwrap();
        drop(stream);
        let mut got = Vec::new();
        let error = at_peer.read_to_end(&mut got).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    })
    .await
    .expect("it takes no such time");
}

#[tokio::test]
async fn unreachable_target_reports_each_pair() {
    let near = Endpoint::new(None).unwrap();
    // The system refuses to send to everybody, so nobody waits for an answer.
    let nowhere = target(vec!["255.255.255.255:9".parse().unwrap()], &[1, 2]);
    let error = timeout(TIMEOUT, connect(&near, &nowhere)).await.unwrap().err().unwrap();
    let ConnectError::NoPath(attempts) = &error else { panic!("{error}") };
    assert_eq!(attempts.len(), 2, "{error}");
    assert!(attempts.iter().all(|attempt| attempt.reason.contains("Permission denied")), "{error}");
    let family = target(vec!["[2001:db8::1]:9".parse().unwrap()], &[1]);
    assert!(matches!(connect(&near, &family).await, Err(ConnectError::NoPair(_))));
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn sockets_of_removed_addresses_are_closed() {
    let endpoint = Endpoint::new(None).unwrap();
    let source = vmcc_udp::Source { ip: ips(&[5])[0], interface: "lo".to_owned() };
    let kept = bind(&endpoint, &[6])[0];
    let of_interface = endpoint.bind_source(&source, 0).unwrap();
    endpoint.close_stale(std::slice::from_ref(&source));
    assert_eq!(endpoint.locals(), [kept, of_interface]);
    // It has moved to another interface, or come again as one.
    endpoint.close_stale(&[vmcc_udp::Source { interface: "other".to_owned(), ..source }]);
    assert_eq!(endpoint.locals(), [kept]);
}
