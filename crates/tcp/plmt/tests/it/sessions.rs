//! Streams over two carriers, with and without TLS; ends of sessions.

use crate::pair::{BOUND, listen, pair, routes, security, wait_carriers};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use vmcc_plmt::{ClientSecurity, Config, ConnectError, Connection, ServerSecurity, connect};

pub(crate) fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ i >> 8 ^ i >> 16) as u8).collect()
}

/// Sends bytes one way and their copy back; what came back.
pub(crate) async fn echo(client: &Connection, server: &Connection, data: &[u8]) -> Vec<u8> {
    let answer = async {
        let (mut send, mut recv) = server.accept_stream().await.unwrap().into_split();
        let mut all = Vec::new();
        recv.read_to_end(&mut all).await.unwrap();
        send.write_all(&all).await.unwrap();
        send.shutdown().await.unwrap();
        send.wait_acked().await.unwrap();
    };
    let ask = async {
        let mut stream = client.open_stream().await.unwrap();
        stream.write_all(data).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        all
    };
    timeout(BOUND, async { tokio::join!(answer, ask).1 }).await.expect("the echo arrives")
}

#[tokio::test]
async fn echo_crosses_two_carriers() {
    for (client_security, server_security) in [security(), (ClientSecurity::Plain, ServerSecurity::Plain)] {
        let mut listener = listen(server_security).await;
        let (client, server) = pair(&mut listener, client_security, 2).await;
        let data = data(20_000_000);
        assert!(echo(&client, &server, &data).await == data);
        let carriers = client.carriers();
        assert!(carriers.iter().all(|carrier| carrier.bytes_out > 100_000), "both carried: {carriers:?}");
    }
}

#[tokio::test]
async fn many_streams_share_a_session() {
    let (client_security, server_security) = security();
    let mut listener = listen(server_security).await;
    let (client, server) = pair(&mut listener, client_security, 2).await;
    let serve = async {
        loop {
            let Ok(stream) = server.accept_stream().await else { return };
            tokio::spawn(async move {
                let (mut send, mut recv) = stream.into_split();
                let mut all = Vec::new();
                recv.read_to_end(&mut all).await.unwrap();
                send.write_all(&all).await.unwrap();
                send.shutdown().await.unwrap();
                send.wait_acked().await.unwrap();
            });
        }
    };
    // More than the peer allows at a time.
    let ask = async {
        let mut tasks = Vec::new();
        for i in 0..600 {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                let data = data(1000 + i);
                let mut stream = client.open_stream().await.unwrap();
                stream.write_all(&data).await.unwrap();
                stream.shutdown().await.unwrap();
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.unwrap();
                assert!(all == data);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    };
    timeout(BOUND, async {
        tokio::select! { () = serve => {}, () = ask => {} }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn close_by_the_peer_is_an_error_with_its_reason() {
    let mut listener = listen(ServerSecurity::Plain).await;
    let (client, server) = pair(&mut listener, ClientSecurity::Plain, 2).await;
    let mut stream = client.open_stream().await.unwrap();
    stream.write_all(b"half").await.unwrap();
    server.close(7, "shutting down");
    let error = timeout(BOUND, stream.read_u8()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("code 7: shutting down"), "{error}");
    assert!(client.open_stream().await.is_err());
}

#[tokio::test]
async fn dropped_stream_is_reset_not_finished() {
    let mut listener = listen(ServerSecurity::Plain).await;
    let (client, server) = pair(&mut listener, ClientSecurity::Plain, 1).await;
    let mut stream = client.open_stream().await.unwrap();
    stream.write_all(b"half").await.unwrap();
    let mut received = timeout(BOUND, server.accept_stream()).await.unwrap().unwrap();
    drop(stream);
    let error = timeout(BOUND, received.read_to_end(&mut Vec::new())).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn refused_connection_error_names_the_address() {
    // Bound and closed again: nobody listens there.
    let address = std::net::TcpListener::bind("127.0.0.3:0").unwrap().local_addr().unwrap();
    let connecting = connect(Config::default(), ClientSecurity::Plain, routes(&[address]), None);
    let error = timeout(BOUND, connecting).await.unwrap().unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { remote, .. } if remote == address), "{error}");
    let none = connect(Config::default(), ClientSecurity::Plain, Vec::new(), None).await;
    assert!(matches!(none, Err(ConnectError::NoRoute)));
}

#[tokio::test]
async fn unresponsive_address_does_not_delay_the_other() {
    let mut listener = listen(ServerSecurity::Plain).await;
    let dead = std::net::TcpListener::bind("127.0.0.3:0").unwrap().local_addr().unwrap();
    let addresses = [dead, listener.addresses()[0]];
    let connecting = connect(Config::default(), ClientSecurity::Plain, routes(&addresses), None);
    let (client, _) = timeout(BOUND, connecting).await.unwrap().unwrap();
    let server = timeout(BOUND, listener.accept()).await.unwrap().unwrap();
    wait_carriers(&client, 1).await;
    let data = data(100_000);
    assert!(echo(&client, &server, &data).await == data);
}

#[tokio::test]
async fn untrusted_server_is_refused_with_its_reason() {
    let (client_security, _) = security();
    let (_, server_security) = security();
    let listener = listen(server_security).await;
    let connecting = connect(Config::default(), client_security, routes(listener.addresses()), None);
    let error = timeout(BOUND, connecting).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}
