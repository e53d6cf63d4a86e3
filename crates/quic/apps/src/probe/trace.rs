//! Routers of a route: packets that may go one hop, two hops, and so on, with the ends and ports that all have, so that a router that
//! spreads connections over links by them spreads these the same way (Paris traceroute). What routers say comes by the socket's queue
//! of errors, which needs no right.

use super::{Hop, Probe, random};
use nix::sys::socket::sockopt::{Ipv4RecvErr, Ipv6RecvErr, Ipv6Ttl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Farther than anything is.
const MAX_HOPS: u8 = 30;
/// Packets for one hop, some of which routers leave unanswered.
const PROBES_PER_HOP: u32 = 2;
/// Hops in a row that do not answer, after which none will.
const MAX_SILENT_HOPS: usize = 4;
/// A router is waited for as long as several round trips take, within these.
const WAIT_ROUND_TRIPS: u32 = 3;
const MIN_HOP_TIMEOUT: Duration = Duration::from_millis(20);
const MAX_HOP_TIMEOUT: Duration = Duration::from_millis(300);

/// Source of an answer.
enum Responder {
    Router(IpAddr),
    /// The other end.
    Destination,
}

/// The routers on the route of a connected socket to a server that answers a probe within `round_trip`, and the server.
pub(super) fn trace(
    socket: &UdpSocket,
    probe: &Probe,
    round_trip: Duration,
    stop: &AtomicBool,
) -> io::Result<Vec<Hop>> {
    let end = socket.peer_addr()?.ip();
    match end {
        IpAddr::V4(_) => setsockopt(socket, Ipv4RecvErr, &true)?,
        IpAddr::V6(_) => setsockopt(socket, Ipv6RecvErr, &true)?,
    }
    let wait = (round_trip * WAIT_ROUND_TRIPS).clamp(MIN_HOP_TIMEOUT, MAX_HOP_TIMEOUT);
    let mut hops = Vec::new();
    for ttl in 1..=MAX_HOPS {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        match end {
            IpAddr::V4(_) => socket.set_ttl(ttl.into())?,
            IpAddr::V6(_) => setsockopt(socket, Ipv6Ttl, &ttl.into())?,
        }
        let mut found = None;
        for _ in 0..PROBES_PER_HOP {
            found = probe_hop(socket, probe, wait)?;
            if found.is_some() {
                break;
            }
        }
        let hop = match found {
            Some((Responder::Destination, time)) => {
                hops.push(Hop { address: Some(end), round_trip: Some(time) });
                return Ok(hops);
            }
            Some((Responder::Router(address), time)) => {
                Hop { address: Some(address), round_trip: Some(time) }
            }
            None => Hop::default(),
        };
        hops.push(hop);
        if hops.iter().rev().take_while(|hop| hop.address.is_none()).count() >= MAX_SILENT_HOPS {
            hops.truncate(hops.len() - MAX_SILENT_HOPS);
            break;
        }
    }
    // It answered before: there it is, wherever that is.
    hops.push(Hop { address: Some(end), round_trip: Some(round_trip) });
    Ok(hops)
}

fn probe_hop(socket: &UdpSocket, probe: &Probe, wait: Duration) -> io::Result<Option<(Responder, Duration)>> {
    while read_error_queue(socket)?.is_some() {}
    let id = random()?;
    let sent = Instant::now();
    // The first call returns a pending error of an earlier packet.
    let packet = (probe.packet)(id);
    if socket.send(&packet).is_err() {
        socket.send(&packet)?;
    }
    let mut buffer = [0; 2048];
    loop {
        let left = wait.saturating_sub(sent.elapsed());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut buffer) {
            Ok(len) if (probe.answered)(&buffer[..len]) == Some(id) => {
                return Ok(Some((Responder::Destination, sent.elapsed())));
            }
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(_) => {
                if let Some(router) = read_error_queue(socket)? {
                    return Ok(Some((Responder::Router(router), sent.elapsed())));
                }
            }
        }
    }
}

/// Sender of the first pending error.
fn read_error_queue(socket: &UdpSocket) -> io::Result<Option<IpAddr>> {
    let mut room = nix::cmsg_space!(nix::libc::sock_extended_err, nix::libc::sockaddr_in6);
    let mut bytes = [0; 64];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message = match recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut room), flags) {
        Err(nix::errno::Errno::EAGAIN) => return Ok(None),
        message => message?,
    };
    let router = message.cmsgs()?.find_map(|part| match part {
        ControlMessageOwned::Ipv4RecvErr(_, Some(from)) => {
            Some(IpAddr::from(Ipv4Addr::from(from.sin_addr.s_addr.to_ne_bytes())))
        }
        ControlMessageOwned::Ipv6RecvErr(_, Some(from)) => {
            Some(IpAddr::from(Ipv6Addr::from(from.sin6_addr.s6_addr)))
        }
        _ => None,
    });
    // One of this host itself has no sender.
    Ok(Some(router.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))))
}
