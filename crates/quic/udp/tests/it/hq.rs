//! HTTP/0.9 over QUIC: a stream carries a request, `GET /name`, and what is there.

use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use vmcc_quic_testkit::tls;
use vmcc_transport::crypto::{ClientTls, ServerTls};
use vmcc_transport::{ConnectionError, Retry, Server};
use vmcc_udp::{Connection, Endpoint};

const ALPN: &[u8] = b"hq-interop";

pub(crate) fn client() -> Arc<ClientTls> {
    let mut config = tls::client_config();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Arc::new(ClientTls(Arc::new(config)))
}

pub(crate) fn server(retry: Retry, config: vmcc_transport::Config) -> Endpoint {
    let mut tls = tls::server_config();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let tls = Arc::new(ServerTls(Arc::new(tls)));
    Endpoint::new(Some(Server { tls, config: Arc::new(config), retry, max_connections: 4 })).unwrap()
}

/// Bytes of which no offset has those of another one nearby.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Fetches what is under a name; `look` gets the number of bytes so far.
pub(crate) async fn get(connection: &Connection, name: &str, mut look: impl AsyncFnMut(usize)) -> Vec<u8> {
    let mut stream = connection.open_stream().await.unwrap();
    stream.write_all(format!("GET /{name}\r\n").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = Vec::new();
    while stream.read_buf(&mut all).await.unwrap() > 0 {
        look(all.len()).await;
    }
    all
}

/// Sends `data`, of which `look` gets the number of bytes taken so far; the answer.
pub(crate) async fn post(connection: &Connection, data: &[u8], mut look: impl AsyncFnMut(usize)) -> Vec<u8> {
    let mut stream = connection.open_stream().await.unwrap();
    stream.write_all(b"POST /post\r\n\r\n").await.unwrap();
    let mut taken = 0;
    while taken < data.len() {
        taken += stream.write(&data[taken..]).await.unwrap();
        look(taken).await;
    }
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer
}

/// Answers every request with `data`, until the peer closes; `look` gets the number of bytes taken so far.
pub(crate) async fn serve(
    connection: &Connection,
    data: &[u8],
    mut look: impl AsyncFnMut(usize),
) -> ConnectionError {
    loop {
        let mut stream = match connection.accept_stream().await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let mut request = String::new();
        stream.read_to_string(&mut request).await.unwrap();
        assert!(request.starts_with("GET /"), "{request:?}");
        let mut taken = 0;
        while taken < data.len() {
            taken += stream.write(&data[taken..]).await.unwrap();
            look(taken).await;
        }
        stream.shutdown().await.unwrap();
        // A client that has all may close before it says so.
        let _ = stream.into_split().0.wait_acked().await;
        look(taken).await;
    }
}
