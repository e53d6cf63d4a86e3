//! Two sessions over carriers with a rate, a delay, and TCP's queue and window at each end.

use std::collections::VecDeque;
use vmcc_tcp::{
    Acceptor, Binding, CarrierId, CarrierInfo, Config, Dir, Event, Greeting, Refusal, Secrets, Session,
    refusal,
};
use vmcc_units::time::{Span, Time};

pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;
const MSS: usize = 1448;

/// One direction of a carrier: TCP's unsent bytes, a link, and bytes that TCP has not acknowledged.
pub(crate) struct Pipe {
    pub(crate) rate_mbps: u64,
    pub(crate) delay: Span,
    pub(crate) cwnd_pkt: u32,
    notsent_lowat: u64,
    unsent: VecDeque<u8>,
    flying: VecDeque<(Time, Vec<u8>)>,
    unacked: VecDeque<(Time, usize)>,
    busy_until: Time,
    last_ack: Time,
    /// TCP receives acknowledgments of later data although nothing is delivered.
    pub(crate) hears_acks: bool,
    /// Nothing moves; what is under way is sent again once the cut ends.
    cut: bool,
}

impl Pipe {
    fn new(rate_mbps: u64, delay: Span) -> Pipe {
        let bdp = (rate_mbps * 1_000_000 / 8) as f64 * delay.secs_f64() * 2.0;
        Pipe {
            rate_mbps,
            delay,
            // Half a BDP of queue at the bottleneck, as loss-based TCP has on average.
            cwnd_pkt: ((bdp * 1.5) as u32 / MSS as u32).max(10),
            notsent_lowat: Config::default().notsent_lowat(),
            unsent: VecDeque::new(),
            flying: VecDeque::new(),
            unacked: VecDeque::new(),
            busy_until: Time::ZERO,
            last_ack: Time::ZERO,
            hears_acks: false,
            cut: false,
        }
    }

    fn in_flight(&self) -> usize {
        self.unacked.iter().map(|(_, len)| len).sum()
    }

    fn info(&self, now: Time) -> CarrierInfo {
        CarrierInfo {
            mss: MSS as u32,
            cwnd_pkt: self.cwnd_pkt,
            srtt: self.delay.times(2) + Span::from_us(MSS as u64 * 8 / self.rate_mbps),
            rttvar: Span::from_ms(1),
            in_flight: self.in_flight() as u64,
            queued: self.unsent.len() as u64,
            blocked: self.unsent.len() as u64 > self.notsent_lowat,
            since_ack: if self.hears_acks { Span::ZERO } else { now.since(self.last_ack) },
            timeouts: 0,
            slow_start: false,
        }
    }

    fn may_send(&self) -> bool {
        !self.cut && !self.unsent.is_empty() && !self.is_full()
    }

    fn is_full(&self) -> bool {
        self.in_flight() >= self.cwnd_pkt as usize * MSS
    }

    /// TCP would send at once what it is given.
    pub(crate) fn is_hungry(&self) -> bool {
        self.unsent.is_empty() && !self.is_full()
    }

    fn next_event(&self) -> Option<Time> {
        let send = self.may_send().then_some(self.busy_until);
        let first = |queue: Option<Time>| queue.filter(|_| !self.cut);
        let arrival = first(self.flying.front().map(|(at, _)| *at));
        let ack = first(self.unacked.front().map(|(at, _)| *at));
        [send, arrival, ack].into_iter().flatten().min()
    }

    /// Moves what is due; the bytes that arrive.
    fn step(&mut self, now: Time) -> Vec<u8> {
        if self.cut {
            return Vec::new();
        }
        while self.unacked.front().is_some_and(|(at, _)| *at <= now) {
            self.last_ack = self.unacked.pop_front().map_or(now, |(at, _)| at);
        }
        while self.may_send() && self.busy_until <= now {
            let len = self.unsent.len().min(MSS);
            let segment: Vec<u8> = self.unsent.drain(..len).collect();
            self.busy_until = now.max(self.busy_until) + Span::from_ns(len as u64 * 8000 / self.rate_mbps);
            let arrival = self.busy_until + self.delay;
            self.flying.push_back((arrival, segment));
            self.unacked.push_back((arrival + self.delay, len));
        }
        let mut arrived = Vec::new();
        while self.flying.front().is_some_and(|(at, _)| *at <= now) {
            arrived.extend(self.flying.pop_front().unwrap().1);
        }
        arrived
    }

