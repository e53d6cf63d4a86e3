//! Requests to the kernel over netlink: route (links, addresses, queues), ethtool and the MPTCP path manager.
//!
//! Message formats come from the netlink-packet crates. What those lack (options of the TBF, FIFO and netem
//! queues, the ethtool and MPTCP families) is built from their attribute types in the modules below.

mod ethtool;
mod genl;
mod link;
mod mptcp;
mod qdisc;
mod sockets;

pub use ethtool::disable_segmentation_offload;
pub use link::{Links, PortInfo};
pub use mptcp::{MAX_LIMIT, PathManager};
pub use qdisc::{Qdiscs, QueueStats, Shaper};
pub use sockets::is_listening;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::marker::PhantomData;

/// Offset of the attributes in an acknowledgement: behind the header of the request that it repeats.
const NLMSG_HEADER_LEN: usize = 16;
/// The kernel's explanation of an error, a string.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// One netlink socket, in the network namespace of the thread that opened it.
pub struct Connection<M> {
    socket: Socket,
    sequence: u32,
    messages: PhantomData<M>,
}

impl<M> Connection<M>
where
    M: NetlinkSerializable + NetlinkDeserializable,
{
    /// Opens a socket of a `NETLINK_...` protocol in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no such protocol.
    pub fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_cap_ack(true)?;
        socket.set_ext_ack(true)?;
        Ok(Self { socket, sequence: 0, messages: PhantomData })
    }

    /// Sends a request that changes something and waits for its acknowledgement.
    pub fn execute(&mut self, message: M, flags: u16) -> io::Result<()> {
        self.send(message, NLM_F_ACK | flags)?;
        self.collect().map(drop)
    }

    /// Sends a request that lists something and returns every answer.
    pub fn dump(&mut self, message: M) -> io::Result<Vec<M>> {
        self.send(message, NLM_F_DUMP)?;
        self.collect()
    }

    /// Sends a request that reads one thing and returns the answer.
    pub fn get(&mut self, message: M) -> io::Result<Vec<M>> {
        self.send(message, NLM_F_ACK)?;
        self.collect()
    }

    fn send(&mut self, message: M, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    /// Reads answers until the kernel says that there are no more.
    fn collect(&mut self) -> io::Result<Vec<M>> {
        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while !rest.is_empty() {
                let message = NetlinkMessage::<M>::deserialize(rest).map_err(invalid)?;
                let length = (message.header.length as usize).next_multiple_of(4);
                let ours = message.header.sequence_number == self.sequence;
                match message.payload {
                    _ if !ours => {}
                    NetlinkPayload::Done(done) if done.code == 0 => return Ok(answers),
                    NetlinkPayload::Done(done) => return Err(io::Error::from_raw_os_error(done.code.abs())),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(answers),
                    NetlinkPayload::Error(error) => return Err(explain(error.to_io(), &error.header)),
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    _ => {}
                }
                // A length of zero would loop forever; the parser refuses it, this is the second lock.
                rest = rest.get(length.max(NLMSG_HEADER_LEN)..).unwrap_or_default();
            }
        }
    }
}

/// Adds the kernel's own words to an error, when it sent any.
fn explain(error: io::Error, acknowledgement: &[u8]) -> io::Error {
    let attributes = acknowledgement.get(NLMSG_HEADER_LEN..).unwrap_or_default();
    let text = NlasIterator::new(attributes)
        .filter_map(Result::ok)
        .find(|attribute| attribute.kind() == NLMSGERR_ATTR_MSG)
        .map(|attribute| String::from_utf8_lossy(attribute.value()).trim_end_matches('\0').to_owned());
    match (text, error.raw_os_error()) {
        (Some(text), Some(code)) => Explained { code, text }.into(),
        _ => error,
    }
}

/// An operating-system error with the kernel's words. Wrapping loses `raw_os_error`, hence [`os_code`].
#[derive(Debug, thiserror::Error)]
#[error("{} ({text})", io::Error::from_raw_os_error(*code))]
struct Explained {
    code: i32,
    text: String,
}

impl From<Explained> for io::Error {
    fn from(explained: Explained) -> Self {
        Self::new(io::Error::from_raw_os_error(explained.code).kind(), explained)
    }
}

/// The error number behind an error of this module.
pub fn os_code(error: &io::Error) -> Option<i32> {
    let explained = || Some(error.get_ref()?.downcast_ref::<Explained>()?.code);
    error.raw_os_error().or_else(explained)
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected netlink answer: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_and_the_error_number_survive() {
        let mut acknowledgement = vec![0; NLMSG_HEADER_LEN];
        acknowledgement.extend_from_slice(&[9, 0, 1, 0]);
        acknowledgement.extend_from_slice(b"bad!\0\0\0\0");
        let error = explain(io::Error::from_raw_os_error(nix::libc::ENOENT), &acknowledgement);
        assert_eq!(os_code(&error), Some(nix::libc::ENOENT));
        assert!(error.to_string().contains("bad!"), "{error}");
    }

    #[test]
    fn a_short_or_malformed_acknowledgement_is_not_an_explanation() {
        for bytes in [&[][..], &[0; 15][..], &[0xff; 40][..]] {
            let error = explain(io::Error::from_raw_os_error(1), bytes);
            assert_eq!(error.raw_os_error(), Some(1));
        }
    }
}
