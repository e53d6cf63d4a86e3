//! Listening programs, from the kernel's socket diagnostics.

use crate::Connection;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP, SockDiagMessage};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use std::io;

/// Returns true if some socket of the calling thread's namespace listens on `port` (TCP over IPv4 or IPv6, MPTCP included).
pub fn is_listening(port: u16) -> io::Result<bool> {
    Ok(listens(AF_INET, port)? || listens(AF_INET6, port)?)
}

fn listens(family: u8, port: u16) -> io::Result<bool> {
    let request = SockDiagMessage::InetRequest(InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::LISTEN,
        socket_id: if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() },
    });
    let answers = Connection::open(NETLINK_SOCK_DIAG)?.dump(request)?;
    Ok(answers.iter().any(|answer| match answer {
        SockDiagMessage::InetResponse(response) => response.header.socket_id.source_port == port,
        _ => false,
    }))
}
