//! Requests to the kernel over netlink: route (links, addresses, queues), ethtool and the MPTCP path manager.
//!
//! Message formats come from the netlink-packet crates. What those lack (most of traffic control, the
//! ethtool and MPTCP families) is built from their attribute types in the modules below.

mod address;
mod clsact;
mod ethtool;
mod filter;
mod genl;
mod htb;
mod ifb;
mod legible;
mod link;
mod monitor;
mod mptcp;
mod neighbour;
mod options;
mod route;
mod rule;
mod shaper;
mod sockets;
mod tc;
mod threaded;

pub use address::HostAddress;
pub use ethtool::{disable_checksum_offload, disable_segmentation_offload, link_speed};
pub use htb::{Existing, HtbClass, htb_rates};
pub use link::{Links, PortInfo};
pub use monitor::Changes;
pub use mptcp::{
    Endpoint, Ends, Event, Events, LIMIT_CEILING, MAX_LIMIT, PathManager, SubflowEnds, kernel_limit,
};
pub use neighbour::Neighbour;
pub use route::{RouteFound, RouteQuery};
pub use rule::Match;
pub use shaper::{Impairment, Shaper};
pub use sockets::is_listening;
pub use tc::{Counters, QueueInfo, ROOT, TrafficControl};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::marker::PhantomData;

/// Listings of a table that changes meanwhile, before that is an error.
const MAX_DUMPS: u32 = 32;
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

impl<M: NetlinkDeserializable> Connection<M> {
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
    ///
    /// # Errors
    /// The kernel refuses; [`os_code`] has its number.
    pub fn execute(&mut self, message: impl NetlinkSerializable, flags: u16) -> io::Result<()> {
        self.send(message, NLM_F_ACK | flags)?;
        self.collect(&mut |_| Ok(())).map(drop)
    }

    /// Sends a request that lists something and returns every answer. A listing that the kernel marks as inconsistent,
    /// because the table changed meanwhile (`NLM_F_DUMP_INTR`), is repeated: it may lack entries that never changed.
    ///
    /// # Errors
    /// The kernel refuses, or answers something that cannot be read; `Interrupted` when the table never stood still.
    pub fn dump(&mut self, message: impl NetlinkSerializable + Clone) -> io::Result<Vec<M>> {
        for _ in 0..MAX_DUMPS {
            let mut answers = Vec::new();
            self.send(message.clone(), NLM_F_DUMP)?;
            let consistent = self.collect(&mut |answer| {
                answers.push(answer);
                Ok(())
            })?;
            if consistent {
                return Ok(answers);
            }
        }
        Err(inconsistent())
    }

    /// Sends a request that lists something and hands over each answer; an error of `each` ends it.
    ///
    /// # Errors
    /// The kernel refuses, or answers something that cannot be read, or `each` fails; `Interrupted` when the kernel marks
    /// the listing as inconsistent.
    pub fn dump_each(
        &mut self,
        message: impl NetlinkSerializable,
        each: &mut dyn FnMut(M) -> io::Result<()>,
    ) -> io::Result<()> {
        self.send(message, NLM_F_DUMP)?;
        if self.collect(each)? { Ok(()) } else { Err(inconsistent()) }
    }

    /// Sends a request that reads one thing and returns the answer.
    ///
    /// # Errors
    /// As [`Connection::dump`].
    pub fn get(&mut self, message: impl NetlinkSerializable) -> io::Result<Vec<M>> {
        let mut answers = Vec::new();
        self.send(message, NLM_F_ACK)?;
        self.collect(&mut |answer| {
            answers.push(answer);
            Ok(())
        })?;
        Ok(answers)
    }

    fn send(&mut self, message: impl NetlinkSerializable, flags: u16) -> io::Result<()> {
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

    /// Reads answers until the kernel says that there are no more; `false` if it marked any of them as inconsistent.
    fn collect(&mut self, each: &mut dyn FnMut(M) -> io::Result<()>) -> io::Result<bool> {
        let mut consistent = true;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            if take_datagram(&datagram, self.sequence, &mut consistent, each)? {
                return Ok(consistent);
            }
        }
    }
}

fn inconsistent() -> io::Error {
    let text = "the kernel's table changed each time while it was listed; try again when less changes";
    io::Error::new(io::ErrorKind::Interrupted, text)
}

/// Reads the messages of one datagram; true when the answer to request `sequence` is complete.
fn take_datagram<M: NetlinkDeserializable>(
    datagram: &[u8],
    sequence: u32,
    consistent: &mut bool,
    each: &mut dyn FnMut(M) -> io::Result<()>,
) -> io::Result<bool> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = NetlinkMessage::<M>::deserialize(rest).map_err(invalid)?;
        // A length of zero would loop forever; the parser refuses it, this is the second lock.
        let length = (message.header.length as usize).next_multiple_of(4).max(NLMSG_HEADER_LEN);
        rest = rest.get(length..).unwrap_or_default();
        if message.header.sequence_number != sequence {
            continue;
        }
        *consistent &= message.header.flags & NLM_F_DUMP_INTR == 0;
        match message.payload {
            NetlinkPayload::Done(done) if done.code == 0 => return Ok(true),
            NetlinkPayload::Done(done) => {
                return Err(io::Error::from_raw_os_error(done.code.saturating_abs()));
            }
            NetlinkPayload::Error(error) if error.code.is_none() => return Ok(true),
            NetlinkPayload::Error(error) => return Err(explain(error.to_io(), &error.header)),
            NetlinkPayload::InnerMessage(inner) => each(inner)?,
            _ => {}
        }
    }
    Ok(false)
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
    use netlink_packet_route::RouteNetlinkMessage;

    #[test]
    fn malformed_datagrams_are_errors() {
        let mut seen = 0;
        for length in 0..64_usize {
            for byte in [0_u8, 1, 16, 20, 0xff] {
                let _ = take_datagram::<RouteNetlinkMessage>(&vec![byte; length], 1, &mut true, &mut |_| {
                    seen += 1;
                    Ok(())
                });
            }
        }
        assert_eq!(seen, 0);
    }

    #[test]
    fn dump_marked_as_interrupted_is_inconsistent() {
        for (flags, expected) in [(0, true), (NLM_F_DUMP_INTR, false)] {
            let mut done = vec![20, 0, 0, 0, 3, 0];
            done.extend(u16::to_ne_bytes(2 | flags));
            done.extend([7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            let mut consistent = true;
            let complete = take_datagram::<RouteNetlinkMessage>(&done, 7, &mut consistent, &mut |_| Ok(()));
            assert_eq!((complete.unwrap(), consistent), (true, expected));
        }
    }

    #[test]
    fn kernel_message_and_errno_are_kept() {
        let mut acknowledgement = vec![0; NLMSG_HEADER_LEN];
        acknowledgement.extend_from_slice(&[9, 0, 1, 0]);
        acknowledgement.extend_from_slice(b"bad!\0\0\0\0");
        let error = explain(io::Error::from_raw_os_error(nix::libc::ENOENT), &acknowledgement);
        assert_eq!(os_code(&error), Some(nix::libc::ENOENT));
        assert!(error.to_string().contains("bad!"), "{error}");
    }

    #[test]
    fn malformed_acknowledgement_gives_no_message() {
        for bytes in [&[][..], &[0; 15][..], &[0xff; 40][..]] {
            let error = explain(io::Error::from_raw_os_error(1), bytes);
            assert_eq!(error.raw_os_error(), Some(1));
        }
    }
}
