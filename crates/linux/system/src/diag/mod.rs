//! Socket diagnostics: what the kernel knows about each TCP connection and each MPTCP subflow.
//!
//! Asked over `NETLINK_SOCK_DIAG` (what `ss` uses), in the network namespace of the calling thread; no text is
//! scraped. MPTCP subflows are TCP sockets with an upper-layer attribute that carries the connection's tokens.

mod attributes;
mod connection;
mod subflow;
mod tcp_info_tail;
#[cfg(test)]
mod tests;

pub use connection::{MptcpConnection, MptcpDiag};
pub use subflow::{CaState, EcnFeedback, Mptcp, Subflow};
use tcp_info_tail::TcpInfoTail;

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader};
use netlink_packet_sock_diag::{
    AF_INET, AF_INET6, IPPROTO_TCP, SockDiagDestroy, SockDiagMessage,
    inet::{ExtensionFlags, InetRequest, SocketId, StateFlags},
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use std::io;
use std::net::{IpAddr, SocketAddr};
use vmcc_netlink::{Connection, os_code};

/// Sockets read in one listing before it is given up: more than any host carries, so that a broken answer
/// cannot fill the memory.
const MAX_SOCKETS: usize = 1 << 20;

/// Error of socket diagnostics.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiagError {
    /// The netlink socket could not be opened.
    #[error("cannot open a socket-diagnostics connection: {0}; the kernel needs CONFIG_INET_DIAG")]
    Open(#[source] io::Error),
    /// The kernel refused a listing.
    #[error("cannot list TCP sockets: {0}")]
    List(#[source] io::Error),
    /// The kernel refused to close a socket.
    #[error(
        "cannot close the subflow {local} -> {remote}: {source}; it needs CAP_NET_ADMIN in its network namespace \
         and CONFIG_INET_DIAG_DESTROY"
    )]
    Destroy {
        /// Local end of the subflow.
        local: SocketAddr,
        /// Remote end of the subflow.
        remote: SocketAddr,
        /// Error that the kernel returned.
        #[source]
        source: io::Error,
    },
    /// There is no such socket (any more).
    #[error("there is no TCP socket {local} -> {remote} in this network namespace")]
    NotFound {
        /// Local end of the subflow.
        local: SocketAddr,
        /// Remote end of the subflow.
        remote: SocketAddr,
    },
}

/// A connection to the kernel's socket diagnostics, in the network namespace of the thread that opened it.
pub struct Diag(Connection<Answer>);

impl Diag {
    /// Opens a connection. It stays in the network namespace that the calling thread is in now.
    ///
    /// # Errors
    /// When the kernel has no socket diagnostics.
    pub fn open() -> Result<Self, DiagError> {
        Connection::open(NETLINK_SOCK_DIAG).map(Self).map_err(DiagError::Open)
    }

    /// Every TCP socket, IPv4 and IPv6, that can carry data: single-path connections and MPTCP subflows.
    ///
    /// MPTCP details are reported to holders of `CAP_NET_ADMIN` only.
    ///
    /// # Errors
    /// When the kernel refuses or answers something that cannot be read.
    pub fn subflows(&mut self) -> Result<Vec<Subflow>, DiagError> {
        self.in_states(Self::carrying(), ExtensionFlags::empty())
    }

    /// The same, and the fill of their send buffers, for which the kernel looks at every socket's memory.
    ///
    /// # Errors
    /// As [`Diag::subflows`].
    pub fn subflows_with_memory(&mut self) -> Result<Vec<Subflow>, DiagError> {
        self.in_states(Self::carrying(), ExtensionFlags::SKMEMINFO)
    }

    /// The same, and those whose handshake is not over, which cannot carry anything yet.
    ///
    /// # Errors
    /// As [`Diag::subflows`].
    pub fn subflows_and_attempts(&mut self) -> Result<Vec<Subflow>, DiagError> {
        let states = Self::carrying() | StateFlags::SYN_SENT | StateFlags::SYN_RECV;
        self.in_states(states, ExtensionFlags::empty())
    }