    fn set_cut(&mut self, cut: bool) {
        self.cut = cut;
        for (_, segment) in self.flying.drain(..).rev() {
            segment.into_iter().rev().for_each(|byte| self.unsent.push_front(byte));
        }
        self.unacked.clear();
    }
}

/// A connection, and which carrier of each session it is.
pub(crate) struct Link {
    pub(crate) pipes: [Pipe; 2],
    pub(crate) ids: [Option<CarrierId>; 2],
    acceptor: Option<Acceptor>,
    pub(crate) closed: bool,
    pub(crate) binding: [Binding; 2],
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) ends: [Option<Session>; 2],
    pub(crate) links: Vec<Link>,
    pub(crate) config: Config,
    pub(crate) events: [Vec<(Time, Event)>; 2],
    /// Sizes of the pieces in which bytes are delivered, in turn.
    pub(crate) chunks: Vec<usize>,
    next_chunk: usize,
    pub(crate) refusals: Vec<Refusal>,
    /// The clock stops here, whatever happens next.
    horizon: Time,
}

impl World {
    pub(crate) fn new(config: Config) -> World {
        let now = Time::ZERO + Span::from_secs(1);
        let client = Session::connect(now, config.clone(), Secrets([1; 32]));
        World {
            now,
            ends: [Some(client), None],
            links: Vec::new(),
            config,
            events: [Vec::new(), Vec::new()],
            chunks: vec![usize::MAX],
            next_chunk: 0,
            refusals: Vec::new(),
            horizon: Time::from_ps(u64::MAX),
        }
    }

    /// A connected session over one carrier per (rate, one-way delay).
    pub(crate) fn connected(config: Config, carriers: &[(u64, u64)]) -> World {
        let mut world = World::new(config);
        for &(rate_mbps, delay_ms) in carriers {
            world.dial(rate_mbps, delay_ms).unwrap();
            let opened = world.run_until(|world| world.links.last().unwrap().is_open(world));
            assert!(opened, "the carrier opens");
        }
        world
    }

    pub(crate) fn end(&mut self, end: usize) -> &mut Session {
        self.ends[end].as_mut().expect("the session exists")
    }

    /// Adds a connection of the client; its number in `links`.
    pub(crate) fn dial(&mut self, rate_mbps: u64, delay_ms: u64) -> Option<usize> {
        let mut secret = [7; 32];
        secret[0] = self.links.len() as u8;
        let binding = Binding(secret);
        let now = self.now;
        let id = self.end(CLIENT).add_carrier(now, binding)?;
        Some(self.add_link(rate_mbps, delay_ms, Some(id), binding))
    }

    /// Adds a connection that belongs to no session yet.
    pub(crate) fn add_link(
        &mut self,
        rate_mbps: u64,
        delay_ms: u64,
        id: Option<CarrierId>,
        binding: Binding,
    ) -> usize {
        let pipe = || Pipe::new(rate_mbps, Span::from_ms(delay_ms));
        let link = Link {
            pipes: [pipe(), pipe()],
            ids: [id, None],
            acceptor: Some(Acceptor::default()),
            closed: false,
            binding: [binding; 2],
        };
        self.links.push(link);
        self.links.len() - 1
    }

    /// Puts bytes into a connection as if its client had written them.
    pub(crate) fn inject(&mut self, link: usize, bytes: &[u8]) {
        self.links[link].pipes[CLIENT].unsent.extend(bytes);
    }

    /// Cuts both directions without a word, or mends them.
    pub(crate) fn set_cut(&mut self, link: usize, cut: bool) {
        self.links[link].pipes.iter_mut().for_each(|pipe| pipe.set_cut(cut));
    }

    /// Ends a connection as a reset does: both ends see it, and what was under way is lost.
    pub(crate) fn kill(&mut self, link: usize) {
        self.links[link].closed = true;
        for end in [CLIENT, SERVER] {
            let now = self.now;
            if let (Some(id), Some(session)) = (self.links[link].ids[end], self.ends[end].as_mut()) {
                session.carrier_closed(now, id, "reset by the test");
            }
        }
    }

    fn chunk(&mut self) -> usize {
        self.next_chunk += 1;
        self.chunks[self.next_chunk % self.chunks.len()].max(1)
    }

