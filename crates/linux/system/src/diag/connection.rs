//! MPTCP connections, as their sockets count them: what crosses them whichever subflow it takes.

use super::attributes::attributes;
use super::tcp_info_tail::{INET_DIAG_INFO, INET_DIAG_MSG_BYTES};
use super::{Diag, DiagError};
use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId};
use netlink_packet_sock_diag::{AF_INET, IPPROTO_TCP, SockDiagMessage};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use std::net::{Ipv4Addr, SocketAddr};
use vmcc_netlink::Connection;

/// From <linux/inet_diag.h>: the attribute of a request whose protocol needs more than a byte.
const INET_DIAG_REQ_PROTOCOL: u16 = 3;
const IPPROTO_MPTCP: u32 = 262;
/// `struct inet_diag_msg`: the ports follow four bytes, the addresses those.
const PORTS: usize = 4;
const ADDRESSES: usize = 8;
const ADDRESS_BYTES: usize = 16;
/// `struct mptcp_info`, from Linux 6.5 on.
const BYTES_RETRANSMITTED: usize = 48;
const BYTES_RECEIVED: usize = 64;

/// An MPTCP connection over IPv4. Its ends are those of its first subflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MptcpConnection {
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port.
    pub remote: SocketAddr,
    /// Payload received in order of the connection's stream; from Linux 6.5 on.
    pub received_bytes: Option<u64>,
    /// Payload that was sent again because a subflow had not delivered it; likewise.
    pub retransmitted_bytes: Option<u64>,
}

/// A connection to the diagnostics of MPTCP, in the network namespace of the thread that opened it.
pub struct MptcpDiag(Connection<Answer>);

impl MptcpDiag {
    /// As [`Diag::open`].
    ///
    /// # Errors
    /// When the kernel has no socket diagnostics.
    pub fn open() -> Result<Self, DiagError> {
        Connection::open(NETLINK_SOCK_DIAG).map(Self).map_err(DiagError::Open)
    }

    /// Every established connection.
    ///
    /// # Errors
    /// The kernel has no diagnostics of MPTCP (`CONFIG_MPTCP_DIAG`), or refuses.
    pub fn connections(&mut self) -> Result<Vec<MptcpConnection>, DiagError> {
        let request = SockDiagMessage::InetRequest(InetRequest {
            family: AF_INET,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::INFO,
            states: Diag::carrying(),
            socket_id: SocketId::new_v4(),
        });
        let answers = self.0.dump(OfMptcp(request)).map_err(DiagError::List)?;
        Ok(answers.into_iter().filter_map(|answer| answer.0).collect())
    }
}

/// A listing of MPTCP's sockets: a request's own field is too narrow for the protocol's number.
#[derive(Debug, Clone, PartialEq)]
struct OfMptcp(SockDiagMessage);

const PROTOCOL_ATTRIBUTE_BYTES: usize = 8;

impl NetlinkSerializable for OfMptcp {
    fn message_type(&self) -> u16 {
        self.0.message_type()
    }

    fn buffer_len(&self) -> usize {
        NetlinkSerializable::buffer_len(&self.0) + PROTOCOL_ATTRIBUTE_BYTES
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (request, attribute) = buffer.split_at_mut(buffer.len() - PROTOCOL_ATTRIBUTE_BYTES);
        self.0.serialize(request);
        attribute[..2].copy_from_slice(&(PROTOCOL_ATTRIBUTE_BYTES as u16).to_ne_bytes());
        attribute[2..4].copy_from_slice(&INET_DIAG_REQ_PROTOCOL.to_ne_bytes());
        attribute[4..].copy_from_slice(&IPPROTO_MPTCP.to_ne_bytes());
    }
}

/// One connection of an answer; `None` for one that this program cannot read.
struct Answer(Option<MptcpConnection>);

impl NetlinkDeserializable for Answer {
    type Error = std::convert::Infallible;

    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self(MptcpConnection::of_answer(payload)))
    }
}

impl MptcpConnection {
    fn of_answer(payload: &[u8]) -> Option<Self> {
        let port = |at| Some(u16::from_be_bytes(*payload.get(at..)?.first_chunk()?));
        let address = |at| Some(Ipv4Addr::from(*payload.get(at..)?.first_chunk::<4>()?));
        let end = |number| {
            let address = address(ADDRESSES + number * ADDRESS_BYTES)?;
            Some(SocketAddr::from((address, port(PORTS + number * size_of::<u16>())?)))
        };
        let (_, info) =
            attributes(payload.get(INET_DIAG_MSG_BYTES..)?).find(|(kind, _)| *kind == INET_DIAG_INFO)?;
        let counter = |at| Some(u64::from_ne_bytes(*info.get(at..)?.first_chunk()?));
        Some(Self {
            local: end(0)?,
            remote: end(1)?,
            received_bytes: counter(BYTES_RECEIVED),
            retransmitted_bytes: counter(BYTES_RETRANSMITTED),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(info_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![AF_INET, 1, 0, 0, 0x14, 0x51, 0x9c, 0x40, 10, 0, 0, 1];
        bytes.resize(ADDRESSES + ADDRESS_BYTES, 0);
        bytes.extend([10, 0, 0, 2]);
        bytes.resize(INET_DIAG_MSG_BYTES, 0);
        let mut info = vec![0; BYTES_RETRANSMITTED];
        info.extend([7_u64, 8, 9, 10].into_iter().flat_map(u64::to_ne_bytes));
        info.truncate(info_bytes);
        bytes.extend(((4 + info.len()) as u16).to_ne_bytes());
        bytes.extend(INET_DIAG_INFO.to_ne_bytes());
        bytes.extend(info);
        bytes
    }

    #[test]
    fn connection_info_is_parsed_up_to_its_kernel_length() {
        let whole = MptcpConnection {
            local: "10.0.0.1:5201".parse().unwrap(),
            remote: "10.0.0.2:40000".parse().unwrap(),
            received_bytes: Some(9),
            retransmitted_bytes: Some(7),
        };
        assert_eq!(MptcpConnection::of_answer(&answer(80)), Some(whole));
        let old = MptcpConnection { received_bytes: None, retransmitted_bytes: None, ..whole };
        assert_eq!(MptcpConnection::of_answer(&answer(48)), Some(old), "before Linux 6.5");
        for cut in 0..INET_DIAG_MSG_BYTES {
            assert_eq!(MptcpConnection::of_answer(&answer(80)[..cut]), None, "{cut}");
        }
    }
}
