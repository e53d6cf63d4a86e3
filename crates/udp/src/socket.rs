//! One UDP socket: segmentation offload, ECN bits, what waits for room in it.

use crate::address::Source;
use crate::device::bind_device;
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSocketState};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket as StdSocket};
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use vmcc_transport::{Ecn, Route, Transmit};

/// Packets in one call: as many of the usual size as a UDP length can say.
pub(crate) const SEGMENTS: usize = 44;
/// Bytes that one call may bring: segments of one sender that the kernel has joined.
const RECEIVE_BYTES: usize = 65_536;
/// Pieces of that size in one call. More would not stay in the processor's cache until they are decrypted, and of small datagrams, all of which
/// begin at the same places of it, would drive each other out.
const RECEIVE_PIECES: usize = 8;
/// What is asked of the kernel for each direction; it may give less.
const BUFFER_BYTES: usize = 4 << 20;
/// What waits for room in a socket at most. More is dropped, as a full queue does it: it must not keep other paths waiting.
const BACKLOG_BYTES: usize = 512 << 10;

/// What one call receives into.
pub(crate) struct Buffers {
    bytes: Vec<u8>,
    metas: Vec<RecvMeta>,
}

impl Buffers {
    pub(crate) fn new() -> Buffers {
        let metas = vec![RecvMeta::default(); RECEIVE_PIECES];
        Buffers { bytes: vec![0; RECEIVE_BYTES * RECEIVE_PIECES], metas }
    }
}

/// Datagrams that the socket had no room for.
struct Waiting {
    transmit: Transmit,
    bytes: Vec<u8>,
}

#[derive(PartialEq)]
struct Interface {
    name: String,
    index: Option<u32>,
}

impl Interface {
    fn of(name: &str) -> Interface {
        Interface { name: name.to_owned(), index: nix::net::if_::if_nametoindex(name).ok() }
    }
}

pub(crate) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    /// The interface that its packets leave by, where one was named: its number is another when it comes again.
    interface: Option<Interface>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
}

