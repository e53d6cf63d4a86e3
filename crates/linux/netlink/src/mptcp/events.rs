//! Events of subflows of a network namespace's MPTCP connections, as the kernel announces them.

use crate::genl::{self, Command, bytes_of};
use crate::invalid;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_generic::GenlMessage;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_GENERIC;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

// Numbers from the kernel's user interface, linux/mptcp_pm.h.
const GROUP: &str = "mptcp_pm_events";
const MPTCP_EVENT_REMOVED: u8 = 7;
const MPTCP_EVENT_SUB_ESTABLISHED: u8 = 10;
const MPTCP_EVENT_SUB_CLOSED: u8 = 11;
const MPTCP_ATTR_TOKEN: u16 = 1;
const MPTCP_ATTR_REM_ID: u16 = 4;
const MPTCP_ATTR_SADDR4: u16 = 5;
const MPTCP_ATTR_SADDR6: u16 = 6;
const MPTCP_ATTR_DADDR4: u16 = 7;
const MPTCP_ATTR_DADDR6: u16 = 8;
const MPTCP_ATTR_SPORT: u16 = 9;
const MPTCP_ATTR_DPORT: u16 = 10;
const MPTCP_ATTR_ERROR: u16 = 12;
const MPTCP_ATTR_RESET_REASON: u16 = 16;
/// Room for the announcements between two looks of a busy host.
const RECEIVE_BUFFER_BYTES: u32 = 4 << 20;

/// One announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Another subflow of a connection is established; the first one is never announced as such.
    Established(Ends),
    /// A subflow is closed, and its connection goes on.
    Closed {
        /// Which.
        ends: Ends,
        /// The connection's token at this end.
        token: u32,
        /// Identifier of the remote address.
        remote_id: u8,
        /// The error (`errno`) that its socket ended with.
        error: Option<i32>,
        /// The other end reset it.
        reset: bool,
    },
    /// The other end withdrew an address.
    Withdrawn {
        /// The connection's token at this end.
        token: u32,
        /// Identifier of the remote address.
        remote_id: u8,
    },
}

/// The ends of a subflow. IPv4-mapped addresses, which sockets of IPv6 have for IPv4, are given as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port.
    pub remote: SocketAddr,
}

/// The announcements for the network namespace of the thread that opened it.
pub struct Events(Socket);

impl Events {
    /// From now on they are kept for [`Events::pending`].
    ///
    /// # Errors
    /// The kernel has no MPTCP, or does not announce anything (before Linux 5.12).
    pub fn open() -> io::Result<Self> {
        let (_, groups) = genl::resolve("mptcp_pm")?;
        let group = groups.iter().find(|(name, _)| name == GROUP);
        let (_, group) = group.ok_or_else(|| invalid(format!("mptcp_pm has no group {GROUP}")))?;
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind(&netlink_sys::SocketAddr::new(0, 0))?;
        socket.set_rx_buf_sz(RECEIVE_BUFFER_BYTES)?;
        socket.set_non_blocking(true)?;
        socket.add_membership(*group)?;
        Ok(Self(socket))
    }

