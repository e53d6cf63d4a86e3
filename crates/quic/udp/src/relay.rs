//! A socket at a relay: datagrams leave by a TURN server, and come from there.

use crate::address::Source;
use crate::socket::{Buffers, Message, Refusal, Socket};
use std::fmt;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};
use vmcc_transport::{Ecn, Route, Transmit};
use vmcc_turn::{Credentials, Failure, PeerState, Session, State};
use vmcc_units::time::{Span, Time};

/// Silence after a packet was sent by a relay until its allocation is checked. While another path is live, the path manager checks it
/// sooner.
const ALLOCATION_CHECK_TIMEOUT: Span = Span::from_secs(2);

/// Failure reason of a relay that loses its allocations repeatedly.
pub(crate) const ALLOCATION_LOST: &str =
    "it forgets again and again what it has given (437); ask its operator whether it is restarted";

/// A TURN server, and who one is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Relay {
    /// Its address.
    pub address: SocketAddr,
    /// Name and secret.
    pub credentials: Credentials,
}

impl fmt::Display for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "turn:{}@{}", self.credentials.user(), self.address)
    }
}

/// An address at a relay that packets can leave from, and how they get there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    /// From here.
    pub source: IpAddr,
    /// The relay.
    pub relay: Relay,
}

/// State of relaying to a peer.
#[derive(Debug)]
pub(crate) enum RelayState {
    /// Pending; a change will follow.
    Waiting,
    /// Packets may leave from this address.
    Ready(SocketAddr),
    /// The relay refuses this peer.
    Refused(String),
    /// The relay has lost the allocation; the next request makes a new one.
    Lost,
    /// The relay cannot be used; the next request starts over.
    Failed(String),
}

pub(crate) struct RelaySocket {
    via: Via,
    v6: bool,
    socket: Socket,
    session: Session,
    /// The address at the relay, also after the end.
    relayed: Option<SocketAddr>,
    /// Of the session, that were told.
    changes: u64,
    /// Nobody wants it any more.
    closing: bool,
    /// Packets with what the relay wants before each.
    framed: Vec<u8>,
    /// Since when something that was sent by it waits for anything to come.
    waits: Option<Time>,
}

impl RelaySocket {
    pub(crate) fn open(now: Time, source: &Source, relay: &Relay, v6: bool) -> io::Result<RelaySocket> {
        let mut seed = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
        Ok(RelaySocket {
            via: Via { source: source.ip, relay: relay.clone() },
            v6,
            socket: Socket::open(SocketAddr::new(source.ip, 0), Some(&source.interface))?,
            session: Session::new(now, relay.credentials.clone(), v6, seed),
            relayed: None,
            changes: 0,
            closing: false,
            framed: Vec::new(),
            waits: None,
        })
    }

    pub(crate) fn matches(&self, source: IpAddr, relay: &Relay, v6: bool) -> bool {
        !self.closing && self.v6 == v6 && self.via.source == source && self.via.relay == *relay
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.session.poll_timeout()
    }

    /// As [`Socket::poll_receive`]; what peers sent is handed over.
    pub(crate) fn poll_receive(
        &mut self,
        now: Time,
        cx: &mut Context<'_>,
        buffers: &mut Buffers,
        mut take: impl FnMut(Route, Ecn, &mut [u8]),
    ) -> Poll<io::Result<usize>> {
        let (session, server, waits) = (&mut self.session, self.via.relay.address, &mut self.waits);
        self.socket.poll_receive(cx, buffers, |route, ecn, datagram| {
            if route.remote != server {
                return;
            }
            *waits = None;
            let Some((remote, place)) = session.handle(now, datagram) else { return };
            if let Some(local) = session.relayed() {
                take(Route { local, remote }, ecn, &mut datagram[place]);
            }
        })
    }

