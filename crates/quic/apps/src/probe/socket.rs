//! Sockets of probes: direct, or at a relay.

use super::{QUIC, STUN, hops};
use crate::probe::Hop;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vmcc_turn::{Failure, HEADER, PeerState, Session, State};
use vmcc_udp::{Relay, Source, bind_device};
use vmcc_units::time::{Span, Time};

/// Interval at which a request to stop is checked.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The longest datagram.
pub(super) const MAX_DATAGRAM: usize = 2048;

pub(super) trait ProbeSocket {
    fn send(&mut self, datagram: &[u8]) -> io::Result<()>;

    /// Place in `buffer` of a datagram from the other end; none if none has come until then.
    fn receive(
        &mut self,
        until: Instant,
        buffer: &mut [u8; MAX_DATAGRAM],
    ) -> io::Result<Option<Range<usize>>>;

    /// The routers on the route of what takes `round_trip`, and the server.
    fn hops(&self, round_trip: Duration, stop: &AtomicBool) -> io::Result<Vec<Hop>>;

    /// Source address of packets, as the server sees it.
    fn local(&self) -> io::Result<IpAddr>;
}

/// A socket at an address here, connected: another answer than the server's is none, and who refuses says so.
fn connected(source: &Source, to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(source.socket_address(0))?;
    bind_device(&socket, &source.interface);
    socket.connect(to)?;
    Ok(socket)
}

fn receive(socket: &UdpSocket, until: Instant, buffer: &mut [u8; MAX_DATAGRAM]) -> io::Result<Option<usize>> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(buffer) {
            Ok(len) => return Ok(Some(len)),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
    }
}

pub(super) struct DirectSocket(UdpSocket);

impl DirectSocket {
    pub(super) fn open(source: &Source, remote: SocketAddr) -> io::Result<DirectSocket> {
        connected(source, remote).map(DirectSocket)
    }
}

impl ProbeSocket for DirectSocket {
    fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        self.0.send(datagram).map(drop)
    }

    fn receive(
        &mut self,
        until: Instant,
        buffer: &mut [u8; MAX_DATAGRAM],
    ) -> io::Result<Option<Range<usize>>> {
        Ok(receive(&self.0, until, buffer)?.map(|len| 0..len))
    }

    fn hops(&self, round_trip: Duration, stop: &AtomicBool) -> io::Result<Vec<Hop>> {
        hops(&self.0, &QUIC, round_trip, stop)
    }

    fn local(&self) -> io::Result<IpAddr> {
        Ok(self.0.local_addr()?.ip())
    }
}

/// Gives its address at the relay back when dropped.
pub(super) struct RelayedSocket {
    socket: UdpSocket,
    session: Session,
    source: Source,
    remote: SocketAddr,
    begin: Instant,
}

impl RelayedSocket {
    /// Returns once the relay leads to `remote`, or says why it does not.
    pub(super) fn open(
        source: &Source,
        relay: &Relay,
        remote: SocketAddr,
        stop: &AtomicBool,
    ) -> io::Result<RelayedSocket> {
        let mut seed = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
        let begin = Instant::now();
        let mut relayed = RelayedSocket {
            socket: connected(source, relay.address)?,
            session: Session::new(Time::ZERO, relay.credentials.clone(), remote.is_ipv6(), seed),
            source: source.clone(),
            remote,
            begin,
        };
        let mut buffer = [0; MAX_DATAGRAM];
        loop {
            let peer = relayed.session.peer(relayed.now(), remote);
            match (relayed.session.state(), peer) {
                (State::Ready(_), PeerState::Ready) => return Ok(relayed),
                (State::Over(failure), _) => return Err(io::Error::other(failure.clone())),
                (_, PeerState::Refused(failure)) => return Err(io::Error::other(failure)),
                _ if stop.load(Ordering::SeqCst) => return Err(io::Error::other(Failure::Closed)),
                _ => relayed.receive(Instant::now() + STOP_POLL_INTERVAL, &mut buffer)?,
            };
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + Span::from_ns(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn drive(&mut self) -> io::Result<()> {
        let now = self.now();
        while let Some(request) = self.session.poll_transmit(now) {
            self.socket.send(request)?;
        }
        Ok(())
    }
}

impl ProbeSocket for RelayedSocket {
    fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        let header = self.session.header(self.remote, datagram.len());
        let header = header.ok_or_else(|| io::Error::other("the relay does not lead there any more"))?;
        self.socket.send(&[&header[..], datagram].concat()).map(drop)
    }

    fn receive(
        &mut self,
        until: Instant,
        buffer: &mut [u8; MAX_DATAGRAM],
    ) -> io::Result<Option<Range<usize>>> {
        self.drive()?;
        let Some(len) = receive(&self.socket, until, buffer)? else { return Ok(None) };
        let came = self.session.handle(self.now(), &buffer[..len]);
        self.drive()?;
        // What is the relay's own is none of the server's, and empty.
        Ok(Some(came.filter(|(from, _)| *from == self.remote).map_or(0..0, |(_, place)| place)))
    }

    /// Those up to the relay, and the server: what lies between them shows itself to nobody here.
    fn hops(&self, round_trip: Duration, stop: &AtomicBool) -> io::Result<Vec<Hop>> {
        let socket = connected(&self.source, self.socket.peer_addr()?)?;
        let mut all = hops(&socket, &STUN, round_trip, stop)?;
        all.push(Hop { address: Some(self.remote.ip()), round_trip: Some(round_trip) });
        Ok(all)
    }

    fn local(&self) -> io::Result<IpAddr> {
        let relayed = self.session.relayed();
        relayed.map(|address| address.ip()).ok_or_else(|| io::Error::other("the relay has ended that"))
    }
}

impl Drop for RelayedSocket {
    fn drop(&mut self) {
        let now = self.now();
        self.session.close(now);
        let (mut buffer, mut until) = ([0; MAX_DATAGRAM], Instant::now());
        // As long as a close is said again.
        while let Some(next) = self.session.poll_timeout() {
            until = until.max(self.begin + Duration::from_nanos(next.since(Time::ZERO).ns()));
            if self.receive(until, &mut buffer).is_err() {
                return;
            }
        }
    }
}

const _: () = assert!(HEADER < MAX_DATAGRAM);
