//! An allocation at a server, from the first request to its end.

use crate::Credentials;
use crate::failure::Failure;
use crate::message::{
    ALLOCATE, CHANNEL_BIND, CHANNEL_NUMBER, Class, DATA, DATA_INDICATION, Id, LIFETIME, Message, NONCE,
    REALM, REFRESH, REQUESTED_ADDRESS_FAMILY, REQUESTED_TRANSPORT, USERNAME, Writer, XOR_PEER_ADDRESS,
    XOR_RELAYED_ADDRESS, id_of,
};
use md5::{Digest, Md5};
use std::net::SocketAddr;
use std::ops::Range;
use vmcc_units::time::{Span, Time};

/// The first wait for an answer (RFC 8489 section 6.2.1), which is doubled each time.
const FIRST_WAIT: Span = Span::from_ms(500);
/// A request is sent so often, which takes 7.5 s.
const SENDS: u32 = 4;
/// The last one is not waited for that long.
const LAST_SENDS: u32 = 2;
/// Refusals of nonces in a row after which a server makes no sense.
const MAX_STALE: u32 = 4;
/// Permissions last 5 minutes (RFC 8656 section 9); binding a channel again renews both.
const REBIND: Span = Span::from_secs(200);
/// Bounds of the lifetime that a server grants; values beyond count as the bound.
const MIN_LIFETIME: u32 = 20;
const MAX_LIFETIME: u32 = 3600;
/// Peers of one session: as many channels are ever opened.
const MAX_PEERS: usize = 64;
/// The numbers of channels (RFC 8656 section 12).
const FIRST_CHANNEL: u16 = 0x4000;
const LAST_CHANNEL: u16 = 0x4fff;
/// Bytes that are before a datagram in a channel, which is all that a relay takes of a packet.
pub const HEADER: usize = 4;
/// Longer realms and nonces are none (RFC 8489 sections 14.9, 14.10).
const MAX_TEXT: usize = 763;
/// IANA's number of UDP, and STUN's of IPv6.
const UDP: u8 = 17;
const FAMILY_V6: u8 = 2;

/// State of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The server was asked.
    Asking,
    /// This is the address there.
    Ready(SocketAddr),
    /// It does not, and will not any more.
    Over(Failure),
}

/// State of the channel to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// The server was asked, or will be.
    Asking,
    /// It does.
    Ready,
    /// The server does not want to.
    Refused(Failure),
}

struct Peer {
    address: SocketAddr,
    channel: u16,
    state: PeerState,
    /// A known refusal: a repeated call sends the request again.
    told: bool,
    /// Time at which its channel is bound again.
    renew: Time,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Allocate,
    Refresh,
    Release,
    Bind(SocketAddr),
}

/// A request that has no answer yet.
struct Request {
    wish: Wish,
    id: Id,
    bytes: Vec<u8>,
    signed: bool,
    /// Times that its nonce was refused.
    stale: u32,
    sends: u32,
    next: Time,
}

/// Realm and nonce with which a server wants requests to be signed.
struct Realm {
    realm: Vec<u8>,
    nonce: Vec<u8>,
    key: [u8; 16],
}

/// An allocation at a server, and who is reached by it.
pub struct Session {
    credentials: Credentials,
    /// Asks for an IPv6 address.
    v6: bool,
    seed: [u8; 32],
    ids: u64,
    state: State,
    realm: Option<Realm>,
    requests: Vec<Request>,
    peers: Vec<Peer>,
    renew: Time,
    releasing: bool,
    /// The server has done something for the allocation that it gave.
    kept: bool,
    changes: u64,
}

impl Session {
    /// Asks for an address that can reach peers of IPv6, or of IPv4. `seed` is 32 bytes that nobody else knows.
    pub fn new(now: Time, credentials: Credentials, v6: bool, seed: [u8; 32]) -> Session {
        let mut session = Session {
            credentials,
            v6,
            seed,
            ids: 0,
            state: State::Asking,
            realm: None,
            requests: Vec::new(),
            peers: Vec::new(),
            renew: Time::NEVER,
            releasing: false,
            kept: false,
            changes: 0,
        };
        session.ask(now, Wish::Allocate);
        session
    }

