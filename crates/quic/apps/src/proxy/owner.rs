//! Users of local connections.

use std::net::SocketAddr;

/// User whose program has the socket at `program`, connected to `here` on this host; `None` where the system does not say.
#[cfg(target_os = "linux")]
pub(super) fn user_of(program: SocketAddr, here: SocketAddr) -> Option<u32> {
    diag::user_of(program, here).ok().flatten()
}

/// User whose program has the socket at `program`, connected to `here` on this host; `None` where the system does not say.
#[cfg(not(target_os = "linux"))]
pub(super) fn user_of(_: SocketAddr, _: SocketAddr) -> Option<u32> {
    None
}

/// One socket by its addresses, from the kernel's socket diagnostics (`sock_diag(7)`).
#[cfg(target_os = "linux")]
mod diag {
    use nix::libc;
    use socket2::{Domain, Protocol, Socket, Type};
    use std::io::{self, Read, Write};
    use std::net::{IpAddr, SocketAddr};
    use std::time::Duration;

    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    /// Bytes of `struct nlmsghdr` and `struct inet_diag_req_v2`.
    const REQUEST_LEN: u32 = 72;
    /// Offset of `idiag_uid` behind `struct nlmsghdr`, `struct inet_diag_sockid` and the fields around it.
    const UID_OFFSET: usize = 80;
    /// The kernel answers within the call.
    const REPLY_TIMEOUT: Duration = Duration::from_millis(100);

    pub(super) fn user_of(program: SocketAddr, here: SocketAddr) -> io::Result<Option<u32>> {
        let protocol = Protocol::from(libc::NETLINK_SOCK_DIAG);
        let mut socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::DGRAM, Some(protocol))?;
        socket.set_read_timeout(Some(REPLY_TIMEOUT))?;
        socket.write_all(&request(program, here))?;
        let mut reply = [0; 512];
        let len = socket.read(&mut reply)?;
        let kind = reply[..len].get(4..6).map(|kind| [kind[0], kind[1]]);
        let found = kind.is_some_and(|kind| u16::from_ne_bytes(kind) == SOCK_DIAG_BY_FAMILY);
        let uid = reply[..len].get(UID_OFFSET..UID_OFFSET + 4).and_then(|uid| uid.try_into().ok());
        Ok(uid.filter(|_| found).map(u32::from_ne_bytes))
    }

    fn request(program: SocketAddr, here: SocketAddr) -> Vec<u8> {
        let family = if program.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let mut out = REQUEST_LEN.to_ne_bytes().to_vec();
        out.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        out.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        out.extend([0; 8]);
        out.extend([family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
        // All states.
        out.extend(u32::MAX.to_ne_bytes());
        out.extend(program.port().to_be_bytes());
        out.extend(here.port().to_be_bytes());
        out.extend(sixteen(program.ip()));
        out.extend(sixteen(here.ip()));
        // Any interface, any cookie.
        out.extend([0; 4]);
        out.extend([0xff; 8]);
        out
    }

    fn sixteen(ip: IpAddr) -> [u8; 16] {
        let mut bytes = [0; 16];
        match ip {
            IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes = ip.octets(),
        }
        bytes
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn user_of_a_connection_is_that_of_its_program() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let here = listener.local_addr().unwrap();
            let program = TcpStream::connect(here).unwrap();
            let at = program.local_addr().unwrap();
            assert_eq!(user_of(at, here), Some(nix::unistd::geteuid().as_raw()), "{address}");
            drop(listener);
            let other = SocketAddr::new(at.ip(), at.port() ^ 1);
            assert_eq!(user_of(other, SocketAddr::new(here.ip(), 1)), None, "no such connection");
        }
    }
}
