//! One end of a session: the engine, its application, and its carriers.

use std::fmt;

use super::carrier::{Carrier, Life};
use super::wire::Net;
use crate::endpoint::{Purpose, Wire};
use crate::engine::Timer;
use crate::tcp::Connections;
use crate::time::{Span, Time};
use crate::traffic::{Delivered, Writer};
use vmcc_cc::Group;
use vmcc_tcp::{Binding, CarrierId, Config, Dir, Event, Greeting, Secrets, Session, Stats, refusal};

/// Waiting time before a route is dialled again (`crates/tcp/plmt`).
const REDIAL_DELAY: Span = Span::from_ms(250);
/// Data of one write.
static CHUNK: [u8; 1 << 14] = [0; 1 << 14];
/// Bytes that wait to be sent at most, of whatever fits into the send window: schedulers see that it is much.
const MAX_UNSENT: u64 = 1 << 20;

/// Parameters of an end.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    /// The node.
    pub(super) host: u32,
    pub(super) config: Config,
    pub(super) secrets: [u8; 32],
    pub(super) stop: Time,
}

/// Application of an end: the client writes, the server reads.
#[derive(Clone, Copy, Debug)]
pub(super) enum App {
    Writes(Writer),
    Reads,
}

/// Dials of a route: one carrier at a time.
#[derive(Clone, Debug)]
struct Dials {
    /// Index of the current carrier.
    current: usize,
    /// One past the last.
    end: usize,
    /// Time of the next dial, while there is no carrier.
    again_at: Option<Time>,
}

pub(super) struct End {
    spec: Spec,
    app: App,
    /// In the table.
    index: u32,
    /// None before the server has one, and after everything has arrived.
    session: Option<Session>,
    over: bool,
    /// All dials of the first route, then those of the next.
    carriers: Vec<Carrier>,
    dials: Vec<Dials>,
    /// Windows of the carriers; none of a single one.
    pub(super) group: Option<Box<Group>>,
    stream: Option<u64>,
    pub(super) timer: Timer,
    pub(super) connected: bool,
    pub(super) delivered: Delivered,
    /// Counters of the session when it ended.
    last_stats: Stats,
    records: Vec<u8>,
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").field("spec", &self.spec).field("app", &self.app).finish_non_exhaustive()
    }
}

impl End {
    /// An end whose carriers come route by route, `per_route` of each.
    pub(super) fn new(spec: Spec, app: App, index: u32, carriers: Vec<Carrier>, per_route: usize) -> End {
        let session = matches!(app, App::Writes(_))
            .then(|| Session::connect(Time::ZERO, spec.config.clone(), Secrets(spec.secrets)));
        let starts = (0..carriers.len()).step_by(per_route.max(1));
        let dials = starts.map(|start| Dials { current: start, end: start + per_route, again_at: None });
        let dials: Vec<Dials> = dials.collect();
        End {
            spec,
            app,
            index,
            session,
            over: false,
            group: (dials.len() > 1).then(Box::default),
            dials,
            carriers,
            stream: None,
            timer: Timer::new(),
            connected: false,
            delivered: Delivered::NOTHING,
            last_stats: Stats::default(),
            records: Vec::new(),
        }
    }

    pub(super) fn host(&self) -> u32 {
        self.spec.host
    }

    fn is_client(&self) -> bool {
        matches!(self.app, App::Writes(_))
    }

    /// Counters of the session.
    pub(super) fn stats(&self) -> Stats {
        self.session.as_ref().map_or(self.last_stats, Session::stats)
    }

    /// Something has happened on a carrier's connection; `heard`: an acknowledgment has arrived.
    pub(super) fn on_tcp<W: Wire>(&mut self, net: &mut Net<'_, W>, carrier: usize, heard: bool) {
        let now = net.now();
        if heard {
            self.carriers[carrier].heard(now);
        }
        let bytes = self.carriers[carrier].read(net.tcp);
        if self.over {
            return;
        }
        if !bytes.is_empty() {
            self.receive(net, carrier, &bytes);
        }
        if let (Life::Member(id), true) =
            (self.carriers[carrier].life, self.carriers[carrier].has_timed_out(net.tcp))
            && let Some(session) = &mut self.session
        {
            session.carrier_closed(now, id, "timed out");
        }
        self.go_on(net);
    }

