//! What an algorithm leaves in the ring buffer: `struct mp_close_event` of `kernel/shared.h`.

use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of `struct mp_close_event`, and where the ends of its two paths are.
const EVENT_BYTES: usize = 120;
const ENDS_AT: usize = 40;
const PEER_ENDS_AT: usize = 80;

/// An algorithm's wish to close a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CloseRequest {
    /// When, on the clock that counts from boot.
    pub time_ns: u64,
    /// Cookie of the socket to close; 0: nobody had asked for it yet.
    pub cookie: u64,
    /// What the peer had acknowledged on it.
    pub bytes_acked: u64,
    /// Token of the MPTCP connection.
    pub token: u32,
    /// Inode number of the network namespace the connection lives in.
    pub netns: u32,
    /// Index of the interface that the socket is bound to; 0: none.
    pub interface: u32,
    /// Slot of the path to close in the connection's table.
    pub slot: u16,
    /// Slot of the path that is kept.
    pub peer: u16,
    /// Local end of the subflow to close.
    pub local: SocketAddr,
    /// Its remote end.
    pub remote: SocketAddr,
    /// Local end of the path that is kept.
    pub peer_local: SocketAddr,
    /// Its remote end.
    pub peer_remote: SocketAddr,
}

impl CloseRequest {
    /// Reads `struct mp_close_event`; `None` if a family is unknown or bytes are missing.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..EVENT_BYTES)?;
        let long = |i: usize| u64::from_ne_bytes(bytes[i..i + 8].try_into().expect("eight bytes"));
        let word = |i: usize| u32::from_ne_bytes(bytes[i..i + 4].try_into().expect("four bytes"));
        let half = |i: usize| u16::from_ne_bytes(bytes[i..i + 2].try_into().expect("two bytes"));
        let (local, remote) = ends(&bytes[ENDS_AT..PEER_ENDS_AT])?;
        let (peer_local, peer_remote) = ends(&bytes[PEER_ENDS_AT..])?;
        Some(Self {
            time_ns: long(0),
            cookie: long(8),
            bytes_acked: long(16),
            token: word(24),
            netns: word(28),
            interface: word(32),
            slot: half(36),
            peer: half(38),
            local,
            remote,
            peer_local,
            peer_remote,
        })
    }
}

/// `struct mp_ends`.
fn ends(bytes: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let half = |i: usize| u16::from_ne_bytes(bytes[i..i + 2].try_into().expect("two bytes"));
    let address = |i: usize| -> Option<IpAddr> {
        let raw: [u8; 16] = bytes[i..i + 16].try_into().expect("sixteen bytes");
        match i32::from(half(0)) {
            nix::libc::AF_INET => Some(Ipv4Addr::new(raw[0], raw[1], raw[2], raw[3]).into()),
            nix::libc::AF_INET6 => Some(Ipv6Addr::from(raw).into()),
            _ => None,
        }
    };
    Some((SocketAddr::new(address(8)?, half(2)), SocketAddr::new(address(24)?, half(4))))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn request() -> CloseRequest {
        CloseRequest {
            time_ns: 5,
            cookie: 6,
            bytes_acked: 7,
            token: 8,
            netns: 9,
            interface: 10,
            slot: 1,
            peer: 2,
            local: "10.0.0.1:1000".parse().unwrap(),
            remote: "10.0.0.2:2000".parse().unwrap(),
            peer_local: "[fd00::1]:3000".parse().unwrap(),
            peer_remote: "[fd00::2]:4000".parse().unwrap(),
        }
    }

    #[test]
    fn events_are_read_and_garbage_is_refused() {
        let expected = request();
        let mut bytes = Vec::new();
        for long in [5_u64, 6, 7] {
            bytes.extend(long.to_ne_bytes());
        }
        for word in [8_u32, 9, 10] {
            bytes.extend(word.to_ne_bytes());
        }
        for half in [1_u16, 2] {
            bytes.extend(half.to_ne_bytes());
        }
        for (local, remote) in
            [(expected.local, expected.remote), (expected.peer_local, expected.peer_remote)]
        {
            for half in [if local.is_ipv4() { 2_u16 } else { 10 }, local.port(), remote.port(), 0] {
                bytes.extend(half.to_ne_bytes());
            }
            for end in [local, remote] {
                let mut raw = match end.ip() {
                    IpAddr::V4(ip) => ip.octets().to_vec(),
                    IpAddr::V6(ip) => ip.octets().to_vec(),
                };
                raw.resize(16, 0);
                bytes.extend(raw);
            }
        }
        assert_eq!(CloseRequest::decode(&bytes), Some(expected));
        assert_eq!(CloseRequest::decode(&bytes[..EVENT_BYTES - 1]), None);
        bytes[PEER_ENDS_AT] = 99;
        assert_eq!(CloseRequest::decode(&bytes), None);
    }
}
