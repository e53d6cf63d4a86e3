//! One end of a connection: the engine, who uses it, and the routes that its datagrams take.

mod stream;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use vmcc_transport::crypto::Side;
use vmcc_transport::null_crypto::NullCrypto;
use vmcc_transport::{
    Config, Connection, Ecn, Endpoint, Event, Handle, PathClose, PathId, PathReport, Retry, Route, Server,
};

use super::HEADERS_BYTES;
use crate::endpoint::{Purpose, Wire, kind};
use crate::engine::Timer;
use crate::packet::{Packet, RouteId};
use crate::rtts::RttGroups;
use crate::time::{Span, Time};
use crate::traffic::{Delivered, Writer};
use crate::transport::MAX_REDUCTIONS;

/// The first of the addresses' bytes.
const NETWORK: u8 = 10;
const PORT: u16 = 443;

/// Parameters of an end.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    /// The node.
    pub(super) host: u32,
    /// Index of the other end in its shard.
    pub(super) to: u32,
    /// By subflow.
    pub(super) routes: Vec<RouteId>,
    pub(super) class: u8,
    pub(super) config: Arc<Config>,
    pub(super) seed: [u8; 32],
    pub(super) start: Time,
    pub(super) stop: Time,
    /// Samples are that far apart; zero: none.
    pub(super) sample_every: Span,
    /// RTT group in which the end's round trips are counted, and the time from which they are.
    pub(super) group: u32,
    pub(super) measured_from: Time,
}

/// Application of an end.
#[derive(Clone, Copy, Debug)]
pub(super) enum App {
    /// Writes into its stream.
    Sends(Writer),
    /// Reads everything.
    Reads,
}

/// Observations of a subflow, from the paths that have used it.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) opened: bool,
    /// The number of the path that was on it last.
    path: Option<PathId>,
    /// Time and kind of that path's close.
    pub(super) closed: Option<(Time, PathClose)>,
    pub(super) payload_in: u64,
    pub(super) lost_packets: u64,
    pub(super) timeouts: u64,
    /// Datagrams that arrived marked.
    pub(super) marked: u64,
    rtt_samples: u64,
    reductions: u64,
    /// The first times that its window was reduced.
    pub(super) reduced_at: Vec<Time>,
}

/// Windows and round trips of a subflow at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) subflow: usize,
    pub(super) at: Time,
    pub(super) srtt: Span,
    pub(super) cwnd_pkt: u32,
    pub(super) acked: u64,
}

pub(super) struct End {
    spec: Spec,
    app: App,
    /// In the table.
    index: u32,
    /// Until everything has arrived and both ends know.
    engine: Option<Endpoint>,
    connection: Option<Handle>,
    stream: Option<u64>,
    /// Ways that were asked for.
    asked: usize,
    pub(super) timer: Timer,
    next_sample: Time,
    pub(super) established: bool,
    pub(super) seen: Vec<Seen>,
    pub(super) samples: Vec<Sample>,
    pub(super) delivered: Delivered,
    /// Bytes that the engine sent again before they were lost.
    pub(super) reinjected_bytes: u64,
    /// Buffer for a received datagram, and for datagrams that leave together.
    buffer: Vec<u8>,
    /// A datagram that leaves: the number of its subflow, and its bytes.
    out: Vec<u8>,
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").field("spec", &self.spec).field("app", &self.app).finish_non_exhaustive()
    }
}

fn address(side: Side, subflow: usize) -> SocketAddr {
    let end = u8::from(side == Side::Server) + 1;
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(NETWORK, 0, subflow as u8, end)), PORT)
}

/// The subflow of an address.
fn subflow_of(address: SocketAddr) -> Option<usize> {
    match address.ip() {
        IpAddr::V4(ip) => Some(usize::from(ip.octets()[2])),
        IpAddr::V6(_) => None,
    }
}

fn server(config: &Arc<Config>) -> Server {
    let tls = Arc::new(NullCrypto(Side::Server));
    Server { tls, config: config.clone(), retry: Retry::Above(usize::MAX), max_connections: 1 }
}

