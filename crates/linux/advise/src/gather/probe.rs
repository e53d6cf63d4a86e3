//! Connections to a port of the peer: handshake times of each path, and an MPTCP connection whose subflows are counted.
//!
//! A client of Linux opens further subflows once the peer has acknowledged data or announced an address. Servers that speak first
//! cause that by themselves; for others one empty line is sent.

use crate::facts::{MptcpState, Path, Probe, Route};
use nix::libc;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_system::mptcp::{Fallbacks, counter};

/// Timeout of a handshake that is measured.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer ones include a repeated SYN (RFC 6298: after a second).
const MAX_HANDSHAKE: Duration = Duration::from_millis(950);
/// Handshakes per path; the first also resolves neighbours.
const HANDSHAKES: usize = 2;
/// Pairs of addresses whose handshakes are measured.
const MAX_MEASURED: usize = 16;
/// Timeout of the MPTCP connection: a kernel falls back to TCP after two or three SYNs, 3 to 4 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(6);
/// Time for a second subflow.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Part of it before the empty line is sent.
const QUIET_TIME: Duration = Duration::from_millis(200);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const EMPTY_LINE: &[u8] = b"\r\n";
/// Joins that the kernel sent, from Linux 6.12 on.
const JOINS_SENT: &str = "MPJoinSynTx";

// From the kernel's user interface, linux/in.h, linux/socket.h and linux/mptcp.h (Linux 5.16).
const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;
const MPTCP_TCPINFO: libc::c_int = 2;
const MPTCP_INFO_FLAG_FALLBACK: u32 = 1;
/// `struct mptcp_info`: accepted addresses are a byte, flags a word at 8.
const INFO_BYTES: usize = 12;
const ADDRESSES_ACCEPTED: usize = 2;
const FLAGS: usize = 8;
/// `struct mptcp_subflow_data`: its size, number of subflows, size of an entry in the kernel, size of an entry here.
const SUBFLOW_DATA_BYTES: usize = 16;
/// Beginning of `struct tcp_info`, whose first byte is the state.
const ENTRY_BYTES: usize = 8;
const MAX_SUBFLOWS: usize = 64;
const TCP_ESTABLISHED: u8 = 1;
const TCP_SYN_SENT: u8 = 2;

/// Results.
pub(super) struct Probed {
    pub(super) outcome: Option<Probe>,
    /// By local and remote address.
    pub(super) rtts_us: BTreeMap<(IpAddr, IpAddr), u64>,
}

pub(super) fn run(paths: &[Path], remotes: &[IpAddr], port: u16, state: MptcpState) -> Probed {
    let rtts_us = handshakes(paths, port);
    let outcome = remotes.first().filter(|_| state == MptcpState::On);
    let outcome = outcome.map(|remote| {
        mptcp(SocketAddr::new(*remote, port))
            .unwrap_or_else(|error| Probe::Failed { error: error.to_string() })
    });
    Probed { outcome, rtts_us }
}

fn handshakes(paths: &[Path], port: u16) -> BTreeMap<(IpAddr, IpAddr), u64> {
    thread::scope(|scope| {
        let begun = paths.iter().filter(|path| path.route.is_own()).take(MAX_MEASURED);
        let begun: Vec<_> = begun.map(|path| (path, scope.spawn(move || rtt_us(path, port)))).collect();
        let done = begun.into_iter().map(|(path, thread)| (path, thread.join().ok().flatten()));
        done.filter_map(|(path, rtt)| Some(((path.local, path.remote), rtt?))).collect()
    })
}

fn rtt_us(path: &Path, port: u16) -> Option<u64> {
    let least = (0..HANDSHAKES).filter_map(|_| handshake(path, port).ok()).min()?;
    u64::try_from(least.as_micros()).ok().filter(|_| least < MAX_HANDSHAKE)
}

/// Time of a TCP handshake; a refusal takes one round trip, too.
fn handshake(path: &Path, port: u16) -> io::Result<Duration> {
    let socket =
        Socket::new(Domain::for_address(SocketAddr::new(path.local, 0)), Type::STREAM, Some(Protocol::TCP))?;
    if matches!(path.route, Route::Bound { .. }) {
        socket.bind_device(Some(path.nic.as_bytes()))?;
    }
    socket.bind(&SocketAddr::new(path.local, 0).into())?;
    let begun = Instant::now();
    match socket.connect_timeout(&SocketAddr::new(path.remote, port).into(), HANDSHAKE_TIMEOUT) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => Err(error),
        _ => Ok(begun.elapsed()),
    }
}