impl Socket {
    /// Bound to `local`, and to an interface where one is named and that is allowed.
    pub(crate) fn open(local: SocketAddr, interface: Option<&str>) -> io::Result<Socket> {
        let socket = StdSocket::bind(local)?;
        let state = UdpSocketState::new((&socket).into())?;
        // The kernel's limits may be lower, which costs speed only.
        let _ = state.set_send_buffer_size((&socket).into(), BUFFER_BYTES);
        let _ = state.set_recv_buffer_size((&socket).into(), BUFFER_BYTES);
        let io = UdpSocket::from_std(socket)?;
        if let Some(interface) = interface {
            bind_device(&io, interface);
        }
        let local = io.local_addr()?;
        let interface = interface.filter(|name| !name.is_empty()).map(Interface::of);
        Ok(Socket { io, state, local, interface, waiting: VecDeque::new(), waiting_bytes: 0 })
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Whether it was opened for an address of an interface that does not have it any more.
    pub(crate) fn is_stale(&self, own: &[Source]) -> bool {
        let Some(interface) = &self.interface else { return false };
        let has = |source: &Source| source.ip == self.local.ip() && source.interface == interface.name;
        !own.iter().any(has) || Interface::of(&interface.name) != *interface
    }

    /// Whether packets from `local` leave here.
    pub(crate) fn serves(&self, local: SocketAddr) -> bool {
        let everywhere = self.local.ip().is_unspecified() && self.local.is_ipv4() == local.is_ipv4();
        self.local.port() == local.port() && (everywhere || self.local.ip() == local.ip())
    }

    /// Receives once and hands every datagram over: how many bytes; pending once there is nothing.
    pub(crate) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut Buffers,
        mut take: impl FnMut(Route, Ecn, &mut [u8]),
    ) -> Poll<io::Result<usize>> {
        loop {
            std::task::ready!(self.io.poll_recv_ready(cx))?;
            let received = self.io.try_io(Interest::READABLE, || {
                let mut slices: Vec<_> =
                    buffers.bytes.chunks_mut(RECEIVE_BYTES).map(IoSliceMut::new).collect();
                self.state.recv((&self.io).into(), &mut slices, &mut buffers.metas)
            });
            let count = match received {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let mut total = 0;
            for (meta, bytes) in buffers.metas[..count].iter().zip(buffers.bytes.chunks_mut(RECEIVE_BYTES)) {
                let route = Route { local: self.local_of(meta), remote: meta.addr };
                total += meta.len;
                for datagram in bytes[..meta.len].chunks_mut(meta.stride.max(1)) {
                    take(route, ecn_of(meta), datagram);
                }
            }
            return Poll::Ready(Ok(total));
        }
    }

    fn local_of(&self, meta: &RecvMeta) -> SocketAddr {
        let ip = meta.dst_ip.filter(|_| self.local.ip().is_unspecified());
        SocketAddr::new(ip.unwrap_or(self.local.ip()), self.local.port())
    }

    /// Sends, or keeps what there is no room for.
    ///
    /// # Errors
    /// The system refuses to send there.
    pub(crate) fn send(&mut self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let sent = if self.waiting.is_empty() { self.try_send(transmit, bytes)? } else { 0 };
        let rest = bytes.get(sent..).unwrap_or_default();
        if !rest.is_empty() && self.waiting_bytes + rest.len() <= BACKLOG_BYTES {
            self.waiting_bytes += rest.len();
            self.waiting.push_back(Waiting { transmit: transmit.clone(), bytes: rest.to_vec() });
        }
        Ok(())
    }

    /// Sends what waits, as far as there is room.
    ///
    /// # Errors
    /// As [`Socket::send`], with where it was to go; what went there is dropped.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Result<(), (Route, io::Error)> {
        while let Some(first) = self.waiting.front() {
            let route = first.transmit.route;
            match self.io.poll_send_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Err((route, error)),
                Poll::Pending => return Ok(()),
            }
            let sent = self.try_send(&first.transmit, &first.bytes);
            let Some(first) = self.waiting.front_mut() else { return Ok(()) };
            match sent {
                Ok(sent) if sent < first.bytes.len() => {
                    first.bytes.drain(..sent);
                    self.waiting_bytes -= sent;
                }
                Ok(_) => self.drop_first(),
                Err(error) => {
                    self.drop_first();
                    return Err((route, error));
                }
            }
        }
        Ok(())
    }

    fn drop_first(&mut self) {
        if let Some(first) = self.waiting.pop_front() {
            self.waiting_bytes -= first.bytes.len();
        }
    }

    /// Bytes that the kernel took, from the beginning on.
    fn try_send(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<usize> {
        let src_ip = Some(transmit.route.local.ip()).filter(|_| self.local.ip().is_unspecified());
        let mut sent = 0;
        while sent < bytes.len() {
            // Where the kernel or a device cannot segment, `max_gso_segments` becomes 1 at the first refusal.
            let at_once = transmit.segment * self.state.max_gso_segments().min(SEGMENTS);
            let contents = &bytes[sent..bytes.len().min(sent + at_once)];
            let packet = quinn_udp::Transmit {
                destination: transmit.route.remote,
                ecn: transmit.ect.then_some(EcnCodepoint::Ect0),
                contents,
                segment_size: Some(transmit.segment).filter(|&segment| segment < contents.len()),
                src_ip,
            };
            match self.io.try_io(Interest::WRITABLE, || self.state.try_send((&self.io).into(), &packet)) {
                Ok(()) => sent += contents.len(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) if contents.len() > transmit.segment && self.state.max_gso_segments() == 1 => {}
                // A probe for a larger size that the interface itself does not carry: as if it were lost.
                Err(error) if error.raw_os_error() == Some(nix::libc::EMSGSIZE) => sent += contents.len(),
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }
}

fn ecn_of(meta: &RecvMeta) -> Ecn {
    match meta.ecn {
        None => Ecn::NotEct,
        Some(EcnCodepoint::Ect0) => Ecn::Ect0,
        Some(EcnCodepoint::Ect1) => Ecn::Ect1,
        Some(EcnCodepoint::Ce) => Ecn::Ce,
    }
}

/// Whether this address is one of the loopback, whose interface carries all of this host's.
pub(crate) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}