    /// As [`Socket::send`], for packets to peers: each gets what the relay wants before it, and all stay one call.
    pub(crate) fn send(&mut self, now: Time, messages: &[Message<'_>], refusals: &mut Vec<Refusal>) {
        if now.since(*self.waits.get_or_insert(now)) > ALLOCATION_CHECK_TIMEOUT {
            self.waits = Some(now);
            self.session.check(now);
        }
        self.framed.clear();
        let mut outer = Vec::with_capacity(messages.len());
        for Message { transmit, bytes } in messages {
            let begin = self.framed.len();
            match frame(&self.session, transmit, bytes, &mut self.framed) {
                Some(()) => {
                    let segment = transmit.segment + vmcc_turn::HEADER;
                    outer.push(self.outer(transmit.ect, segment, self.framed.len() - begin));
                }
                None => {
                    self.framed.truncate(begin);
                    let error =
                        io::Error::new(io::ErrorKind::AddrNotAvailable, "the relay does not lead there");
                    refusals.push((transmit.route, error));
                }
            }
        }
        let mut rest = self.framed.as_slice();
        let framed = outer.iter().filter_map(|transmit| {
            let bytes = rest.split_off(..transmit.len)?;
            Some(Message { transmit, bytes })
        });
        let framed: Vec<_> = framed.collect();
        let mut outer_refusals = Vec::new();
        self.socket.send(&framed, &mut outer_refusals);
        self.refused(&outer_refusals, refusals);
    }

    /// All leave for the relay: where one is refused, all are.
    fn refused(&self, outer: &[Refusal], refusals: &mut Vec<Refusal>) {
        if let Some((_, error)) = outer.first() {
            self.refuse(error, refusals);
        }
    }

    /// Tells that its paths lead nowhere.
    pub(crate) fn refuse(&self, error: &io::Error, refusals: &mut Vec<Refusal>) {
        // One of the system's stays known by its number.
        let again = || match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        refusals.extend(self.routes().into_iter().map(|route| (route, again())));
    }

    fn outer(&self, ect: bool, segment: usize, len: usize) -> Transmit {
        let route = Route { local: self.socket.local(), remote: self.via.relay.address };
        Transmit { route, ect, segment, len }
    }

    /// Sends what the session has to say; whether there are news of it.
    pub(crate) fn drive(&mut self, now: Time) -> bool {
        while let Some(request) = self.session.poll_transmit(now) {
            let request = request.to_vec();
            let transmit = self.outer(false, request.len(), request.len());
            // Sent again when there is no answer.
            self.socket.send(&[Message { transmit: &transmit, bytes: &request }], &mut Vec::new());
        }
        self.relayed = self.session.relayed().or(self.relayed);
        std::mem::replace(&mut self.changes, self.session.changes()) != self.changes
    }

    /// Sends what waits for room; tells where the system refuses to.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>, refusals: &mut Vec<Refusal>) {
        let mut outer = Vec::new();
        self.socket.poll_flush(cx, &mut outer);
        self.refused(&outer, refusals);
    }

    /// Rejects the relay's address as false: no packet leaves by it.
    pub(crate) fn reject(&mut self) {
        self.session.reject();
    }

    /// Paths that it carries, or carried before its end.
    pub(crate) fn routes(&self) -> Vec<Route> {
        let route = |remote| self.relayed.map(|local| Route { local, remote });
        self.session.peers().filter_map(route).collect()
    }

    /// Reason of its end, once it has ended.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match self.session.state() {
            State::Over(failure) => Some(failure.clone()),
            _ => None,
        }
    }

    /// Returns true if this is its address, which it keeps after its end.
    pub(crate) fn is_at(&self, local: SocketAddr) -> bool {
        self.relayed == Some(local)
    }

    /// Address that the relay reports, once it does.
    pub(crate) fn reported(&self) -> Option<SocketAddr> {
        self.session.relayed()
    }

    /// Returns true until its address has been taken into use.
    pub(crate) fn is_new(&self) -> bool {
        self.relayed.is_none()
    }

    /// The address at the relay, also after the end.
    pub(crate) fn relayed(&self) -> Option<SocketAddr> {
        self.relayed
    }

    pub(crate) fn via(&self) -> &Via {
        &self.via
    }

    /// Returns true if the session has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.session.is_over()
    }

    /// Asks the relay whether it still has the allocation.
    pub(crate) fn check(&mut self, now: Time) {
        self.session.check(now);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(crate) fn is_done(&self) -> bool {
        self.closing && self.session.is_over()
    }

    pub(crate) fn close(&mut self, now: Time) {
        self.closing = true;
        self.session.close(now);
    }

    pub(crate) fn state(&mut self, now: Time, remote: SocketAddr) -> RelayState {
        let peer = self.session.peer(now, remote);
        match (self.session.state(), peer) {
            (State::Over(Failure::Lost), _) => RelayState::Lost,
            (State::Over(failure), _) => RelayState::Failed(failure.to_string()),
            (_, PeerState::Refused(failure)) => RelayState::Refused(failure.to_string()),
            (State::Ready(local), PeerState::Ready) => RelayState::Ready(*local),
            _ => RelayState::Waiting,
        }
    }
}

/// Puts what the relay wants before each packet; none if it does not lead there.
fn frame(session: &Session, transmit: &Transmit, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    for packet in bytes.chunks(transmit.segment.max(1)) {
        out.extend_from_slice(&session.header(transmit.route.remote, packet.len())?);
        out.extend_from_slice(packet);
    }
    Some(())
}