    /// The timer has expired.
    pub(super) fn wake<W: Wire>(&mut self, net: &mut Net<'_, W>) {
        let now = net.now();
        for route in 0..self.dials.len() {
            let dials = &mut self.dials[route];
            if dials.again_at.is_some_and(|at| at <= now) {
                dials.again_at = None;
                dials.current += 1;
                self.carriers[dials.current].dial(net);
            }
        }
        self.go_on(net);
    }

    fn receive<W: Wire>(&mut self, net: &mut Net<'_, W>, carrier: usize, bytes: &[u8]) {
        let now = net.now();
        let mut rest = bytes;
        if !self.is_client() && self.carriers[carrier].life == Life::New {
            self.accept(net, carrier, &mut rest);
        }
        if let (Life::Member(id), Some(session)) = (self.carriers[carrier].life, &mut self.session) {
            session.handle_bytes(now, id, rest);
        }
    }

    /// Reads a greeting and adds the connection to the session.
    fn accept<W: Wire>(&mut self, net: &mut Net<'_, W>, carrier: usize, rest: &mut &[u8]) {
        let now = net.now();
        let End { session, spec, carriers, .. } = self;
        let own = &mut carriers[carrier];
        let joined = match (own.acceptor.read(rest), &mut *session) {
            (Ok(None), _) => return,
            (Ok(Some(Greeting::Hello(hello))), None) => {
                let secrets = Secrets(spec.secrets);
                *session = Some(Session::accept(now, spec.config.clone(), secrets, &hello, Binding::PLAIN));
                Some(0)
            }
            (Ok(Some(Greeting::Join(join))), Some(session)) => {
                match session.join(now, &join, Binding::PLAIN) {
                    Ok(id) => Some(id),
                    Err(error) => {
                        own.write(net, &refusal(error));
                        None
                    }
                }
            }
            _ => None,
        };
        own.life = joined.map_or(Life::Ended, Life::Member);
    }

    /// Lets session and application do what they can, sends what may leave, and arms the timer.
    fn go_on<W: Wire>(&mut self, net: &mut Net<'_, W>) {
        let now = net.now();
        loop {
            self.add_carriers(net.tcp, now);
            let Some(session) = &mut self.session else { return };
            let lowat = self.spec.config.notsent_lowat();
            for carrier in &self.carriers {
                if let Life::Member(id) = carrier.life {
                    session.set_info(now, id, carrier.info(net.tcp, now, lowat));
                }
            }
            if session.poll_timeout().is_some_and(|at| at <= now) {
                session.handle_timeout(now);
            }
            self.take_events(net);
            self.use_stream(now);
            if !self.transmit(net) {
                break;
            }
        }
        if self.session.as_ref().is_some_and(Session::is_closed) {
            self.retire(net);
        } else {
            self.arm(net.wire);
        }
    }

    /// Connections of a client that are there join the session as soon as it takes them.
    fn add_carriers(&mut self, tcp: &Connections, now: Time) {
        if !self.is_client() {
            return;
        }
        let End { session: Some(session), dials, carriers, .. } = self else { return };
        for dials in dials.iter_mut() {
            let carrier = &mut carriers[dials.current];
            if carrier.life != Life::New {
                continue;
            }
            if carrier.is_connected(tcp) {
                carrier.life = session.add_carrier(now, Binding::PLAIN).map_or(Life::New, Life::Member);
            } else if carrier.has_timed_out(tcp) {
                carrier.life = Life::Ended;
                dials.again_after(now);
            }
        }
    }

    fn take_events<W: Wire>(&mut self, net: &mut Net<'_, W>) {
        let now = net.now();
        while let Some(event) = self.session.as_mut().and_then(Session::poll_event) {
            match event {
                Event::Connected => {
                    self.connected = true;
                    if let App::Writes(writer) = &mut self.app {
                        writer.begin(now);
                    }
                }
                Event::StreamOpened { stream } => self.stream = Some(stream),
                // The only one that this end opens: what it is here for is done.
                Event::StreamFinished { .. } => {
                    self.session.iter_mut().for_each(|session| session.close(0, ""));
                }
                Event::CarrierClosed { carrier, .. } => self.on_carrier_closed(net, carrier),
                _ => {}
            }
        }
    }