    fn deliver(&mut self, link: usize, to: usize, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.links[link].closed {
            let (mut head, tail) = rest.split_at(self.chunk().min(rest.len()));
            rest = tail;
            if to == SERVER && self.links[link].ids[SERVER].is_none() {
                self.greet(link, &mut head);
            }
            let now = self.now;
            if let (Some(id), Some(session)) = (self.links[link].ids[to], self.ends[to].as_mut()) {
                session.handle_bytes(now, id, head);
            }
        }
    }

    fn greet(&mut self, link: usize, input: &mut &[u8]) {
        let (now, binding) = (self.now, self.links[link].binding[SERVER]);
        let Some(acceptor) = &mut self.links[link].acceptor else { return };
        let greeting = match acceptor.read(input) {
            Ok(Some(greeting)) => greeting,
            Ok(None) => return,
            Err(_) => return self.links[link].closed = true,
        };
        self.links[link].acceptor = None;
        let joined = match greeting {
            Greeting::Hello(hello) => {
                let config = self.config.clone();
                self.ends[SERVER] = Some(Session::accept(now, config, Secrets([2; 32]), &hello, binding));
                Ok(0)
            }
            Greeting::Join(join) => match &mut self.ends[SERVER] {
                Some(session) => session.join(now, &join, binding),
                None => Err(Refusal::UnknownSession),
            },
        };
        match joined {
            Ok(id) => self.links[link].ids[SERVER] = Some(id),
            Err(error) => {
                self.refusals.push(error);
                self.links[link].pipes[SERVER].unsent.extend(refusal(error));
            }
        }
    }

    /// Lets both ends send and collects their events.
    pub(crate) fn pump(&mut self) {
        for end in [CLIENT, SERVER] {
            let Some(session) = self.ends[end].as_mut() else { continue };
            for link in self.links.iter().filter(|link| !link.closed) {
                if let Some(id) = link.ids[end] {
                    session.set_info(self.now, id, link.pipes[end].info(self.now));
                }
            }
            let mut out = Vec::new();
            let mut records = 0;
            while let Some(id) = session.poll_transmit(self.now, &mut out) {
                let link = self.links.iter_mut().find(|link| link.ids[end] == Some(id) && !link.closed);
                if let Some(link) = link {
                    link.pipes[end].unsent.extend(&out);
                }
                out.clear();
                records += 1;
                assert!(records < 100_000, "records without end");
            }
            while let Some(event) = session.poll_event() {
                if let Event::CarrierClosed { carrier, .. } = &event {
                    let link = self.links.iter_mut().find(|link| link.ids[end] == Some(*carrier));
                    // The connection is aborted, which the other end sees only if the path is not cut.
                    if let Some(link) = link
                        && !link.pipes[0].cut
                    {
                        link.closed = true;
                    }
                }
                self.events[end].push((self.now, event));
            }
        }
        for i in 0..self.links.len() {
            if self.links[i].closed {
                self.kill_quietly(i);
            }
        }
    }

    fn kill_quietly(&mut self, link: usize) {
        for end in [CLIENT, SERVER] {
            let now = self.now;
            if let (Some(id), Some(session)) = (self.links[link].ids[end], self.ends[end].as_mut()) {
                session.carrier_closed(now, id, "closed");
            }
        }
    }

    /// One event; false if nothing will ever happen again.
    pub(crate) fn step(&mut self) -> bool {
        self.pump();
        let links = self.links.iter().filter(|link| !link.closed);
        let moves = links.flat_map(|link| &link.pipes).filter_map(Pipe::next_event).min();
        let timers = self.ends.iter().flatten().filter_map(Session::poll_timeout).min();
        let horizon = Some(self.horizon).filter(|&at| at < Time::from_ps(u64::MAX));
        let Some(next) = [moves, timers, horizon].into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        for end in self.ends.iter_mut().flatten() {
            if end.poll_timeout().is_some_and(|at| at <= self.now) {
                end.handle_timeout(self.now);
            }
        }
        for link in 0..self.links.len() {
            for from in [CLIENT, SERVER] {
                if !self.links[link].closed {
                    let bytes = self.links[link].pipes[from].step(self.now);
                    self.deliver(link, 1 - from, &bytes);
                }
            }
        }
        true
    }

    /// Runs until a condition holds, for at most a minute of simulated time; returns true if it does.
    pub(crate) fn run_until(&mut self, condition: impl Fn(&World) -> bool) -> bool {
        let end = self.now + Span::from_secs(60);
        while self.now < end {
            self.pump();
            if condition(self) {
                return true;
            }
            if !self.step() {
                return condition(self);
            }
        }
        false
    }

