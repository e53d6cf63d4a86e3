//! One UDP socket: segmentation offload, ECN bits, what waits for room in it.

use crate::address::Source;
use crate::batch;
use crate::device::bind_device;
use crate::icmp::{self, Unreachable};
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
/// The longest UDP payload, which is what the kernel cuts into segments, too.
const MAX_UDP_PAYLOAD: usize = 65_507;
/// Bytes that one call may bring: segments of one sender that the kernel has joined.
const RECEIVE_BYTES: usize = 65_536;
/// Pieces of that size in one call. More would not stay in the processor's cache until they are decrypted, and of small datagrams, all of which
/// begin at the same places of it, would drive each other out.
const RECEIVE_BUFFERS: usize = 8;
/// Socket buffer asked of the kernel for each direction; it may give less.
const BUFFER_BYTES: usize = 4 << 20;
/// Bytes that wait for room in a socket at most. More is dropped, as a full queue does it: it must not keep other paths waiting.
const BACKLOG_BYTES: usize = 512 << 10;

/// Buffers of one receiving call.
pub(crate) struct Buffers {
    bytes: Vec<u8>,
    metas: Vec<RecvMeta>,
}

impl Buffers {
    pub(crate) fn new() -> Buffers {
        let metas = vec![RecvMeta::default(); RECEIVE_BUFFERS];
        Buffers { bytes: vec![0; RECEIVE_BYTES * RECEIVE_BUFFERS], metas }
    }
}

/// Datagrams of one size along one route, as the engine gives them.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) transmit: &'a Transmit,
    pub(crate) bytes: &'a [u8],
}

/// A route that the system refuses to send along, and why.
pub(crate) type Refusal = (Route, io::Error);

/// Datagrams that are queued because the socket buffer was full.
struct QueuedMessage {
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
    bits: batch::Bits,
    waiting: VecDeque<QueuedMessage>,
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
        Ok(Socket {
            io,
            state,
            local,
            interface,
            bits: batch::Bits::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        })
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Enables ICMP error reports for [`drain_icmp_errors`](Self::drain_icmp_errors).
    pub(crate) fn enable_icmp_errors(&self) {
        icmp::enable(&self.io, self.local.is_ipv6());
    }

    /// Datagrams that ICMP has reported as port unreachable since.
    pub(crate) fn drain_icmp_errors(&self) -> Vec<Unreachable> {
        icmp::drain(&self.io)
    }

    /// Returns true if it was opened for an address that its interface does not have any more.
    pub(crate) fn is_stale(&self, own: &[Source]) -> bool {
        let Some(interface) = &self.interface else { return false };
        let has = |source: &Source| source.ip == self.local.ip() && source.interface == interface.name;
        !own.iter().any(has) || Interface::of(&interface.name) != *interface
    }

    /// Returns true if packets from `local` leave here.
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
        // Where it is bound, whole: a link-local address of IPv6 has a scope besides.
        let ip = meta.dst_ip.filter(|_| self.local.ip().is_unspecified());
        ip.map_or(self.local, |ip| SocketAddr::new(ip, self.local.port()))
    }

    /// Sends, or keeps what there is no room for. What the system refuses is dropped.
    pub(crate) fn send(&mut self, messages: &[Message<'_>], refusals: &mut Vec<Refusal>) {
        let done = if self.waiting.is_empty() { self.push(messages, refusals) } else { Progress::default() };
        for message in done.rest(messages) {
            if self.waiting_bytes + message.bytes.len() <= BACKLOG_BYTES {
                self.waiting_bytes += message.bytes.len();
                let (transmit, bytes) = (message.transmit.clone(), message.bytes.to_vec());
                self.waiting.push_back(QueuedMessage { transmit, bytes });
            }
        }
    }

    /// Sends what waits, as far as there is room.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>, refusals: &mut Vec<Refusal>) {
        // An error says that the runtime ends.
        while !self.waiting.is_empty() && matches!(self.io.poll_send_ready(cx), Poll::Ready(Ok(()))) {
            let mut waiting = std::mem::take(&mut self.waiting);
            let first = waiting.iter().take(batch::MAX_PACKETS);
            let messages: Vec<_> =
                first.map(|one| Message { transmit: &one.transmit, bytes: &one.bytes }).collect();
            let done = self.push(&messages, refusals);
            drop(waiting.drain(..done.messages));
            if let Some(next) = waiting.front_mut() {
                next.bytes.drain(..done.bytes);
            }
            self.waiting_bytes = waiting.iter().map(|one| one.bytes.len()).sum();
            self.waiting = waiting;
        }
    }

    /// Hands messages to the kernel, in order, until one finds no room.
    fn push(&mut self, messages: &[Message<'_>], refusals: &mut Vec<Refusal>) -> Progress {
        let unbound = self.local.ip().is_unspecified();
        let Socket { io, state, bits, .. } = self;
        let segments = || state.max_gso_segments().min(SEGMENTS);
        let hand_over = |packets: &[quinn_udp::Transmit<'_>]| {
            // An error recurs for the first packet alone, which says whose it is, and whether it is one of offload.
            let several = (packets.len() > 1)
                .then(|| io.try_io(Interest::WRITABLE, || batch::send(io, bits, packets)))
                .filter(|sent| sent.as_ref().map_or_else(would_block, |&count| count > 0));
            let first = || io.try_io(Interest::WRITABLE, || state.try_send((&*io).into(), &packets[0]));
            // The next call returns a pending ICMP error of an earlier packet, once.
            let again = |error| if would_block(&error) { Err(error) } else { first() };
            several.unwrap_or_else(|| first().or_else(again).map(|()| 1))
        };
        push(messages, unbound, segments, hand_over, refusals)
    }
}

fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Messages that the kernel has taken or refused: their number, and bytes of the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    messages: usize,
    bytes: usize,
}

impl Progress {
    fn rest<'a>(self, messages: &'a [Message<'a>]) -> impl Iterator<Item = Message<'a>> {
        let rest = messages.get(self.messages..).unwrap_or_default().iter().enumerate();
        rest.map(move |(i, message)| Message {
            bytes: &message.bytes[if i == 0 { self.bytes } else { 0 }..],
            ..*message
        })
    }

    fn advance(&mut self, messages: &[Message<'_>], bytes: usize) {
        self.bytes += bytes;
        while messages.get(self.messages).is_some_and(|message| self.bytes >= message.bytes.len()) {
            (self.messages, self.bytes) = (self.messages + 1, 0);
        }
    }
}

/// Cuts messages into what the kernel takes as one packet, and hands over as many at a time as it takes in one call.
fn push<'a>(
    messages: &'a [Message<'a>],
    unbound: bool,
    segments: impl Fn() -> usize,
    mut hand_over: impl FnMut(&[quinn_udp::Transmit<'a>]) -> io::Result<usize>,
    refusals: &mut Vec<Refusal>,
) -> Progress {
    let mut done = Progress::default();
    done.advance(messages, 0);
    let mut packets = Vec::new();
    while let Some(message) = messages.get(done.messages) {
        packets.clear();
        // Where the kernel or a device cannot segment, that becomes 1 at the first refusal.
        let at_once = segments();
        let all = done.rest(messages).flat_map(|message| packets_of(message, unbound, at_once));
        for packet in all.take(batch::MAX_PACKETS) {
            if packets.first().is_some_and(|first| !batch::can_share_call(first, &packet)) {
                break;
            }
            packets.push(packet);
        }
        match hand_over(&packets) {
            Ok(count) => packets[..count].iter().for_each(|one| done.advance(messages, one.contents.len())),
            Err(error) if would_block(&error) => break,
            Err(_) if packets[0].segment_size.is_some() && segments() == 1 => {}
            // A probe for a larger size that the interface itself does not carry: as if it were lost.
            Err(error) if error.raw_os_error() == Some(nix::libc::EMSGSIZE) => {
                done.advance(messages, packets[0].contents.len());
            }
            Err(error) => {
                refusals.push((message.transmit.route, error));
                done.advance(messages, message.bytes.len());
            }
        }
    }
    done
}

fn packets_of<'a>(
    message: Message<'a>,
    unbound: bool,
    segments: usize,
) -> impl Iterator<Item = quinn_udp::Transmit<'a>> {
    let Message { transmit, bytes } = message;
    let segment = transmit.segment.max(1);
    let segments = segments.min(MAX_UDP_PAYLOAD / segment).max(1);
    bytes.chunks(segment * segments).map(move |contents| quinn_udp::Transmit {
        destination: transmit.route.remote,
        ecn: transmit.ect.then_some(EcnCodepoint::Ect0),
        contents,
        segment_size: Some(segment).filter(|&segment| segment < contents.len()),
        src_ip: Some(transmit.route.local.ip()).filter(|_| unbound),
    })
}

fn ecn_of(meta: &RecvMeta) -> Ecn {
    match meta.ecn {
        None => Ecn::NotEct,
        Some(EcnCodepoint::Ect0) => Ecn::Ect0,
        Some(EcnCodepoint::Ect1) => Ecn::Ect1,
        Some(EcnCodepoint::Ce) => Ecn::Ce,
    }
}

/// Returns true if this address is one of the loopback, whose interface carries all of this host's.
pub(crate) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests;