    /// Congestion control of every TCP socket that is bound to a port, listeners among them.
    pub fn congestion_controls(&mut self) -> Result<Vec<String>, DiagError> {
        let states = Self::carrying() | StateFlags::SYN_SENT | StateFlags::LISTEN;
        let all = self.in_states(states, ExtensionFlags::empty())?;
        Ok(all.into_iter().map(|socket| socket.algorithm).collect())
    }

    /// `extra`: extensions beyond those that every [`Subflow`] is made of.
    fn in_states(&mut self, states: StateFlags, extra: ExtensionFlags) -> Result<Vec<Subflow>, DiagError> {
        let mut found = Vec::new();
        let extensions = ExtensionFlags::INFO | ExtensionFlags::CONG | extra;
        for (family, socket_id) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
            let (extensions, states) = (extensions.clone(), states.clone());
            let request = InetRequest { family, protocol: IPPROTO_TCP, extensions, states, socket_id };
            self.list(request, &mut found).map_err(DiagError::List)?;
        }
        Ok(found)
    }

    /// Closes one TCP socket (`SOCK_DESTROY`): the peer gets a reset at once, an MPTCP connection carries on over its
    /// other subflows. It is this very socket that is closed: another one with the same ends has another cookie, and
    /// so has a listener, to which the kernel turns where no connection has these ends.
    ///
    /// # Errors
    /// [`DiagError::NotFound`] when it is gone already, otherwise what the kernel refused.
    pub fn destroy(&mut self, socket: &Subflow) -> Result<(), DiagError> {
        let id = SocketId {
            source_port: socket.local.port(),
            destination_port: socket.remote.port(),
            source_address: socket.local.ip(),
            destination_address: socket.remote.ip(),
            interface_id: socket.interface,
            cookie: socket.cookie,
        };
        self.destroy_id(id)
    }

    /// Asks to close a socket that cannot exist, port 0 on both sides: whether the kernel could.
    pub fn destroy_nothing(&mut self) -> Result<(), DiagError> {
        match self.destroy_id(SocketId { interface_id: 0, cookie: [0; 8], ..SocketId::new_v4() }) {
            Err(DiagError::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    fn destroy_id(&mut self, id: SocketId) -> Result<(), DiagError> {
        let local = SocketAddr::new(id.source_address, id.source_port);
        let remote = SocketAddr::new(id.destination_address, id.destination_port);
        let request = SockDiagDestroy::new(SockDiagMessage::InetRequest(InetRequest {
            family: family_of(local),
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::empty(),
            states: StateFlags::all(),
            socket_id: id,
        }));
        self.0.execute(request, 0).map_err(|source| match os_code(&source) {
            Some(nix::libc::ENOENT | nix::libc::ESTALE) => DiagError::NotFound { local, remote },
            _ => DiagError::Destroy { local, remote, source },
        })
    }

    /// The states of sockets that can carry data, or could.
    fn carrying() -> StateFlags {
        StateFlags::ESTABLISHED
            | StateFlags::FIN_WAIT1
            | StateFlags::FIN_WAIT2
            | StateFlags::CLOSE_WAIT
            | StateFlags::LAST_ACK
            | StateFlags::CLOSING
    }

    fn list(&mut self, request: InetRequest, found: &mut Vec<Subflow>) -> io::Result<()> {
        self.0.dump_each(SockDiagMessage::InetRequest(request), &mut |answer| {
            if found.len() >= MAX_SOCKETS {
                return Err(io::Error::other("too many sockets in one answer"));
            }
            found.extend(answer.0.and_then(|(message, later)| Subflow::from_answer(message, later)));
            Ok(())
        })
    }
}

/// One socket of an answer; `None` for one that this program cannot read (an attribute of a later kernel), which
/// is left out rather than failing the whole listing.
struct Answer(Option<(SockDiagMessage, TcpInfoTail)>);

impl NetlinkDeserializable for Answer {
    type Error = std::convert::Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        let message = SockDiagMessage::deserialize(header, payload).ok();
        Ok(Self(message.map(|message| (message, TcpInfoTail::of_answer(payload)))))
    }
}

fn family_of(address: SocketAddr) -> u8 {
    match address.ip() {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    }
}