    fn on_carrier_closed<W: Wire>(&mut self, net: &mut Net<'_, W>, id: CarrierId) {
        let Some(index) = self.carriers.iter().position(|own| own.life == Life::Member(id)) else { return };
        self.carriers[index].life = Life::Ended;
        self.carriers[index].abort(net);
        let now = net.now();
        if self.is_client() {
            let of_route = self.dials.iter_mut().find(|dials| dials.current == index);
            of_route.into_iter().for_each(|dials| dials.again_after(now));
        }
    }

    fn use_stream(&mut self, now: Time) {
        let Some(session) = self.session.as_mut().filter(|_| self.connected) else { return };
        match &mut self.app {
            App::Writes(writer) => write(session, &mut self.stream, writer, (now, self.spec.stop)),
            App::Reads => {
                if let Some(stream) = self.stream {
                    self.delivered.read(now, |chunk| session.read(stream, chunk));
                }
            }
        }
    }

    /// Hands records to the carriers; true if there were any.
    fn transmit<W: Wire>(&mut self, net: &mut Net<'_, W>) -> bool {
        let now = net.now();
        let End { session: Some(session), carriers, records, .. } = self else { return false };
        let mut any = false;
        records.clear();
        while let Some(id) = session.poll_transmit(now, records) {
            any = true;
            if let Some(carrier) = carriers.iter().find(|own| own.life == Life::Member(id)) {
                carrier.write(net, records);
            }
            records.clear();
        }
        any
    }

    fn arm<W: Wire>(&mut self, wire: &mut W) {
        let now = wire.now();
        let write = match &self.app {
            App::Writes(writer) if self.connected => {
                let stops = (writer.is_endless() && !writer.is_done()).then_some(self.spec.stop);
                writer.wakes_at(now).into_iter().chain(stops).min()
            }
            _ => None,
        };
        let again = self.dials.iter().filter_map(|dials| dials.again_at).min();
        let timeout = self.session.as_ref().and_then(Session::poll_timeout);
        match [write, again, timeout].into_iter().flatten().filter(|&at| at != Time::NEVER).min() {
            // What is due already waits for something else than time.
            Some(at) => {
                wire.arm(&mut self.timer, Purpose::PLMT.id(self.index), at.max(now + Span::from_us(1)))
            }
            None => self.timer.cancel(),
        }
    }

    /// The session is over: its connections end once what was written has arrived.
    fn retire<W: Wire>(&mut self, net: &mut Net<'_, W>) {
        self.over = true;
        self.last_stats = self.stats();
        self.session = None;
        self.records = Vec::new();
        self.timer.cancel();
        self.carriers.iter().for_each(|carrier| carrier.end_gracefully(net));
    }
}

impl Dials {
    /// The route is dialled again, if there is a connection left.
    fn again_after(&mut self, now: Time) {
        self.again_at = (self.current + 1 < self.end).then_some(now + REDIAL_DELAY);
    }
}

fn write(session: &mut Session, stream: &mut Option<u64>, writer: &mut Writer, (now, stop): (Time, Time)) {
    if writer.is_done() {
        return;
    }
    if stream.is_none() {
        *stream = session.open_stream(Dir::Uni);
    }
    let Some(stream) = *stream else { return };
    if writer.is_endless() && now >= stop {
        writer.stop();
        // Like a program that is ended by force, it leaves behind what has been sent.
        let _ = session.truncate(stream);
        return;
    }
    while session.unsent(stream) < MAX_UNSENT {
        let most = writer.due(now).min(CHUNK.len() as u64) as usize;
        let Ok(written @ 1..) = session.write(stream, &CHUNK[..most]) else { break };
        writer.wrote(written as u64);
    }
    if writer.is_done() {
        // A stream that ended otherwise needs no end.
        let _ = session.finish(stream);
    }
}
