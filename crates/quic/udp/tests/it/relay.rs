//! Relays that do what none should: a server that is written down here, on the loopback, and wants no password.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};
use vmcc_transport::{Retry, Server};
use vmcc_turn::Credentials;
use vmcc_udp::{Connection, Endpoint, PathManager, Relay, Target};

/// Longest wait of a test.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A relay that is asked again without a pause would be so hundreds of times in this time; the first pause is 5 s.
const WHILE: Duration = Duration::from_millis(1500);

const ALLOCATE: u16 = 3;
const CHANNEL_BIND: u16 = 9;
const SUCCESS: u16 = 0x100;
const ERROR: u16 = 0x110;
const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// TURN server of a test: the address that it gives, the bindings of each address before it answers 437, and received messages.
struct Turn {
    gives: SocketAddr,
    binds: u32,
    allocations: u32,
    channels: u32,
    data: u32,
}

impl Turn {
    async fn start(turn: Turn) -> (SocketAddr, Arc<Mutex<Turn>>) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (at, turn) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(turn)));
        let shared = turn.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 2048];
            while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
                let answer = shared.lock().unwrap().answer(&buffer[..len]);
                if let Some(answer) = answer {
                    let _ = socket.send_to(&answer, from).await;
                }
            }
        });
        (at, turn)
    }

    fn answer(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        let kind = u16::from_be_bytes([request[0], request[1]]);
        let attributes = match kind {
            ALLOCATE => {
                (self.allocations, self.channels) = (self.allocations + 1, 0);
                let SocketAddr::V4(gives) = self.gives else { return None };
                let port = gives.port() ^ 0x2112;
                let mut relayed = vec![0, 0x16, 0, 8, 0, 1];
                relayed.extend_from_slice(&port.to_be_bytes());
                relayed.extend(gives.ip().octets().iter().zip(COOKIE).map(|(byte, mask)| byte ^ mask));
                [&relayed[..], &[0, 0x0d, 0, 4, 0, 0, 2, 0x58]].concat()
            }
            CHANNEL_BIND => {
                self.channels += 1;
                if self.channels > self.binds { vec![0, 9, 0, 4, 0, 0, 4, 37] } else { Vec::new() }
            }
            _ if kind >= 0x4000 => {
                self.data += 1;
                return None;
            }
            _ => Vec::new(),
        };
        let class = if attributes.get(1) == Some(&9) { ERROR } else { SUCCESS };
        let mut answer = (kind | class).to_be_bytes().to_vec();
        answer.extend_from_slice(&(attributes.len() as u16).to_be_bytes());
        answer.extend_from_slice(&request[4..20]);
        answer.extend_from_slice(&attributes);
        Some(answer)
    }
}

fn turn(binds: u32) -> Turn {
    Turn { gives: "192.0.2.9:50000".parse().unwrap(), binds, allocations: 0, channels: 0, data: 0 }
}

/// A connection over the loopback, whose peer is also said to have addresses that only a relay may lead to.
async fn connected(relay: SocketAddr, far: &[&str]) -> (Endpoint, Endpoint, Connection, Connection, Target) {
    let config = Arc::new(vmcc_udp::config());
    let server = Server {
        tls: vmcc_quic_testkit::tls::server(),
        config: config.clone(),
        retry: Retry::Above(16),
        max_connections: 16,
    };
    let (there, here) = (Endpoint::new(Some(server)).unwrap(), Endpoint::new(None).unwrap());
    let at = there.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let credentials = Credentials::new("user", "secret").unwrap();
    let target = Target {
        name: "localhost".into(),
        addresses: [at].into_iter().chain(far.iter().map(|one| one.parse().unwrap())).collect(),
        locals: vec![IpAddr::from([127, 0, 0, 1])],
        relays: vec![Relay { address: relay, credentials }],
        ..Target::default()
    };
    let (near, far) =
        tokio::join!(here.connect(vmcc_quic_testkit::tls::client(), config, &target), there.accept());
    (here, there, near.unwrap(), far, target)
}

#[tokio::test]
async fn relay_that_loses_its_channels_is_retried_with_backoff() {
    // One that knows none, and one that knows the first of each address.
    for (binds, most) in [(0, 1), (1, 2)] {
        let (relay, seen) = Turn::start(turn(binds)).await;
        let (_here, _there, near, _far, target) =
            connected(relay, &["198.51.100.1:9", "198.51.100.2:9"]).await;
        let path_manager = PathManager::start(&near, target);
        sleep(WHILE).await;
        let asked = seen.lock().unwrap().allocations;
        assert!((1..=most).contains(&asked), "{asked} times where {binds} channels were known");
        let reasons: Vec<_> = path_manager.failed().into_iter().filter(|one| one.relay.is_some()).collect();
        assert!(
            !reasons.is_empty() && reasons.iter().all(|one| one.reason.contains("437")),
            "{:?}",
            path_manager.failed()
        );
    }
}

#[tokio::test]
async fn relay_that_reports_an_own_address_is_rejected() {
    let (relay, seen) = Turn::start(turn(9)).await;
    let (here, _there, near, far, target) = connected(relay, &["198.51.100.1:9"]).await;
    let own = near.paths()[0].route.local;
    seen.lock().unwrap().gives = own;
    let path_manager = PathManager::start(&near, target);
    let told = timeout(TIMEOUT, async {
        while !path_manager.failed().iter().any(|one| one.reason.contains(&format!("address {own}"))) {
            sleep(Duration::from_millis(5)).await;
        }
        let mut stream = near.open_stream().await.unwrap();
        stream.write_all(&[7; 100_000]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut all = Vec::new();
        far.accept_stream().await.unwrap().read_to_end(&mut all).await.unwrap();
        assert_eq!(all, [7; 100_000]);
    });
    told.await.expect("it is accepted");
    let seen = seen.lock().unwrap();
    assert_eq!((seen.allocations, seen.data, here.via(own)), (1, 0, None));
}
