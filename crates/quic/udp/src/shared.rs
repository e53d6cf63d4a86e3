//! State shared by the driver, the handles and the streams.

use crate::address::sources;
use crate::event::PathEvent;
use crate::relay::RelaySocket;
use crate::socket::{Socket, is_loopback};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;
use vmcc_transport::{ConnectionError, Endpoint as Engine, Event, Handle, Route, StreamError};
use vmcc_units::time::{Span, Time};

/// Interval at which a client polls for ICMP errors.
const ICMP_POLL_INTERVAL: Span = Span::from_ms(100);
/// Duration of polling at the beginning of a connection, and after an ICMP error.
const ICMP_POLL_DURATION: Span = Span::from_secs(2);

/// Path events that nobody has read; older ones are dropped.
const MAX_EVENTS: usize = 256;

/// Interval at which a refused route is reported again: each packet to it is refused, and connections are many.
const REFUSAL_REPEAT_INTERVAL: Span = Span::from_ms(50);

pub(crate) struct Shared(Mutex<Inner>);

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    pub(crate) sockets: Vec<Socket>,
    pub(crate) relays: Vec<RelaySocket>,
    /// Counter of relay changes, and the tasks that wait for the next.
    pub(crate) relay_changes: u64,
    pub(crate) relay_wakers: Vec<Waker>,
    pub(crate) connections: HashMap<Handle, State>,
    /// Connections of peers that nobody has accepted yet.
    pub(crate) incoming: VecDeque<Handle>,
    /// Tasks that wait for `incoming`, and for the next round.
    pub(crate) accept_wakers: Vec<Waker>,
    pub(crate) idle_wakers: Vec<Waker>,
    pub(crate) driver: Option<Waker>,
    /// Times that the driver had nothing left to do.
    pub(crate) rounds: u64,
    /// No handle is left.
    pub(crate) abandoned: bool,
    /// Refusals of the system to send, with their times.
    pub(crate) refusals: HashMap<Route, (Time, String)>,
    pub(crate) is_client: bool,
    /// Time of the last poll for ICMP errors, and the end of polling without an occasion.
    last_icmp_poll: Time,
    icmp_poll_until: Time,
    begin: Instant,
}

/// Events of a connection for the application.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) connected: bool,
    pub(crate) error: Option<ConnectionError>,
    pub(crate) readers: HashMap<u64, Waker>,
    pub(crate) writers: HashMap<u64, Waker>,
    /// Streams that are written to here.
    pub(crate) sending: HashMap<u64, Sending>,
    /// Streams that the peer has opened.
    pub(crate) opened: VecDeque<u64>,
    pub(crate) events: VecDeque<PathEvent>,
    /// Tasks that wait for anything else.
    pub(crate) waiting: Vec<Waker>,
}