impl End {
    pub(super) fn new(spec: Spec, app: App) -> End {
        let serves = matches!(app, App::Reads).then(|| server(&spec.config));
        End {
            engine: Some(Endpoint::new(serves, spec.seed)),
            seen: vec![Seen::default(); spec.routes.len()],
            spec,
            app,
            index: 0,
            connection: None,
            stream: None,
            asked: 1,
            timer: Timer::new(),
            next_sample: Time::ZERO,
            established: false,
            samples: Vec::new(),
            delivered: Delivered::NOTHING,
            reinjected_bytes: 0,
            buffer: Vec::new(),
            out: Vec::new(),
        }
    }

    pub(super) fn host(&self) -> u32 {
        self.spec.host
    }

    /// Route of a subflow's packets.
    pub(super) fn links(&self, subflow: usize) -> RouteId {
        self.spec.routes[subflow]
    }

    /// The subflow has other links from now on.
    pub(super) fn reroute(&mut self, subflow: usize, route: RouteId) {
        self.spec.routes[subflow] = route;
    }

    fn side(&self) -> Side {
        match self.app {
            App::Sends(_) => Side::Client,
            App::Reads => Side::Server,
        }
    }

    fn route(&self, subflow: usize) -> Route {
        let (own, other) = match self.side() {
            Side::Client => (Side::Client, Side::Server),
            Side::Server => (Side::Server, Side::Client),
        };
        Route { local: address(own, subflow), remote: address(other, subflow) }
    }

    /// Sets the index of the end and, if it is the client, arms its timer for the start of the connection.
    pub(super) fn begin<W: Wire>(&mut self, wire: &mut W, index: u32) {
        self.index = index;
        if self.side() == Side::Client {
            wire.arm(&mut self.timer, Purpose::QUIC.id(index), self.spec.start);
        }
    }

    /// The timer has expired.
    pub(super) fn wake<W: Wire>(&mut self, wire: &mut W, rtts: &mut RttGroups) {
        let now = wire.now();
        let begins = self.side() == Side::Client && self.connection.is_none() && now >= self.spec.start;
        let route = self.route(0);
        let Some(engine) = &mut self.engine else { return };
        if begins {
            let (tls, config) = (Arc::new(NullCrypto(Side::Client)), self.spec.config.clone());
            // Only a name could be refused, and this handshake reads none.
            self.connection = engine.connect(now, tls, config, "simulated", route, Vec::new()).ok();
        }
        engine.handle_timeout(now);
        self.go_on(wire, rtts);
    }

    /// A datagram has arrived.
    pub(super) fn receive<W: Wire>(
        &mut self,
        wire: &mut W,
        packet: &Packet,
        payload: &[u8],
        rtts: &mut RttGroups,
    ) {
        let Some((&subflow, datagram)) = payload.split_first() else { return };
        let subflow = usize::from(subflow);
        let ecn = match (packet.has(Packet::CE), packet.has(Packet::ECT)) {
            (true, _) => Ecn::Ce,
            (false, true) => Ecn::Ect0,
            (false, false) => Ecn::NotEct,
        };
        self.seen[subflow].marked += u64::from(ecn == Ecn::Ce);
        let route = self.route(subflow);
        let Some(engine) = &mut self.engine else { return };
        self.buffer.clear();
        self.buffer.extend_from_slice(datagram);
        engine.handle_datagram(wire.now(), route, ecn, &mut self.buffer);
        self.go_on(wire, rtts);
    }

    /// Lets the application do what it can, sends what may leave, and sees when to go on.
    fn go_on<W: Wire>(&mut self, wire: &mut W, rtts: &mut RttGroups) {
        let now = wire.now();
        while let Some((handle, event)) = self.engine.as_mut().and_then(Endpoint::poll_event) {
            self.on_event(now, handle, &event);
        }
        self.use_stream(now);
        self.ask_for_paths(now);
        self.look(now, rtts);
        self.transmit(wire);
        self.arm(wire);
        self.retire();
    }

    fn engine_of(&mut self, handle: Handle) -> Option<&mut Connection> {
        self.engine.as_mut()?.connection(handle)
    }

    /// Thousands of transfers, one after the other, need room for those under way.
    fn retire(&mut self) {
        if self.connection.is_some() && self.engine.as_ref().is_some_and(Endpoint::is_idle) {
            (self.engine, self.buffer, self.out) = (None, Vec::new(), Vec::new());
        }
    }

