//! User-space links with a delay and losses: between a virtual machine's taps and the network, and wherever a link is long and the
//! host's kernel has no netem.
//!
//! A user-space link reads what one interface receives and sends it out of the other, in both directions, as it is: checksums that are
//! still to be computed stay so (`PACKET_VNET_HDR`).

use crate::rng::Rng;
use crate::spec::Wire;
use crate::{Error, Netns};
use nix::libc;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Size of the send and receive buffers of a packet socket.
const BUFFER_BYTES: usize = 8 << 20;
/// A packet and what the kernel writes before it.
const MAX_BYTES: usize = 1 << 16;
/// Interval of checks for the end while no packet arrives.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// An interface, and its namespace.
pub(crate) struct LinkEnd<'a> {
    pub(crate) at: &'a Netns,
    pub(crate) name: String,
}

/// Carries until it is dropped.
#[derive(Debug)]
pub(crate) struct UserspaceLink {
    enough: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl UserspaceLink {
    /// Joins two interfaces; `there` and `back` say what happens on the way. `number` tells the user-space links of a run apart.
    pub(crate) fn start(
        from: &LinkEnd<'_>,
        to: &LinkEnd<'_>,
        (there, back): (Wire, Wire),
        (seed, number): (u64, usize),
    ) -> Result<Self, Error> {
        let (near, far) = (Arc::new(open(from)?), Arc::new(open(to)?));
        let mut userspace_link = Self { enough: Arc::default(), threads: Vec::new() };
        for (place, source, sink, wire) in [(0, &near, &far, there), (1, &far, &near, back)] {
            let (source, sink, enough) = (source.clone(), sink.clone(), userspace_link.enough.clone());
            let rng = Rng::of_link(seed, 2 * number + place);
            // The name is what `top` shows beside the machine's own threads.
            let thread = thread::Builder::new()
                .name(format!("cable{number}.{place}"))
                .spawn(move || carry(&source, &sink, wire, rng, &enough))
                .map_err(|e| Error::kernel("starting a thread for", format!("a cable of {}", to.name), e))?;
            userspace_link.threads.push(thread);
        }
        Ok(userspace_link)
    }
}

impl Drop for UserspaceLink {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has no way to panic that would not have been printed.
            let _ = thread.join();
        }
    }
}

/// A socket that sees every packet which an interface receives.
fn open(end: &LinkEnd<'_>) -> Result<Socket, Error> {
    let index = end.at.port_index(&end.name)?;
    let opened = end.at.run(move || bound(index));
    opened.map_err(|e| Error::kernel("opening a packet socket on", format!("interface {}", end.name), e))
}

fn bound(index: u32) -> io::Result<Socket> {
    let every = u16::try_from(libc::ETH_P_ALL).unwrap_or_default();
    // Without a protocol it receives nothing until it is bound.
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
    for buffer in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
        set(&socket, libc::SOL_SOCKET, buffer, BUFFER_BYTES as libc::c_int)?;
    }
    set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
    set(&socket, libc::SOL_PACKET, PACKET_VNET_HDR, 1)?;
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: an address of this family is one of the types that the storage is for.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = every.to_be();
    address.sll_ifindex = index as libc::c_int;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the storage holds an address of that length.
    socket.bind(&unsafe { SockAddr::new(storage, length) })?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// From linux/if_packet.h.
const PACKET_VNET_HDR: libc::c_int = 15;
/// Likewise (Linux 4.20).
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

fn set(socket: &Socket, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads an integer of that length, which outlives the call.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Until it is enough, or an interface is gone.
fn carry(source: &Socket, sink: &Socket, wire: Wire, mut rng: Rng, enough: &AtomicBool) {
    let (mut source, mut sink) = (source, sink);
    let delay = wire.delay.to_duration();
    let mut packet = vec![0; MAX_BYTES];
    let mut under_way: VecDeque<(Instant, Box<[u8]>)> = VecDeque::new();
    while !enough.load(Ordering::Relaxed) {
        let due = under_way.front().map(|(due, _)| *due);
        let timeout = due.map_or(POLL_INTERVAL, |due| due.saturating_duration_since(Instant::now()));
        wait(source.as_raw_fd(), timeout);
        let now = Instant::now();
        loop {
            match source.read(&mut packet) {
                Ok(length) if wire.loss == 0.0 || rng.uniform() >= wire.loss => {
                    under_way.push_back((now + delay, packet[..length].into()));
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if is_passing(&e) => {}
                Err(_) => return,
            }
        }
        while under_way.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            // What the far end does not take is lost, as on a user-space link to where nobody listens.
            let _ = under_way.pop_front().map(|(_, packet)| sink.write(&packet));
        }
    }
}

/// True if an interface was only down, or the call was interrupted.
fn is_passing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted || error.raw_os_error() == Some(libc::ENETDOWN)
}

/// Until there is something to read, or for some time.
fn wait(socket: RawFd, timeout: Duration) {
    let mut watched = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
    let timeout = timeout.min(POLL_INTERVAL);
    let time = libc::timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
    // SAFETY: one entry, which the kernel reads and writes, and a time that it reads; both outlive the call.
    unsafe { libc::ppoll(&raw mut watched, 1, &raw const time, std::ptr::null()) };
}
