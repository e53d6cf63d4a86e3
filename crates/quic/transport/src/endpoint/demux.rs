//! Demultiplexing: datagrams to connections by connection id, timers, and turns to send.

use crate::config::Config;
use crate::connection::{
    Arrival, Connection, ConnectionInit, EndpointEvent, LOCAL_CID_LEN, Transmit, random_cid,
};
use crate::crypto::{Random, Secret, Side, Tls, TlsError};
use crate::event::{Event, PathId};
use crate::paths::{Route, mtu};
use crate::recovery::received::Ecn;
use crate::wire::cid::ConnectionId;
use crate::wire::header::{self, Header, Kind};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use vmcc_units::time::Time;

/// A connection of an endpoint; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(u64);

impl Handle {
    /// No other connection of its endpoint has it, nor will have.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Condition under which a client must prove its address before any state is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Handshakes in progress above which it applies.
    Above(usize),
    /// Always.
    Always,
}

/// A server's side of an endpoint.
#[derive(Clone)]
pub struct Server {
    /// Its handshakes.
    pub tls: Arc<dyn Tls>,
    /// Settings of its connections.
    pub config: Arc<Config>,
    /// Condition under which clients must prove their address.
    pub retry: Retry,
    /// Connections at a time; more are not accepted.
    pub max_connections: usize,
}

/// Meaning of a connection id in packets that come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    handle: Handle,
    /// None for the id that a client has chosen before it knew its server's.
    path: Option<PathId>,
}

pub(super) struct Entry {
    pub(super) connection: Connection,
    /// Its timer, as it is in the list of timers.
    timer: Option<Time>,
    /// In the queue of those that may have something to send.
    queued: bool,
    pub(super) handshaking: bool,
}

/// Connections that share sockets.
pub struct Endpoint {
    pub(super) server: Option<Server>,
    pub(super) random: Random,
    pub(super) reset_secret: Secret,
    pub(super) token_secret: Secret,
    /// Boxed: half of the places in a tree are empty.
    pub(super) entries: BTreeMap<Handle, Box<Entry>>,
    next: u64,
    ids: HashMap<ConnectionId, Target>,
    pub(super) reset_tokens: HashMap<[u8; 16], Handle>,
    timers: BTreeSet<(Time, Handle)>,
    ready: VecDeque<Handle>,
    /// Lent to the application since they were last looked at.
    touched: Vec<Handle>,
    events: VecDeque<(Handle, Event)>,
    pub(super) replies: VecDeque<(Route, Vec<u8>)>,
    pub(super) handshakes: usize,
}

impl Endpoint {
    /// An endpoint for connections to others, and, with `server`, from others. The seed is to come from the operating system, or, in a
    /// simulation, from its seed: everything random follows from it.
    pub fn new(server: Option<Server>, seed: [u8; 32]) -> Endpoint {
        let mut random = Random::new(&seed);
        let (reset_secret, token_secret) = (random.secret(), random.secret());
        Endpoint {
            server,
            random,
            reset_secret,
            token_secret,
            entries: BTreeMap::new(),
            next: 0,
            ids: HashMap::new(),
            reset_tokens: HashMap::new(),
            timers: BTreeSet::new(),
            ready: VecDeque::new(),
            touched: Vec::new(),
            events: VecDeque::new(),
            replies: VecDeque::new(),
            handshakes: 0,
        }
    }

    /// With the same key a server that was started again can tell clients of connections that it has lost.
    pub fn set_reset_key(&mut self, key: &[u8]) {
        self.reset_secret = Secret::new(key);
    }

    pub(super) fn new_id(&mut self) -> ConnectionId {
        random_cid(&mut self.random)
    }

