//! Several packets in one call to the kernel: what a call costs by itself is then shared by all of them.

use quinn_udp::Transmit;

/// Returns true if two packets can be in one call: ancillary data beside the destination are given once for all.
pub(crate) fn can_share_call(one: &Transmit<'_>, other: &Transmit<'_>) -> bool {
    let said = |one: &Transmit<'_>| (one.ecn, one.segment_size, one.src_ip, one.destination.is_ipv6());
    said(one) == said(other)
}

#[cfg(target_os = "linux")]
mod imp {
    use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
    use nix::sys::socket::sockopt::{Ipv4Tos, Ipv6TClass};
    use nix::sys::socket::{
        ControlMessage, MsgFlags, MultiHeaders, SockaddrIn, SockaddrIn6, SockaddrLike, sendmmsg, setsockopt,
    };
    use quinn_udp::{EcnCodepoint, Transmit};
    use std::io::{self, IoSlice};
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::AsRawFd;
    use tokio::net::UdpSocket;

    /// Packets in one call at most.
    pub(crate) const MAX_PACKETS: usize = 64;

    /// The ECN bits of a socket's packets where none are said of a packet alone, which costs less.
    #[derive(Default)]
    pub(crate) struct Bits(Option<Option<EcnCodepoint>>);

    impl Bits {
        /// Has packets carry these bits from now on; whether they do.
        fn set(&mut self, io: &UdpSocket, v6: bool, bits: Option<EcnCodepoint>) -> bool {
            if self.0 == Some(bits) {
                return true;
            }
            let value = bits.map_or(0, |bits| bits as i32);
            // A socket of IPv6 may have peers of IPv4.
            let v4 = setsockopt(io, Ipv4Tos, &value);
            let done = if v6 { setsockopt(io, Ipv6TClass, &value) } else { v4 }.is_ok();
            self.0 = done.then_some(bits);
            done
        }
    }

    /// Sends packets that can share a call: how many the kernel took, from the first on. Where it does not take the first, the error is that one's.
    pub(crate) fn send(io: &UdpSocket, bits: &mut Bits, packets: &[Transmit<'_>]) -> io::Result<usize> {
        let Some(first) = packets.first() else { return Ok(0) };
        let v6 = first.destination.is_ipv6();
        if !bits.set(io, v6, first.ecn) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        match v6 {
            false => send_to(io, packets, |to| match to {
                SocketAddr::V4(to) => Some(SockaddrIn::from(to)),
                SocketAddr::V6(_) => None,
            }),
            true => send_to(io, packets, |to| match to {
                SocketAddr::V6(to) => Some(SockaddrIn6::from(to)),
                SocketAddr::V4(_) => None,
            }),
        }
    }

    /// Each of a family has addresses of its own size.
    fn send_to<S: SockaddrLike + Copy>(
        io: &UdpSocket,
        packets: &[Transmit<'_>],
        address: impl Fn(SocketAddr) -> Option<S>,
    ) -> io::Result<usize> {
        let to: Vec<Option<S>> = packets.iter().map_while(|one| address(one.destination).map(Some)).collect();
        let slices: Vec<[IoSlice<'_>; 1]> = packets.iter().map(|one| [IoSlice::new(one.contents)]).collect();
        let segment = packets[0].segment_size.and_then(|size| u16::try_from(size).ok());
        let (source4, source6) = match packets[0].src_ip {
            None => (None, None),
            Some(IpAddr::V4(ip)) => {
                let source = in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
                let any = in_addr { s_addr: 0 };
                (Some(in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: any }), None)
            }
            Some(IpAddr::V6(ip)) => {
                let source = in6_addr { s6_addr: ip.octets() };
                (None, Some(in6_pktinfo { ipi6_addr: source, ipi6_ifindex: 0 }))
            }
        };
        let mut said = Vec::with_capacity(2);
        said.extend(segment.as_ref().map(ControlMessage::UdpGsoSegments));
        said.extend(source4.as_ref().map(ControlMessage::Ipv4PacketInfo));
        said.extend(source6.as_ref().map(ControlMessage::Ipv6PacketInfo));
        // Exactly as much as is said: the kernel takes what is left over for a message that makes no sense.
        let room = match (segment, source4, source6) {
            (None, None, None) => None,
            (Some(_), None, None) => Some(nix::cmsg_space!(u16)),
            (None, Some(_), _) => Some(nix::cmsg_space!(in_pktinfo)),
            (Some(_), Some(_), _) => Some(nix::cmsg_space!(u16, in_pktinfo)),
            (None, None, Some(_)) => Some(nix::cmsg_space!(in6_pktinfo)),
            (Some(_), None, Some(_)) => Some(nix::cmsg_space!(u16, in6_pktinfo)),
        };
        let mut headers = MultiHeaders::preallocate(to.len(), room);
        Ok(sendmmsg(io.as_raw_fd(), &mut headers, &slices, &to, &said, MsgFlags::empty())?.count())
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use quinn_udp::Transmit;
    use std::io;
    use tokio::net::UdpSocket;

    /// There is no call for several.
    pub(crate) const MAX_PACKETS: usize = 1;

    #[derive(Default)]
    pub(crate) struct Bits;

    pub(crate) fn send(_: &UdpSocket, _: &mut Bits, _: &[Transmit<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(crate) use imp::{Bits, MAX_PACKETS, send};
