//! Peers that speak something else, say nothing, or are many.

use crate::pair::{BOUND, listen, pair, security};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use vmcc_plmt::{ClientSecurity, ServerSecurity};

#[tokio::test]
async fn other_protocols_are_disconnected() {
    let mut listener = listen(ServerSecurity::Plain).await;
    for greeting in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SSH-2.0-OpenSSH_9.2\r\n", b"\x16\x03\x01\x02\x00\x01", &[0; 64]]
    {
        let mut stream = TcpStream::connect(listener.addresses()[0]).await.unwrap();
        stream.write_all(greeting).await.unwrap();
        let mut answer = Vec::new();
        // The end comes as EOF or as a reset.
        let _ = timeout(BOUND, stream.read_to_end(&mut answer)).await.expect("the server ends it");
        assert!(answer.is_empty(), "{answer:?}");
    }
    let _pair = pair(&mut listener, ClientSecurity::Plain, 2).await;
}

#[tokio::test]
async fn silent_connections_do_not_block_others() {
    let (client_security, server_security) = security();
    let mut listener = listen(server_security).await;
    // More than may wait for a greeting; the oldest are ended.
    let mut silent = Vec::new();
    for _ in 0..1200 {
        silent.push(TcpStream::connect(listener.addresses()[0]).await.unwrap());
    }
    let _pair = pair(&mut listener, client_security, 2).await;
    let ended = timeout(BOUND, silent[0].read(&mut [0; 1])).await.expect("the oldest is ended");
    assert!(matches!(ended, Ok(0) | Err(_)));
    // The newest still waits.
    let newest = timeout(Duration::from_millis(1), silent.last_mut().unwrap().read(&mut [0; 1])).await;
    assert!(newest.is_err(), "{newest:?}");
}

#[tokio::test]
async fn join_of_an_unknown_session_is_refused() {
    let listener = listen(ServerSecurity::Plain).await;
    let mut stream = TcpStream::connect(listener.addresses()[0]).await.unwrap();
    // JOIN: type, magic, token, number, MAC.
    let mut join = vec![0x40, 38, 0x22];
    join.extend(b"vmT1");
    join.extend([9; 16]);
    join.push(3);
    join.extend([8; 16]);
    stream.write_all(&join).await.unwrap();
    let mut answer = Vec::new();
    timeout(BOUND, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer, [0x40, 2, 0x24, 0], "refused: unknown session");
}