    /// Connects to a server; `token` is one that it gave before, or empty.
    ///
    /// # Errors
    /// The name is none, or the TLS configuration does not suit.
    pub fn connect(
        &mut self,
        now: Time,
        tls: Arc<dyn Tls>,
        config: Arc<Config>,
        server_name: &str,
        route: Route,
        token: Vec<u8>,
    ) -> Result<Handle, TlsError> {
        let (own_cid, original_dcid) = (self.new_id(), self.new_id());
        // With a longer one no Initial packet would have room for anything else.
        let token = Some(token).filter(|token| token.len() <= 600).unwrap_or_default();
        let begin = ConnectionInit {
            side: Side::Client,
            config,
            random: self.random.split(),
            route,
            now,
            own_cid,
            original_dcid,
            retry_scid: None,
            initial_dcid: original_dcid,
            peer_cid: None,
            token,
            token_to_give: Vec::new(),
            validated: true,
            reset_secret: self.reset_secret.clone(),
        };
        let connection = Connection::new(begin, tls, server_name)?;
        Ok(self.insert(connection, &[(own_cid, Some(0))]))
    }

    pub(super) fn insert(
        &mut self,
        connection: Connection,
        ids: &[(ConnectionId, Option<PathId>)],
    ) -> Handle {
        let handle = Handle(self.next);
        self.next += 1;
        self.ids.extend(ids.iter().map(|&(id, path)| (id, Target { handle, path })));
        let entry = Entry { connection, timer: None, queued: false, handshaking: true };
        self.entries.insert(handle, Box::new(entry));
        self.handshakes += 1;
        self.settle(handle);
        handle
    }

    /// A datagram came. It is decrypted in place.
    pub fn handle_datagram(&mut self, now: Time, route: Route, ecn: Ecn, data: &mut [u8]) {
        let Ok(header) = header::decode(data, LOCAL_CID_LEN) else {
            self.on_unknown_version(route, data);
            return;
        };
        if let Some(&Target { handle, path }) = self.ids.get(&header.dcid) {
            let arrival = Arrival { now, route, ecn, path, len: data.len() };
            self.deliver(handle, arrival, header, data);
            return;
        }
        match header.kind {
            Kind::Short => self.on_unknown_cid(now, route, &header, data),
            Kind::Initial if data.len() >= usize::from(mtu::BASE) => {
                self.on_initial(now, route, ecn, header, data)
            }
            _ => {}
        }
    }

    fn deliver(&mut self, handle: Handle, arrival: Arrival, header: Header, data: &mut [u8]) {
        if let Some(entry) = self.entries.get_mut(&handle) {
            entry.connection.handle_datagram(arrival, header, data);
            // Many come at once: what follows from them is seen to when all are in.
            self.touch(handle);
        }
    }

    fn touch(&mut self, handle: Handle) {
        if self.touched.last() != Some(&handle) {
            self.touched.push(handle);
        }
    }

    /// The system refuses to send along a route: paths there are suspected at once, those that are not validated yet are given up.
    pub fn handle_unreachable(&mut self, now: Time, route: Route) {
        let handles: Vec<Handle> = self.entries.keys().copied().collect();
        for handle in handles {
            let entry = self.entries.get_mut(&handle);
            if entry.is_some_and(|entry| entry.connection.handle_unreachable(now, route)) {
                self.settle(handle);
            }
        }
    }

    /// A packet that was sent along a route came back, because nobody listens at the port there (ICMP). `packet` is how it begins; whether
    /// it is one of a connection's, which a forged report cannot know.
    pub fn handle_port_unreachable(&mut self, now: Time, route: Route, packet: &[u8]) -> bool {
        let entries = self.entries.iter();
        let found = entries.filter(|(_, entry)| entry.connection.may_have_sent(route, packet));
        let Some(handle) = found.map(|(handle, _)| *handle).next() else { return false };
        if let Some(entry) = self.entries.get_mut(&handle) {
            entry.connection.handle_port_unreachable(now, route);
            self.settle(handle);
        }
        true
    }