    /// Events since the last call.
    ///
    /// # Errors
    /// Announcements found no room (`ENOBUFS`), or cannot be read.
    pub fn pending(&mut self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            match self.0.recv_from_full() {
                Ok((datagram, _)) => events.extend(decode(&datagram)?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(events),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn decode(datagram: &[u8]) -> io::Result<Option<Event>> {
    let message = NetlinkMessage::<GenlMessage<Command>>::deserialize(datagram).map_err(invalid)?;
    let NetlinkPayload::InnerMessage(inner) = message.payload else { return Ok(None) };
    Ok(Event::of(&inner.payload))
}

impl Event {
    /// `None` for what is not of interest, or has no ends that can be read.
    fn of(announced: &Command) -> Option<Self> {
        let value = |kind| bytes_of(&announced.attributes, kind);
        let word = |kind| Some(u32::from_ne_bytes(*value(kind)?.first_chunk()?));
        let byte = |kind| value(kind)?.first().copied();
        let address = |four, six| {
            let four = value(four).map(|v| Some(IpAddr::from(Ipv4Addr::from(*v.first_chunk::<4>()?))));
            let six = || Some(Ipv6Addr::from(*value(six)?.first_chunk::<16>()?).to_canonical());
            four.unwrap_or_else(six)
        };
        let port = |kind| Some(u16::from_be_bytes(*value(kind)?.first_chunk()?));
        let ends = || {
            let local = address(MPTCP_ATTR_SADDR4, MPTCP_ATTR_SADDR6)?;
            let remote = address(MPTCP_ATTR_DADDR4, MPTCP_ATTR_DADDR6)?;
            Some(Ends {
                local: SocketAddr::new(local, port(MPTCP_ATTR_SPORT)?),
                remote: SocketAddr::new(remote, port(MPTCP_ATTR_DPORT)?),
            })
        };
        let (token, remote_id) = (word(MPTCP_ATTR_TOKEN), byte(MPTCP_ATTR_REM_ID));
        match announced.command {
            MPTCP_EVENT_SUB_ESTABLISHED => ends().map(Self::Established),
            MPTCP_EVENT_SUB_CLOSED => Some(Self::Closed {
                ends: ends()?,
                token: token?,
                remote_id: remote_id.unwrap_or(0),
                error: byte(MPTCP_ATTR_ERROR).map(i32::from),
                reset: value(MPTCP_ATTR_RESET_REASON).is_some(),
            }),
            MPTCP_EVENT_REMOVED => Some(Self::Withdrawn { token: token?, remote_id: remote_id? }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::DefaultNla;

    fn announced(command: u8, attributes: &[(u16, &[u8])]) -> Option<Event> {
        let attributes = attributes.iter().map(|(kind, value)| DefaultNla::new(*kind, value.to_vec()));
        Event::of(&Command { command, attributes: attributes.collect() })
    }

    const ENDS: [(u16, &[u8]); 4] =
        [(5, &[10, 77, 1, 1]), (7, &[10, 77, 1, 2]), (9, &[0x9c, 0x40]), (10, &[0x14, 0x51])];

    #[test]
    fn announcements_are_parsed() {
        let ends =
            Ends { local: "10.77.1.1:40000".parse().unwrap(), remote: "10.77.1.2:5201".parse().unwrap() };
        let token = 7_u32.to_ne_bytes();
        assert_eq!(announced(10, &ENDS), Some(Event::Established(ends)));
        let closed = [&ENDS[..], &[(1, &token[..]), (4, &[2]), (12, &[110]), (16, &[0; 4])]].concat();
        let expected = Event::Closed { ends, token: 7, remote_id: 2, error: Some(110), reset: true };
        assert_eq!(announced(11, &closed), Some(expected));
        let plainly = [&ENDS[..], &[(1, &token[..])]].concat();
        let expected = Event::Closed { ends, token: 7, remote_id: 0, error: None, reset: false };
        assert_eq!(announced(11, &plainly), Some(expected));
        let withdrawn = Event::Withdrawn { token: 7, remote_id: 3 };
        assert_eq!(announced(7, &[(1, &token), (4, &[3])]), Some(withdrawn));
    }

    #[test]
    fn subflow_over_ipv6_is_read_and_mapped_ipv4_is_ipv4() {
        let established = |local: &str, remote: &str| {
            let [local, remote] = [local, remote].map(|text| text.parse::<Ipv6Addr>().unwrap().octets());
            let ends = [(6, &local[..]), (8, &remote[..]), ENDS[2], ENDS[3]];
            announced(10, &ends)
        };
        let expected = |local: &str, remote: &str| {
            Some(Event::Established(Ends { local: local.parse().unwrap(), remote: remote.parse().unwrap() }))
        };
        assert_eq!(established("fd00::1", "fd00::2"), expected("[fd00::1]:40000", "[fd00::2]:5201"));
        let mapped = established("::ffff:10.0.0.1", "::ffff:10.0.0.2");
        assert_eq!(mapped, expected("10.0.0.1:40000", "10.0.0.2:5201"));
    }

    #[test]
    fn incomplete_announcements_are_ignored() {
        for left_out in 0..ENDS.len() {
            let mut attributes = ENDS.to_vec();
            attributes[left_out].1 = &[];
            assert_eq!(announced(10, &attributes), None);
            attributes.remove(left_out);
            assert_eq!(announced(11, &attributes), None);
        }
        assert_eq!(announced(1, &ENDS), None, "nothing that is asked for");
        assert!(decode(&[0; 7]).is_err());
    }
}
