//! Requests that an algorithm writes to the ring buffer.

use crate::shared::algorithm::{CloseEvent, Ends};
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use vmcc_system::diag::Subflow;
use zerocopy::FromBytes;

/// An algorithm's wish to close a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CloseRequest {
    /// Time of the request, in nanoseconds on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Cookie of the socket to close; 0: nobody had asked for it yet.
    pub cookie: u64,
    /// Bytes that the peer had acknowledged on it.
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
    /// Request to close `close` and to keep `keep`, both of one connection in the network namespace with this inode number. It has
    /// no cookie, as that of an algorithm for a socket whose cookie nobody had read.
    pub fn between(close: &Subflow, keep: &Subflow, netns: u32) -> Self {
        Self {
            time_ns: 0,
            cookie: 0,
            bytes_acked: close.bytes_acked,
            token: close.mptcp.map_or(0, |mptcp| mptcp.token_local),
            netns,
            interface: close.interface,
            slot: 0,
            peer: 1,
            local: close.local,
            remote: close.remote,
            peer_local: keep.local,
            peer_remote: keep.remote,
        }
    }

    /// `None` if a family is unknown or bytes are missing.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (event, _) = CloseEvent::read_from_prefix(bytes).ok()?;
        let (local, remote) = ends(&event.ends)?;
        let (peer_local, peer_remote) = ends(&event.peer_ends)?;
        Some(Self {
            time_ns: event.time_ns,
            cookie: event.cookie,
            bytes_acked: event.bytes_acked,
            token: event.token,
            netns: event.netns,
            interface: event.interface,
            slot: event.slot,
            peer: event.peer,
            local,
            remote,
            peer_local,
            peer_remote,
        })
    }
}

fn ends(ends: &Ends) -> Option<(SocketAddr, SocketAddr)> {
    let address = |raw: [u8; 16]| -> Option<IpAddr> {
        match i32::from(ends.family) {
            nix::libc::AF_INET => Some(Ipv4Addr::new(raw[0], raw[1], raw[2], raw[3]).into()),
            nix::libc::AF_INET6 => Some(Ipv6Addr::from(raw).into()),
            _ => None,
        }
    };
    let end = |raw, port| Some(SocketAddr::new(address(raw)?, port));
    Some((end(ends.local_addr, ends.local_port)?, end(ends.remote_addr, ends.remote_port)?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use zerocopy::IntoBytes;

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

    fn raw(local: SocketAddr, remote: SocketAddr) -> Ends {
        let address = |end: SocketAddr| {
            let mut raw = [0; 16];
            match end.ip() {
                IpAddr::V4(ip) => raw[..4].copy_from_slice(&ip.octets()),
                IpAddr::V6(ip) => raw = ip.octets(),
            }
            raw
        };
        Ends {
            family: if local.is_ipv4() { 2 } else { 10 },
            local_port: local.port(),
            remote_port: remote.port(),
            reserved: 0,
            local_addr: address(local),
            remote_addr: address(remote),
        }
    }

    #[test]
    fn events_are_parsed_and_garbage_is_refused() {
        let expected = request();
        let event = CloseEvent {
            time_ns: 5,
            cookie: 6,
            bytes_acked: 7,
            token: 8,
            netns: 9,
            interface: 10,
            slot: 1,
            peer: 2,
            ends: raw(expected.local, expected.remote),
            peer_ends: raw(expected.peer_local, expected.peer_remote),
        };
        assert_eq!(CloseRequest::decode(event.as_bytes()), Some(expected));
        assert_eq!(CloseRequest::decode(&event.as_bytes()[1..]), None);
        let unknown = CloseEvent { peer_ends: Ends { family: 99, ..event.peer_ends }, ..event };
        assert_eq!(CloseRequest::decode(unknown.as_bytes()), None);
    }
}
