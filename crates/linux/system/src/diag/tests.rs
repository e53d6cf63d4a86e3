use super::subflow::parse_ulp;
use super::*;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::from(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[test]
fn loopback_connection_is_listed_at_both_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _server = listener.accept().unwrap();
    let all = Diag::open().unwrap().subflows().unwrap();
    let (local, remote) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
    let ours = all.iter().find(|s| s.local == local && s.remote == remote).expect("client end");
    assert!(ours.established && ours.cwnd_pkt >= 1 && !ours.algorithm.is_empty());
    assert_eq!(ours.mptcp, None);
    assert!(all.iter().any(|s| s.local == remote && s.remote == local), "server end");
}

#[test]
fn fill_of_the_send_buffer_is_reported_on_request() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (local, remote) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
    let own = |all: Vec<Subflow>| all.into_iter().find(|s| s.local == local && s.remote == remote).unwrap();
    let mut diag = Diag::open().unwrap();
    assert_eq!(own(diag.subflows().unwrap()).send_buffer_full, None);
    assert_eq!(own(diag.subflows_with_memory().unwrap()).send_buffer_full, Some(false));
    client.set_nonblocking(true).unwrap();
    // Nobody reads: both buffers fill, the far one with what is under way after a refused write.
    let begun = Instant::now();
    while own(diag.subflows_with_memory().unwrap()).send_buffer_full != Some(true) {
        assert!(begun.elapsed() < Duration::from_secs(20), "its buffer takes data that nobody reads");
        while client.write(&[0; 1 << 16]).is_ok() {}
    }
}

#[test]
fn mptcp_attributes_are_parsed() {
    let mut inner = attribute(1, &0x1122_3344_u32.to_ne_bytes());
    inner.extend(attribute(2, &0x5566_7788_u32.to_ne_bytes()));
    inner.extend(attribute(8, &(1_u32 << 3 | 1 << 5 | 1 << 6).to_ne_bytes()));
    inner.extend(attribute(9, &[7]));
    inner.extend(attribute(10, &[9]));
    let mut ulp = attribute(1, b"mptcp\0");
    ulp.extend(attribute(3 | 0x8000, &inner));
    let expected = Mptcp {
        token_local: 0x5566_7788,
        token_remote: 0x1122_3344,
        id_local: 9,
        id_remote: 7,
        joined: true,
        backup: true,
        established: true,
    };
    assert_eq!(parse_ulp(&ulp), Some(expected));
}

#[test]
fn malformed_attributes_do_not_panic() {
    let whole = attribute(3, &attribute(1, &[1, 2, 3, 4]));
    for cut in 0..whole.len() {
        parse_ulp(&whole[..cut]);
    }
    for length in [0_u16, 1, 3, 5, 0xffff] {
        let mut broken = whole.clone();
        broken[..2].copy_from_slice(&length.to_ne_bytes());
        parse_ulp(&broken);
        broken = whole.clone();
        broken[4..6].copy_from_slice(&length.to_ne_bytes());
        parse_ulp(&broken);
    }
}