    fn on_event(&mut self, now: Time, handle: Handle, event: &Event) {
        match event {
            Event::Connected => {
                (self.connection, self.established) = (Some(handle), true);
                if let App::Sends(writer) = &mut self.app {
                    writer.begin(now);
                }
            }
            Event::StreamOpened { stream } => self.stream = Some(*stream),
            // The only one that this end opens: what it is here for is done.
            Event::StreamFinished { .. } => {
                self.engine_of(handle).into_iter().for_each(|connection| connection.close(now, 0, &[]));
            }
            Event::PathClosed { path, code } => {
                let seen = self.seen.iter_mut().find(|seen| seen.path == Some(*path));
                seen.into_iter().for_each(|seen| seen.closed = Some((now, PathClose::of(*code))));
            }
            _ => {}
        }
    }

    fn ask_for_paths(&mut self, now: Time) {
        while self.side() == Side::Client && self.asked < self.spec.routes.len() {
            let route = self.route(self.asked);
            let Some(connection) = self.connection.and_then(|handle| self.engine_of(handle)) else { return };
            if connection.open_path(now, route).is_err() {
                return;
            }
            self.asked += 1;
        }
    }

    /// Keeps what the engine says of its paths: of a closed one it says nothing more.
    fn look(&mut self, now: Time, rtts: &mut RttGroups) {
        let Some(handle) = self.connection else { return };
        let Some(connection) = self.engine.as_mut().and_then(|engine| engine.connection(handle)) else {
            return;
        };
        self.reinjected_bytes = connection.stats().reinjected_bytes;
        let sends = matches!(self.app, App::Sends(_));
        let samples_now = self.spec.sample_every != Span::ZERO && now >= self.next_sample;
        for path in connection.paths() {
            let Some(subflow) = subflow_of(path.route.local) else { continue };
            let Some(seen) = self.seen.get_mut(subflow) else { continue };
            if seen.note(now, &path) && sends && now >= self.spec.measured_from {
                rtts.record(self.spec.group, path.latest_rtt);
            }
            if samples_now && path.open {
                let (at, srtt, cwnd_pkt) = (now, path.srtt, path.cwnd_pkt);
                self.samples.push(Sample { subflow, at, srtt, cwnd_pkt, acked: path.rtt_samples });
            }
        }
        if samples_now {
            self.next_sample = now + self.spec.sample_every;
        }
    }

    fn transmit<W: Wire>(&mut self, wire: &mut W) {
        let now = wire.now();
        let Some(engine) = &mut self.engine else { return };
        while let Some(transmit) = engine.poll_transmit(now, &mut self.buffer) {
            let Some(subflow) = subflow_of(transmit.route.local) else { continue };
            for datagram in self.buffer.chunks(transmit.segment.max(1)) {
                self.out.clear();
                self.out.push(subflow as u8);
                self.out.extend_from_slice(datagram);
                let packet = Packet {
                    sent: now,
                    to: self.spec.to,
                    route: self.spec.routes[subflow],
                    size_bytes: HEADERS_BYTES + datagram.len() as u16,
                    flags: if transmit.ect { Packet::ECT } else { 0 },
                    class: self.spec.class,
                    kind: kind::QUIC,
                    ..Packet::default()
                };
                wire.send_with_payload(packet, &self.out);
            }
        }
    }

    fn arm<W: Wire>(&mut self, wire: &mut W) {
        let now = wire.now();
        let write = match &self.app {
            App::Sends(writer) => writer.wakes_at(now),
            App::Reads => None,
        };
        let timeout = self.engine.as_ref().and_then(Endpoint::poll_timeout);
        match [timeout, write].into_iter().flatten().min() {
            // What is due already waits for something else than time: it is asked again, but not without end.
            Some(at) => {
                let at = at.max(now + Span::from_us(1));
                wire.arm(&mut self.timer, Purpose::QUIC.id(self.index), at);
            }
            None => self.timer.cancel(),
        }
    }
}

impl Seen {
    /// Records a report of a path; true if it has a new RTT sample.
    fn note(&mut self, now: Time, path: &PathReport) -> bool {
        self.opened |= path.open;
        self.path = Some(path.id);
        self.payload_in = self.payload_in.max(path.payload_in);
        self.lost_packets = self.lost_packets.max(path.lost_packets);
        self.timeouts = self.timeouts.max(path.timeouts);
        if path.reductions != self.reductions {
            self.reductions = path.reductions;
            if self.reduced_at.len() < MAX_REDUCTIONS {
                self.reduced_at.push(now);
            }
        }
        std::mem::replace(&mut self.rtt_samples, path.rtt_samples) != path.rtt_samples
    }
}
