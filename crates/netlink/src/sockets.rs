//! Whether a program is listening, from the kernel's socket diagnostics.

use crate::Connection;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_packet_sock_diag::{AF_INET, IPPROTO_TCP, SockDiagMessage};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use std::io;

/// Whether some socket of the calling thread's namespace listens on `port` (TCP over IPv4, MPTCP included).
pub fn is_listening(port: u16) -> io::Result<bool> {
    let request = SockDiagMessage::InetRequest(InetRequest {
        family: AF_INET,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::LISTEN,
        socket_id: SocketId::new_v4(),
    });
    let answers = Connection::open(NETLINK_SOCK_DIAG)?.dump(request)?;
    Ok(answers.iter().any(|answer| match answer {
        SockDiagMessage::InetResponse(response) => response.header.socket_id.source_port == port,
        _ => false,
    }))
}
