//! A socket at a relay: datagrams leave by a TURN server, and come from there.

use crate::address::{Source, sources};
use crate::endpoint::Endpoint;
use crate::shared::Inner;
use crate::socket::{Buffers, Message, Refusal, Socket, is_loopback};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};
use vmcc_transport::{Ecn, Route, Transmit};
use vmcc_turn::{Credentials, Failure, PeerState, Session, State};
use vmcc_units::time::{Span, Time};

/// Silence after a packet was sent by a relay until its allocation is checked. While another path is live, the path manager checks it
/// sooner.
const ALLOCATION_CHECK_TIMEOUT: Span = Span::from_secs(2);

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
    fn open(now: Time, source: &Source, relay: &Relay, v6: bool) -> io::Result<RelaySocket> {
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

    fn matches(&self, source: IpAddr, relay: &Relay, v6: bool) -> bool {
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

    pub(crate) fn is_done(&self) -> bool {
        self.closing && self.session.is_over()
    }

    fn close(&mut self, now: Time) {
        self.closing = true;
        self.session.close(now);
    }

    fn state(&mut self, now: Time, remote: SocketAddr) -> RelayState {
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

fn is_of_this_host(ip: IpAddr) -> bool {
    is_loopback(ip) || sources().is_ok_and(|own| own.iter().any(|source| source.ip == ip))
}

/// Puts what the relay wants before each packet; none if it does not lead there.
fn frame(session: &Session, transmit: &Transmit, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    for packet in bytes.chunks(transmit.segment.max(1)) {
        out.extend_from_slice(&session.header(transmit.route.remote, packet.len())?);
        out.extend_from_slice(packet);
    }
    Some(())
}

impl Inner {
    /// Returns true if the address that a relay reports is one of ours: packets of other paths would leave by that relay.
    pub(crate) fn is_own_address(&self, at: usize) -> bool {
        let relay = &self.relays[at];
        let Some(given) = relay.session.relayed() else { return false };
        // Which other one speaks the truth is not known: the one that said it first.
        let other =
            |(i, other): (usize, &RelaySocket)| i != at && other.is_at(given) && !other.session.is_over();
        let own = |socket: &Socket| {
            let local = socket.local();
            local == given
                || (local.ip().is_unspecified() && socket.serves(given) && is_of_this_host(given.ip()))
        };
        let new = relay.relayed.is_none();
        self.sockets.iter().any(own) || new && self.relays.iter().enumerate().any(other)
    }

    pub(crate) fn relay_of(&mut self, local: SocketAddr) -> Option<&mut RelaySocket> {
        self.relays.iter_mut().find(|relay| relay.is_at(local))
    }

    /// Gives addresses at relays back that are not to be used from now on.
    pub(crate) fn close_relays(&mut self, unwanted: impl Fn(&RelaySocket) -> bool) {
        let now = self.now();
        let mut any = false;
        let open = self.relays.iter_mut().filter(|relay| !relay.closing);
        for relay in open.filter(|relay| unwanted(relay)) {
            relay.close(now);
            any = true;
        }
        if any {
            self.wake_driver();
        }
    }
}

impl Endpoint {
    /// Requests relaying from a local address to a peer, and returns its state.
    pub(crate) fn relay(&self, source: &Source, relay: &Relay, remote: SocketAddr) -> RelayState {
        let mut inner = self.shared().lock();
        let now = inner.now();
        let v6 = remote.is_ipv6();
        let at = match inner.relays.iter().position(|open| open.matches(source.ip, relay, v6)) {
            Some(at) => at,
            None => match RelaySocket::open(now, source, relay, v6) {
                Ok(open) => {
                    inner.relays.push(open);
                    inner.relays.len() - 1
                }
                Err(error) => return RelayState::Failed(format!("no socket at {}: {error}", source.ip)),
            },
        };
        let state = inner.relays[at].state(now, remote);
        if matches!(state, RelayState::Failed(_) | RelayState::Lost) {
            inner.relays.swap_remove(at);
        }
        inner.wake_driver();
        state
    }

    /// Relay that a path's local address belongs to, if it belongs to one that works.
    pub fn via(&self, local: SocketAddr) -> Option<Via> {
        let mut inner = self.shared().lock();
        inner.relay_of(local).filter(|relay| relay.failure().is_none()).map(|relay| relay.via.clone())
    }

    /// Has a relay asked whether it still has the address: nothing came by it.
    pub(crate) fn check_relay(&self, local: SocketAddr) {
        let mut inner = self.shared().lock();
        let now = inner.now();
        if let Some(relay) = inner.relay_of(local) {
            relay.session.check(now);
        }
        inner.wake_driver();
    }

    /// Gives addresses at relays back that no connection uses and nobody wants.
    pub(crate) fn close_idle_relays(&self, wanted: impl Fn(&Via) -> bool) {
        let mut inner = self.shared().lock();
        let used = inner.used_locals();
        let idle = |relay: &RelaySocket| {
            !wanted(&relay.via) && !relay.relayed.is_some_and(|local| used.contains(&local))
        };
        inner.close_relays(idle);
    }

    /// Waits until the counter of relay changes differs from `seen`, and updates `seen`.
    pub(crate) async fn wait_relay_change(&self, seen: &mut u64) {
        poll_fn(|cx| {
            let mut inner = self.shared().lock();
            if inner.relay_changes != *seen {
                *seen = inner.relay_changes;
                return Poll::Ready(());
            }
            if !inner.relay_wakers.iter().any(|other| other.will_wake(cx.waker())) {
                inner.relay_wakers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}