fn mptcp(to: SocketAddr) -> io::Result<Probe> {
    let (fallbacks, joins) = (Fallbacks::read().ok(), counter(JOINS_SENT));
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::MPTCP))?;
    socket.connect_timeout(&to.into(), CONNECT_TIMEOUT)?;
    let Some(info) = second_subflow(&socket) else {
        let grown = |now: Fallbacks, before: Fallbacks| {
            now.dropped > before.dropped || now.disabled > before.disabled
        };
        let option_dropped =
            Fallbacks::read().ok().zip(fallbacks).is_some_and(|(now, before)| grown(now, before));
        return Ok(Probe::Tcp { option_dropped });
    };
    let joins_sent = counter(JOINS_SENT).zip(joins).map(|(now, before)| now.saturating_sub(before));
    Ok(Probe::Mptcp {
        joined: info.joined,
        announced: info.announced,
        joins_sent,
        joins_unanswered: info.unanswered,
    })
}

#[derive(Clone, Copy)]
struct Info {
    joined: u32,
    announced: u32,
    unanswered: u32,
}

/// Waits for a second subflow; `None` if the connection became TCP with its handshake. One that ends meanwhile has what it had.
fn second_subflow(socket: &Socket) -> Option<Info> {
    let begun = Instant::now();
    let mut sent = false;
    let mut info = read_info(socket)?;
    while info.joined == 0 && begun.elapsed() < JOIN_TIMEOUT {
        if !sent && begun.elapsed() >= QUIET_TIME {
            sent = true;
            let mut socket = socket;
            if socket.write_all(EMPTY_LINE).is_err() {
                break;
            }
        }
        thread::sleep(POLL_INTERVAL);
        let Some(now) = read_info(socket) else { break };
        info = now;
    }
    Some(info)
}

/// `None` for a connection that fell back: the kernel refuses the options, or has a flag for it.
fn read_info(socket: &Socket) -> Option<Info> {
    let mut info = [0; INFO_BYTES];
    option(socket, MPTCP_INFO, &mut info)?;
    let flags = u32::from_ne_bytes(*info.get(FLAGS..)?.first_chunk()?);
    let states = states(socket).filter(|_| flags & MPTCP_INFO_FLAG_FALLBACK == 0)?;
    let in_state = |wanted: u8| states.iter().filter(|state| **state == wanted).count();
    let count = |subflows: usize| u32::try_from(subflows).unwrap_or(u32::MAX);
    Some(Info {
        // `mptcpi_subflows` also counts joins that are not answered.
        joined: count(in_state(TCP_ESTABLISHED).saturating_sub(1)),
        announced: info[ADDRESSES_ACCEPTED].into(),
        unanswered: count(in_state(TCP_SYN_SENT)),
    })
}

/// TCP state of each subflow.
fn states(socket: &Socket) -> Option<Vec<u8>> {
    let mut data = vec![0; SUBFLOW_DATA_BYTES + MAX_SUBFLOWS * ENTRY_BYTES];
    let words = [SUBFLOW_DATA_BYTES, 0, 0, ENTRY_BYTES];
    for (place, word) in data.chunks_exact_mut(size_of::<u32>()).zip(words) {
        place.copy_from_slice(&u32::try_from(word).ok()?.to_ne_bytes());
    }
    let length = option(socket, MPTCP_TCPINFO, &mut data)?;
    let entries = data.get(SUBFLOW_DATA_BYTES..length)?.chunks_exact(ENTRY_BYTES);
    Some(entries.map(|entry| entry[0]).collect())
}

/// Bytes that the kernel wrote.
fn option(socket: &Socket, name: libc::c_int, value: &mut [u8]) -> Option<usize> {
    let mut length = libc::socklen_t::try_from(value.len()).ok()?;
    // SAFETY: `value` has room for the bytes that `length` says.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), SOL_MPTCP, name, value.as_mut_ptr().cast(), &raw mut length)
    };
    usize::try_from(length).ok().filter(|_| done == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn tcp_socket_has_no_information_of_mptcp() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        assert!(read_info(&socket).is_none());
    }

    #[test]
    fn refused_handshake_has_a_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let address = "127.0.0.1".parse().unwrap();
        let route = Route::Own { gateway: None };
        let path = Path {
            nic: "lo".to_owned(),
            local: address,
            remote: address,
            route,
            rtt_us: None,
            retransmitted: None,
        };
        assert!(rtt_us(&path, port).is_some());
    }
}