/// State of a stream's written data.
#[derive(Default)]
pub(crate) struct Sending {
    pub(crate) end: Option<SendingEnd>,
    waiting: Vec<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendingEnd {
    /// The peer has every byte.
    Acked,
    /// The peer wants no more.
    Stopped,
}

impl Shared {
    pub(crate) fn new(engine: Engine, is_client: bool) -> Arc<Shared> {
        Arc::new(Shared(Mutex::new(Inner {
            engine,
            sockets: Vec::new(),
            relays: Vec::new(),
            relay_changes: 0,
            relay_wakers: Vec::new(),
            connections: HashMap::new(),
            incoming: VecDeque::new(),
            accept_wakers: Vec::new(),
            idle_wakers: Vec::new(),
            driver: None,
            rounds: 0,
            abandoned: false,
            refusals: HashMap::new(),
            is_client,
            last_icmp_poll: Time::ZERO,
            icmp_poll_until: Time::ZERO,
            begin: Instant::now(),
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // Who panicked has said so; what is here is whole between calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The time as the engine counts it; never its zero.
    pub(crate) fn now(&self) -> Time {
        let ns = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + Span::from_secs(1) + Span::from_ns(ns)
    }

    /// Something was done that the driver has to follow up.
    pub(crate) fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    pub(crate) fn state(&mut self, handle: Handle) -> &mut State {
        self.connections.entry(handle).or_default()
    }

    /// Hands out what the engine has to tell.
    pub(crate) fn dispatch(&mut self) {
        while let Some((handle, event)) = self.engine.poll_event() {
            let known = self.connections.contains_key(&handle);
            match event {
                Event::Connected if !known => {
                    self.state(handle).connected = true;
                    self.incoming.push_back(handle);
                    self.accept_wakers.drain(..).for_each(Waker::wake);
                }
                event if known => self.state(handle).take(event),
                _ => {}
            }
        }
    }

    /// The system refuses to send along a route.
    pub(crate) fn on_refusal(&mut self, route: Route, error: &io::Error) {
        let now = self.now();
        let told = self.refusals.get(&route).is_some_and(|(at, _)| now.since(*at) < REFUSAL_REPEAT_INTERVAL);
        if told {
            return;
        }
        self.engine.handle_unreachable(now, route);
        self.refuse(now, route, error.to_string());
    }

    /// Keeps why packets cannot be sent along a route.
    fn refuse(&mut self, now: Time, route: Route, reason: String) {
        // Bounded: unauthenticated senders could make this end send anywhere.
        if self.refusals.len() < MAX_EVENTS || self.refusals.contains_key(&route) {
            self.refusals.insert(route, (now, reason));
            // Who connects does not wait for an answer then.
            let waiting = self.connections.values_mut().filter(|state| !state.connected);
            waiting.flat_map(|state| state.waiting.drain(..)).for_each(Waker::wake);
        }
    }

    /// Polls for ICMP errors, for [`ICMP_POLL_DURATION`].
    pub(crate) fn start_icmp_polling(&mut self, now: Time) {
        self.icmp_poll_until = now + ICMP_POLL_DURATION;
    }

    /// Time of the next poll for ICMP errors, whatever else happens.
    pub(crate) fn next_icmp_poll(&self) -> Option<Time> {
        let at = self.last_icmp_poll + ICMP_POLL_INTERVAL;
        Some(at).filter(|_| self.is_client && at < self.icmp_poll_until)
    }

    /// Reports ICMP errors to connections. `late`: something was not answered in time.
    pub(crate) fn poll_icmp_errors(&mut self, now: Time, late: bool) {
        let is_due = now.since(self.last_icmp_poll) >= ICMP_POLL_INTERVAL;
        if !self.is_client || !is_due || !(late || now < self.icmp_poll_until) {
            return;
        }
        self.last_icmp_poll = now;
        let came = |socket: &Socket| {
            let local = socket.local();
            let route = move |remote| Route { local, remote };
            socket.drain_icmp_errors().into_iter().map(move |back| (route(back.remote), back.quoted))
        };
        let all: Vec<_> = self.sockets.iter().flat_map(came).collect();
        for (route, quoted) in all {
            if self.engine.handle_port_unreachable(now, route, &quoted) {
                self.start_icmp_polling(now);
                self.refuse(now, route, "nobody listens at that port (ICMP port unreachable)".to_owned());
            }
        }
    }

    /// Local addresses of paths of connections that are not over.
    pub(crate) fn used_locals(&mut self) -> HashSet<SocketAddr> {
        let Inner { engine, connections, .. } = self;
        let live = connections.iter().filter(|(_, state)| state.error.is_none()).map(|(handle, _)| *handle);
        let mut used = HashSet::new();
        for handle in live {
            let paths = engine.connection(handle).into_iter().flat_map(|connection| connection.paths());
            used.extend(paths.map(|path| path.route.local));
        }
        used
    }

    /// Index of the socket for packets from a local address.
    pub(crate) fn socket_of(&self, local: SocketAddr) -> Option<usize> {
        let exact = self.sockets.iter().position(|socket| socket.local() == local);
        exact.or_else(|| self.sockets.iter().position(|socket| socket.serves(local)))
    }

    /// Returns true if the address that a relay reports is one of ours: packets of other paths would leave by that relay.
    pub(crate) fn is_own_address(&self, at: usize) -> bool {
        let relay = &self.relays[at];
        let Some(given) = relay.reported() else { return false };
        // Which other one speaks the truth is not known: the one that said it first.
        let other = |(i, other): (usize, &RelaySocket)| i != at && other.is_at(given) && !other.is_over();
        let own = |socket: &Socket| {
            let local = socket.local();
            local == given
                || (local.ip().is_unspecified() && socket.serves(given) && is_of_this_host(given.ip()))
        };
        let new = relay.is_new();
        self.sockets.iter().any(own) || new && self.relays.iter().enumerate().any(other)
    }

    pub(crate) fn relay_of(&mut self, local: SocketAddr) -> Option<&mut RelaySocket> {
        self.relays.iter_mut().find(|relay| relay.is_at(local))
    }

    /// Gives addresses at relays back that are not to be used from now on.
    pub(crate) fn close_relays(&mut self, unwanted: impl Fn(&RelaySocket) -> bool) {
        let now = self.now();
        let mut any = false;
        let open = self.relays.iter_mut().filter(|relay| !relay.is_closing());
        for relay in open.filter(|relay| unwanted(relay)) {
            relay.close(now);
            any = true;
        }
        if any {
            self.wake_driver();
        }
    }
}

fn is_of_this_host(ip: IpAddr) -> bool {
    is_loopback(ip) || sources().is_ok_and(|own| own.iter().any(|source| source.ip == ip))
}

impl State {
    fn take(&mut self, event: Event) {
        let path_event = match event {
            Event::StreamReadable { stream } => return wake(self.readers.remove(&stream)),
            Event::StreamWritable { stream } => return wake(self.writers.remove(&stream)),
            Event::StreamFinished { stream } => return self.end_sending(stream, SendingEnd::Acked),
            Event::StreamStopped { stream, .. } => return self.end_sending(stream, SendingEnd::Stopped),
            Event::Connected => {
                self.connected = true;
                None
            }
            Event::StreamOpened { stream } => {
                self.opened.push_back(stream);
                None
            }
            Event::Closed(error) => {
                self.error = Some(error);
                self.readers.drain().chain(self.writers.drain()).for_each(|(_, waker)| waker.wake());
                self.sending.values_mut().flat_map(|sending| sending.waiting.drain(..)).for_each(Waker::wake);
                None
            }
            Event::PathOpened { path } => Some(PathEvent::Opened(path)),
            Event::PathSuspected { path } => Some(PathEvent::Suspected(path)),
            Event::PathRevived { path } => Some(PathEvent::Revived(path)),
            Event::PathsAvailable => Some(PathEvent::Available),
            Event::PathClosed { path, code } => Some(PathEvent::Closed { path, code }),
            _ => None,
        };
        if let Some(event) = path_event {
            if self.events.len() == MAX_EVENTS {
                self.events.pop_front();
            }
            self.events.push_back(event);
        }
        self.waiting.drain(..).for_each(Waker::wake);
    }

    fn end_sending(&mut self, stream: u64, end: SendingEnd) {
        if let Some(sending) = self.sending.get_mut(&stream) {
            sending.end = Some(end);
            sending.waiting.drain(..).for_each(Waker::wake);
        }
        wake(self.writers.remove(&stream));
    }

    /// Has a task woken at the next news that are not a stream's.
    pub(crate) fn wait(&mut self, waker: &Waker) {
        note(&mut self.waiting, waker);
    }
}

impl Sending {
    /// Has a task woken at the end.
    pub(crate) fn wait(&mut self, waker: &Waker) {
        note(&mut self.waiting, waker);
    }
}

fn note(waiting: &mut Vec<Waker>, waker: &Waker) {
    if !waiting.iter().any(|other| other.will_wake(waker)) {
        waiting.push(waker.clone());
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A stream's error as those of `AsyncRead` and `AsyncWrite` are.
pub(crate) fn io_error(error: StreamError) -> io::Error {
    let kind = match error {
        StreamError::Reset(_) => io::ErrorKind::ConnectionReset,
        StreamError::Stopped(_) => io::ErrorKind::BrokenPipe,
        _ => io::ErrorKind::NotConnected,
    };
    io::Error::new(kind, error)
}

/// The end of a connection as those errors are.
pub(crate) fn closed_error(error: &ConnectionError) -> io::Error {
    let kind = match error {
        ConnectionError::TimedOut => io::ErrorKind::TimedOut,
        ConnectionError::Reset | ConnectionError::PortUnreachable => io::ErrorKind::ConnectionReset,
        _ => io::ErrorKind::ConnectionAborted,
    };
    io::Error::new(kind, error.clone())
}