    /// One event, or the passage of time to `limit`.
    pub(crate) fn step_to(&mut self, limit: Time) {
        self.horizon = limit;
        self.step();
        self.horizon = Time::from_ps(u64::MAX);
    }

    pub(crate) fn run_for(&mut self, span: Span) {
        self.run_to(self.now + span, |_| {});
    }

    /// Runs to an instant; `work` is done at each step.
    pub(crate) fn run_to(&mut self, end: Time, mut work: impl FnMut(&mut World)) {
        self.horizon = end;
        while self.now < end {
            work(self);
            self.step();
        }
        self.horizon = Time::from_ps(u64::MAX);
    }

    pub(crate) fn saw(&self, end: usize, wanted: impl Fn(&Event) -> bool) -> Option<Time> {
        self.events[end].iter().find(|(_, event)| wanted(event)).map(|(at, _)| *at)
    }
}

impl Link {
    /// Both ends have opened it.
    pub(crate) fn is_open(&self, world: &World) -> bool {
        [CLIENT, SERVER].into_iter().all(|end| {
            let session = world.ends[end].as_ref();
            let stats =
                session.and_then(|session| session.carriers().find(|own| Some(own.carrier) == self.ids[end]));
            stats.is_some_and(|own| own.open)
        })
    }
}

/// Byte `i` of every test stream.
pub(crate) fn byte(i: u64) -> u8 {
    (i ^ i >> 8 ^ i >> 16).wrapping_mul(31) as u8
}

/// A transfer of `size` bytes from one end to the other, written and read as room and data allow.
pub(crate) struct Transfer {
    pub(crate) from: usize,
    pub(crate) size: u64,
    pub(crate) stream: u64,
    written: u64,
    pub(crate) read: u64,
    pub(crate) complete: bool,
    /// Times at which bytes became readable, with the offset after them.
    pub(crate) arrivals: Vec<(Time, u64)>,
}

impl Transfer {
    pub(crate) fn new(world: &mut World, from: usize, size: u64) -> Transfer {
        let stream = world.end(from).open_stream(Dir::Uni).expect("a stream is allowed");
        Transfer { from, size, stream, written: 0, read: 0, complete: false, arrivals: Vec::new() }
    }

    /// Writes and reads what can be at once.
    pub(crate) fn pump(&mut self, world: &mut World) {
        let sender = world.ends[self.from].as_mut().expect("a sender");
        while self.written < self.size {
            let len = (self.size - self.written).min(10_000);
            let data: Vec<u8> = (self.written..self.written + len).map(byte).collect();
            match sender.write(self.stream, &data) {
                Ok(0) | Err(_) => break,
                Ok(len) => self.written += len as u64,
            }
            if self.written == self.size {
                sender.finish(self.stream).unwrap();
            }
        }
        let mut buffer = [0; 20_000];
        let Some(receiver) = world.ends[1 - self.from].as_mut() else { return };
        loop {
            match receiver.read(self.stream, &mut buffer) {
                Ok(Some(0)) | Err(_) => break,
                Ok(Some(len)) => {
                    for (i, &got) in buffer[..len].iter().enumerate() {
                        assert_eq!(got, byte(self.read + i as u64), "byte {}", self.read + i as u64);
                    }
                    self.read += len as u64;
                    self.arrivals.push((world.now, self.read));
                }
                Ok(None) => {
                    self.complete = true;
                    break;
                }
            }
        }
    }

    /// Runs for a while.
    pub(crate) fn run_for(&mut self, world: &mut World, span: Span) {
        world.run_to(world.now + span, |world| self.pump(world));
    }

    /// Runs to the end of the transfer; returns true if it was reached within a minute of simulated time.
    pub(crate) fn run(&mut self, world: &mut World) -> bool {
        self.run_until(world, |transfer, _| transfer.complete)
    }

    pub(crate) fn run_until(&mut self, world: &mut World, done: impl Fn(&Transfer, &World) -> bool) -> bool {
        let end = world.now + Span::from_secs(60);
        while world.now < end {
            self.pump(world);
            if done(self, world) {
                return true;
            }
            if !world.step() {
                return false;
            }
        }
        false
    }

    /// The longest time without a readable byte.
    pub(crate) fn longest_stall(&self) -> Span {
        let times = self.arrivals.iter().map(|(at, _)| *at);
        times.clone().zip(times.skip(1)).map(|(a, b)| b.since(a)).max().unwrap_or(Span::ZERO)
    }
}