    /// Takes what a connection has for the endpoint, and sees to its timer and its turn.
    pub(super) fn settle(&mut self, handle: Handle) {
        let Some(entry) = self.entries.get_mut(&handle) else { return };
        while let Some(event) = entry.connection.poll_endpoint_event() {
            match event {
                EndpointEvent::NewLocal(id, path) => {
                    self.ids.insert(id, Target { handle, path: Some(path) });
                }
                EndpointEvent::RetiredLocal(id) => {
                    self.ids.remove(&id);
                }
                EndpointEvent::ResetToken(token) => {
                    self.reset_tokens.insert(token, handle);
                }
                EndpointEvent::ForgetToken(token) => {
                    self.reset_tokens.remove(&token);
                }
            }
        }
        while let Some(event) = entry.connection.poll_event() {
            if entry.handshaking && matches!(event, Event::Connected | Event::Closed(_)) {
                entry.handshaking = false;
                self.handshakes -= 1;
            }
            self.events.push_back((handle, event));
        }
        if !entry.queued {
            entry.queued = true;
            self.ready.push_back(handle);
        }
        self.set_timer(handle);
    }

    fn set_timer(&mut self, handle: Handle) {
        let Some(entry) = self.entries.get_mut(&handle) else { return };
        let timer = entry.connection.poll_timeout();
        if timer != entry.timer {
            if let Some(old) = entry.timer {
                self.timers.remove(&(old, handle));
            }
            if let Some(new) = timer {
                self.timers.insert((new, handle));
            }
            entry.timer = timer;
        }
        if entry.connection.is_drained() && entry.connection.error().is_some() {
            self.forget(handle);
        }
    }

    pub(super) fn forget(&mut self, handle: Handle) {
        let Some(entry) = self.entries.remove(&handle) else { return };
        if let Some(timer) = entry.timer {
            self.timers.remove(&(timer, handle));
        }
        for id in entry.connection.all_ids() {
            self.ids.remove(id);
        }
        for token in entry.connection.reset_tokens() {
            self.reset_tokens.remove(token);
        }
    }

    fn settle_touched(&mut self) {
        while let Some(handle) = self.touched.pop() {
            self.settle(handle);
        }
    }

    /// Writes what is to leave next into `out`, which is emptied first; none if there is nothing now. To be called until then after
    /// anything else was called.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        self.settle_touched();
        if let Some((route, reply)) = self.replies.pop_front() {
            *out = reply;
            return Some(Transmit { route, ect: false, segment: out.len(), len: out.len() });
        }
        while let Some(&handle) = self.ready.front() {
            let Some(entry) = self.entries.get_mut(&handle) else {
                self.ready.pop_front();
                continue;
            };
            if let Some(transmit) = entry.connection.poll_transmit(now, out) {
                self.ready.rotate_left(1);
                return Some(transmit);
            }
            entry.queued = false;
            self.ready.pop_front();
            self.set_timer(handle);
        }
        None
    }

    /// Time of the next [`handle_timeout`](Self::handle_timeout), if nothing else is called before. To be called after
    /// [`poll_transmit`](Self::poll_transmit) had nothing.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.settle_touched();
        let due: Vec<_> = self.timers.range(..=(now, Handle(u64::MAX))).map(|(_, handle)| *handle).collect();
        for handle in due {
            if let Some(entry) = self.entries.get_mut(&handle) {
                entry.connection.handle_timeout(now);
                self.settle(handle);
            }
        }
    }

    /// The next thing that happened, and to whom.
    pub fn poll_event(&mut self) -> Option<(Handle, Event)> {
        self.settle_touched();
        self.events.pop_front()
    }

    /// A connection, until it is over and its `Closed` event was followed by its last timeout.
    pub fn connection(&mut self, handle: Handle) -> Option<&mut Connection> {
        if self.entries.contains_key(&handle) {
            self.touch(handle);
        }
        self.entries.get_mut(&handle).map(|entry| &mut entry.connection)
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if every connection has ended, and nothing is left to send.
    pub fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.replies.is_empty()
    }
}
