//! Against other people's implementations, over real sockets.

mod noq;
mod quinn;

use crate::udp::Udp;
use std::sync::Arc;
use vmcc_quic_testkit::tls;
use vmcc_transport::{Config, Endpoint, Retry, Server};

/// Bytes that go there and back.
const BYTES: usize = 3_000_000;

fn client(addresses: &[&str]) -> Udp {
    Udp::new(Endpoint::new(None, [3; 32]), addresses)
}

fn server(retry: Retry, addresses: &[&str]) -> Udp {
    let config = Arc::new(Config::default());
    let server = Server { tls: tls::server(), config, retry, max_connections: 10 };
    Udp::new(Endpoint::new(Some(server), [4; 32]), addresses)
}
