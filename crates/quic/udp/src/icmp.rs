//! ICMP errors of datagrams that were sent, from the socket's error queue (`IP_RECVERR`).

use std::net::SocketAddr;

/// Bytes of a datagram that are looked at: a long header with its ids.
const QUOTED_LEN: usize = 64;

/// Datagram that ICMP reports as port unreachable.
pub(crate) struct Unreachable {
    pub(crate) remote: SocketAddr,
    /// Its beginning, as far as ICMP quotes it.
    pub(crate) quoted: Vec<u8>,
}

#[cfg(target_os = "linux")]
mod imp {
    use super::{QUOTED_LEN, Unreachable};
    use nix::libc;
    use nix::sys::socket::sockopt::{Ipv4RecvErr, Ipv6RecvErr};
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
    use std::io::IoSliceMut;
    use std::net::SocketAddr;
    use std::os::fd::{AsFd, AsRawFd};

    /// Bytes of all that the kernel says beside a datagram.
    const CONTROL_LEN: usize = 512;
    /// Reports read in one go. Until they are read they take up the socket's receive buffer.
    const MAX_REPORTS: usize = 1024;

    /// Enables the error queue.
    pub(crate) fn enable(socket: &impl AsFd, v6: bool) {
        // Without them silence has to do.
        let _ =
            if v6 { setsockopt(socket, Ipv6RecvErr, &true) } else { setsockopt(socket, Ipv4RecvErr, &true) };
    }

    /// Drains the error queue, and returns the datagrams whose port is unreachable.
    pub(crate) fn drain(socket: &(impl AsFd + AsRawFd)) -> Vec<Unreachable> {
        std::iter::from_fn(|| next(socket)).take(MAX_REPORTS).flatten().collect()
    }

    /// The next report, if there is one, and its datagram, if it is one of those.
    fn next(socket: &(impl AsFd + AsRawFd)) -> Option<Option<Unreachable>> {
        let (mut quoted, mut control) = ([0; QUOTED_LEN], [0; CONTROL_LEN]);
        let mut parts = [IoSliceMut::new(&mut quoted)];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let report =
            recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags).ok()?;
        let mut messages = report.cmsgs().ok()?;
        let unreachable = messages.any(|message| match message {
            ControlMessageOwned::Ipv4RecvErr(error, _) => {
                (error.ee_origin, error.ee_type, error.ee_code) == (libc::SO_EE_ORIGIN_ICMP, 3, 3)
            }
            ControlMessageOwned::Ipv6RecvErr(error, _) => {
                (error.ee_origin, error.ee_type, error.ee_code) == (libc::SO_EE_ORIGIN_ICMP6, 1, 4)
            }
            _ => false,
        });
        let (len, address) = (report.bytes.min(QUOTED_LEN), report.address);
        let address = address.as_ref().filter(|_| unreachable);
        let v4 = address.and_then(|to| to.as_sockaddr_in()).map(|to| SocketAddr::V4((*to).into()));
        let v6 = address.and_then(|to| to.as_sockaddr_in6()).map(|to| SocketAddr::V6((*to).into()));
        Some(v4.or(v6).map(|remote| Unreachable { remote, quoted: quoted[..len].to_vec() }))
    }
}

/// Elsewhere sockets that are not connected hear of nothing.
#[cfg(not(target_os = "linux"))]
mod imp {
    use super::Unreachable;

    pub(crate) fn enable<T>(_: &T, _: bool) {}

    pub(crate) fn drain<T>(_: &T) -> Vec<Unreachable> {
        Vec::new()
    }
}

pub(crate) use imp::{drain, enable};