    /// Its state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Grows whenever that, or what [`Session::peer`] says, becomes another.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The address there, as long as it has one.
    pub fn relayed(&self) -> Option<SocketAddr> {
        match self.state {
            State::Ready(address) => Some(address),
            _ => None,
        }
    }

    /// Peers that datagrams can go to.
    pub fn peers(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.peers.iter().filter(|peer| peer.state == PeerState::Ready).map(|peer| peer.address)
    }

    /// Wants to reach a peer: how that stands. Asked again, it is begun again only if it was refused, and that was told.
    pub fn peer(&mut self, now: Time, address: SocketAddr) -> PeerState {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.address == address) {
            let refused = matches!(peer.state, PeerState::Refused(_));
            if std::mem::replace(&mut peer.told, refused) && refused {
                (peer.state, peer.told) = (PeerState::Asking, false);
                self.ask(now, Wish::Bind(address));
                return PeerState::Asking;
            }
            return peer.state.clone();
        }
        if address.is_ipv6() != self.v6 {
            return PeerState::Refused(Failure::Family);
        }
        if self.peers.len() == MAX_PEERS {
            return PeerState::Refused(Failure::Peers(MAX_PEERS));
        }
        let channel = FIRST_CHANNEL + self.peers.len() as u16;
        self.peers.push(Peer { address, channel, state: PeerState::Asking, told: false, renew: Time::NEVER });
        if self.relayed().is_some() {
            self.ask(now, Wish::Bind(address));
        }
        PeerState::Asking
    }

    /// Header of a datagram of this length to a peer.
    pub fn header(&self, peer: SocketAddr, len: usize) -> Option<[u8; HEADER]> {
        self.relayed()?;
        let peer = self.peers.iter().find(|one| one.address == peer && one.state == PeerState::Ready)?;
        let (channel, len) = (peer.channel.to_be_bytes(), u16::try_from(len).ok()?.to_be_bytes());
        Some([channel[0], channel[1], len[0], len[1]])
    }

    /// Takes a datagram that came from the server: who sent what of it, if it was a peer.
    pub fn handle(&mut self, now: Time, datagram: &[u8]) -> Option<(SocketAddr, Range<usize>)> {
        if let Some((head, rest)) = datagram.split_first_chunk::<HEADER>() {
            let channel = u16::from_be_bytes([head[0], head[1]]);
            let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
            if (FIRST_CHANNEL..=LAST_CHANNEL).contains(&channel) {
                let peer = self.peers.get(usize::from(channel - FIRST_CHANNEL))?;
                return (len <= rest.len()).then_some((peer.address, HEADER..HEADER + len));
            }
        }
        let message = Message::read(datagram)?;
        match message.class {
            Class::Indication if message.method == DATA_INDICATION => {
                let from = message.address(XOR_PEER_ADDRESS)?;
                self.peers.iter().find(|peer| peer.address == from)?;
                Some((from, message.place(DATA)?))
            }
            Class::Success | Class::Error => {
                self.answered(now, message);
                None
            }
            _ => None,
        }
    }

    fn answered(&mut self, now: Time, message: Message<'_>) {
        let Some(at) = self.requests.iter().position(|request| request.id == message.id) else { return };
        if message.class == Class::Error {
            let request = self.requests.swap_remove(at);
            return self.refused(now, &request, message);
        }
        // A server that wants no signatures makes none. Where it does, who cannot sign is not the server: the true answer may come yet.
        if self.realm.as_ref().is_none_or(|realm| message.is_signed(&realm.key)) {
            let request = self.requests.swap_remove(at);
            self.granted(now, request.wish, message);
        }
    }

    fn granted(&mut self, now: Time, wish: Wish, message: Message<'_>) {
        match wish {
            Wish::Allocate => match (message.address(XOR_RELAYED_ADDRESS), message.number(LIFETIME)) {
                (Some(relayed), Some(lifetime)) if relayed.is_ipv6() == self.v6 => {
                    self.state = State::Ready(relayed);
                    self.changes += 1;
                    self.renew_after(now, lifetime);
                    if self.releasing {
                        return self.ask(now, Wish::Release);
                    }
                    for at in 0..self.peers.len() {
                        self.ask(now, Wish::Bind(self.peers[at].address));
                    }
                }
                _ => self.end(Failure::Nonsense),
            },
            Wish::Refresh => {
                self.kept = true;
                self.renew_after(now, message.number(LIFETIME).unwrap_or(0));
            }
            Wish::Release => self.end(Failure::Closed),
            Wish::Bind(address) => {
                self.kept = true;
                if let Some(peer) = self.peers.iter_mut().find(|peer| peer.address == address) {
                    peer.state = PeerState::Ready;
                    self.changes += 1;
                    peer.renew = now + REBIND;
                }
            }
        }
    }

    fn renew_after(&mut self, now: Time, lifetime: u32) {
        let lifetime = lifetime.clamp(MIN_LIFETIME, MAX_LIFETIME);
        self.renew = now + Span::from_secs(u64::from(lifetime)).div(2);
    }

    fn refused(&mut self, now: Time, request: &Request, message: Message<'_>) {
        let Some((code, reason)) = message.error() else { return self.end(Failure::Nonsense) };
        // It was not given, and is not wanted any more.
        if self.releasing && request.wish == Wish::Allocate {
            return self.end(Failure::Closed);
        }
        if code == 438 || code == 401 && !request.signed {
            return match request.stale < MAX_STALE && self.learn(message) {
                true => self.ask_again(now, request.wish, request.stale + 1),
                false => self.end(Failure::Nonsense),
            };
        }
        let peer = match request.wish {
            Wish::Bind(peer) => Some(peer),
            _ => None,
        };
        let failure = Failure::of(code, reason, self.credentials.user(), peer);
        match request.wish {
            // There is none yet that it could have forgotten: to ask for another would bring the same.
            Wish::Allocate | Wish::Bind(_) if code == 437 && !self.kept => {
                self.end(Failure::Other(code, "Allocation Mismatch".to_owned()));
            }
            // Of a peer only, not of the allocation.
            Wish::Bind(address) if code != 437 => {
                if let Some(peer) = self.peers.iter_mut().find(|peer| peer.address == address) {
                    (peer.state, peer.renew) = (PeerState::Refused(failure), Time::NEVER);
                    self.changes += 1;
                }
            }
            Wish::Release => self.end(Failure::Closed),
            _ => self.end(failure),
        }
    }

    /// Takes what requests are to be signed with from now on.
    fn learn(&mut self, message: Message<'_>) -> bool {
        let usable = |value: &&[u8]| value.len() <= MAX_TEXT;
        let realm = message.value(REALM).filter(usable).map(<[u8]>::to_vec);
        let realm = realm.or_else(|| self.realm.as_ref().map(|known| known.realm.clone()));
        let (Some(realm), Some(nonce)) = (realm, message.value(NONCE).filter(usable)) else { return false };
        let mut key = Md5::new();
        for part in [self.credentials.user.as_bytes(), b":", &realm, b":", self.credentials.secret.as_bytes()]
        {
            key.update(part);
        }
        self.realm = Some(Realm { realm, nonce: nonce.to_vec(), key: key.finalize().into() });
        true
    }

    fn end(&mut self, failure: Failure) {
        self.requests.clear();
        self.state = State::Over(failure);
        self.changes += 1;
    }

    fn ask(&mut self, now: Time, wish: Wish) {
        self.ask_again(now, wish, 0);
    }

    fn ask_again(&mut self, now: Time, wish: Wish, stale: u32) {
        if self.is_over() || self.releasing && wish != Wish::Release {
            return;
        }
        self.ids += 1;
        let id = id_of(&self.seed, self.ids);
        let request = |method| Writer::new(method, Class::Request, id);
        let writer = match wish {
            Wish::Allocate => {
                let writer = request(ALLOCATE).put(REQUESTED_TRANSPORT, &[UDP, 0, 0, 0]);
                // IPv4 is what servers take without it, and old ones do not know it.
                if self.v6 { writer.put(REQUESTED_ADDRESS_FAMILY, &[FAMILY_V6, 0, 0, 0]) } else { writer }
            }
            Wish::Refresh => request(REFRESH),
            Wish::Release => request(REFRESH).put(LIFETIME, &[0; 4]),
            Wish::Bind(address) => {
                let peer = self.peers.iter().find(|peer| peer.address == address);
                let channel = peer.map_or(FIRST_CHANNEL, |peer| peer.channel).to_be_bytes();
                let writer = request(CHANNEL_BIND).put(CHANNEL_NUMBER, &[channel[0], channel[1], 0, 0]);
                writer.put_address(XOR_PEER_ADDRESS, address)
            }
        };
        let signed = self.realm.is_some();
        let writer = match &self.realm {
            Some(realm) => {
                let writer = writer.put(USERNAME, self.credentials.user.as_bytes());
                writer.put(REALM, &realm.realm).put(NONCE, &realm.nonce).sign(&realm.key)
            }
            None => writer,
        };
        self.requests.push(Request { wish, id, bytes: writer.finish(), signed, stale, sends: 0, next: now });
    }

    /// Asks the server at once whether it still has the allocation: nothing has come by it.
    pub fn check(&mut self, now: Time) {
        let asks = self.requests.iter().any(|request| request.wish == Wish::Refresh);
        if self.relayed().is_some() && !asks {
            self.renew = now;
        }
    }

    /// Gives the address back. It is over once the server says so, or says nothing for a second and a half. An address that the server is
    /// about to give, because it was asked for with a password, is waited for as long, and given back then.
    pub fn close(&mut self, now: Time) {
        if self.is_over() || self.releasing {
            return;
        }
        let ready = self.relayed().is_some();
        self.requests.retain(|request| !ready && request.signed && request.sends > 0);
        self.releasing = true;
        if ready {
            self.ask(now, Wish::Release);
        } else if let Some(request) = self.requests.first_mut() {
            (request.sends, request.next) = (1, now + FIRST_WAIT);
        } else {
            self.end(Failure::Closed);
        }
    }

    /// The address that the server says it has given is somebody else's: it is over.
    pub fn reject(&mut self) {
        if let State::Ready(address) = self.state {
            self.end(Failure::Taken(address));
        }
    }

    /// Returns true if there is nothing to wait for any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    /// The next datagram for the server, if there is one to send now.
    pub fn poll_transmit(&mut self, now: Time) -> Option<&[u8]> {
        self.renew_due(now);
        let at = self.requests.iter().position(|request| request.next <= now)?;
        let most = if self.releasing { LAST_SENDS } else { SENDS };
        if self.requests[at].sends >= most {
            // One that stays silent does so to everything.
            self.end(if self.releasing { Failure::Closed } else { Failure::Silent });
            return None;
        }
        let request = &mut self.requests[at];
        request.next = now + FIRST_WAIT.times(1 << request.sends);
        request.sends += 1;
        Some(&request.bytes)
    }

    fn renew_due(&mut self, now: Time) {
        if self.relayed().is_none() || self.releasing {
            return;
        }
        if self.renew <= now {
            self.renew = Time::NEVER;
            self.ask(now, Wish::Refresh);
        }
        for at in 0..self.peers.len() {
            if self.peers[at].renew <= now {
                self.peers[at].renew = Time::NEVER;
                self.ask(now, Wish::Bind(self.peers[at].address));
            }
        }
    }

    /// Latest time for the next [`Session::poll_transmit`].
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.is_over() {
            return None;
        }
        let renewals = self.peers.iter().map(|peer| peer.renew).chain([self.renew]);
        let renewals = renewals.filter(|at| *at != Time::NEVER && !self.releasing);
        renewals.chain(self.requests.iter().map(|request| request.next)).min()
    }
}

#[cfg(test)]
mod tests;
