//! Two endpoints and links between them, in simulated time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use vmcc_quic_testkit::tls;
use vmcc_transport::{Config, Connection, Dir, Ecn, Endpoint, Event, Handle, Retry, Route, Server};
use vmcc_units::time::{Span, Time};

/// One direction of the way between two addresses; both directions are alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) delay: Span,
    /// Bits per second; 0: no limit.
    pub(crate) rate: u64,
    /// Bytes that wait; what comes when it is full is lost.
    pub(crate) queue: u64,
    /// Marked instead of lost above this many bytes.
    pub(crate) mark_above: u64,
    /// Lost, of a thousand.
    pub(crate) loss: u64,
    /// Nothing passes from then on, and passes again.
    pub(crate) cut: (Time, Time),
    /// Of which ends nothing passes then.
    pub(crate) cut_from: [bool; 2],
    /// Larger UDP payloads are lost.
    pub(crate) mtu: usize,
    /// ECN fields are cleared.
    pub(crate) bleaches: bool,
    /// Every ECN-capable packet is marked.
    pub(crate) marks_all: bool,
    /// Lost in addition, of a thousand packets that are not ECN-capable.
    pub(crate) loss_not_ect: u64,
    /// Late, of a thousand, and by this time: later packets overtake them.
    pub(crate) late: u64,
    pub(crate) late_by: Span,
}

impl Default for Link {
    fn default() -> Link {
        Link {
            delay: Span::from_ms(5),
            rate: 0,
            queue: 1 << 30,
            mark_above: u64::MAX,
            loss: 0,
            cut: (Time::NEVER, Time::NEVER),
            cut_from: [true; 2],
            mtu: 1500,
            bleaches: false,
            marks_all: false,
            loss_not_ect: 0,
            late: 0,
            late_by: Span::ZERO,
        }
    }
}

/// A packet under way: when it arrives, its number, to which end, along what, its mark and bytes.
type Packet = Reverse<(Time, u64, usize, Route, u8, Vec<u8>)>;

pub(crate) struct Net {
    pub(crate) now: Time,
    pub(crate) ends: [Endpoint; 2],
    pub(crate) links: BTreeMap<SocketAddr, Link>,
    /// Time at which each direction of a link is free again.
    free_at: BTreeMap<(SocketAddr, usize), Time>,
    under_way: BinaryHeap<Packet>,
    number: u64,
    /// State of the generator that draws losses.
    pub(crate) random: u64,
    pub(crate) events: [Vec<(Time, Handle, Event)>; 2],
    /// Addresses that a NAT has changed: what the client sends from the first comes from the second.
    pub(crate) nat: BTreeMap<SocketAddr, SocketAddr>,
    /// Every datagram is changed by this before it is sent.
    pub(crate) tamper: Option<fn(u64, &mut Vec<u8>)>,
    pub(crate) sent: u64,
    /// The last datagram that a cut swallowed, by the client's address.
    pub(crate) swallowed: BTreeMap<SocketAddr, Vec<u8>>,
    idle_steps: u32,
}

/// The client's address number `i`; each has a link of its own to the server.
pub(crate) fn client_address(i: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, i as u8, 1], 1000 + i))
}

pub(crate) fn server_address() -> SocketAddr {
    SocketAddr::from(([10, 9, 9, 9], 443))
}

pub(crate) fn route(i: u16) -> Route {
    Route { local: client_address(i), remote: server_address() }
}

impl Net {
    pub(crate) fn new(links: &[Link], server: Config, retry: Retry) -> Net {
        let server = Server { tls: tls::server(), config: Arc::new(server), retry, max_connections: 20_000 };
        Net {
            now: Time::ZERO + Span::from_secs(1),
            ends: [Endpoint::new(None, [1; 32]), Endpoint::new(Some(server), [2; 32])],
            links: (0..).map(client_address).zip(links.iter().copied()).collect(),
            free_at: BTreeMap::new(),
            under_way: BinaryHeap::new(),
            number: 0,
            random: 88_172_645_463_325_252,
            events: Default::default(),
            nat: BTreeMap::new(),
            tamper: None,
            sent: 0,
            swallowed: BTreeMap::new(),
            idle_steps: 0,
        }
    }

    pub(crate) fn connect(&mut self, config: Config) -> Handle {
        let config = Arc::new(config);
        self.ends[0].connect(self.now, tls::client(), config, "localhost", route(0), Vec::new()).unwrap()
    }

    pub(crate) fn connection(&mut self, end: usize, handle: Handle) -> &mut Connection {
        assert!(
            self.ends[end].connection(handle).is_some(),
            "it is gone at {:?}: {:?}",
            self.now,
            self.events()
        );
        self.ends[end].connection(handle).expect("it is there")
    }

    fn chance(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1000
    }

    /// Sends what ends have to send, collects what they tell.
    fn flush(&mut self) {
        let mut out = Vec::new();
        for end in 0..2 {
            while let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut out) {
                for datagram in out.chunks(transmit.segment) {
                    self.send(end, transmit.route, transmit.ect, datagram.to_vec());
                }
            }
            while let Some((handle, event)) = self.ends[end].poll_event() {
                self.events[end].push((self.now, handle, event));
            }
        }
    }

    fn send(&mut self, from: usize, route: Route, ect: bool, mut data: Vec<u8>) {
        self.sent += 1;
        let real = |address: SocketAddr, nat: &BTreeMap<SocketAddr, SocketAddr>| {
            nat.iter().find(|(_, public)| **public == address).map_or(address, |(own, _)| *own)
        };
        let client = real(if from == 0 { route.local } else { route.remote }, &self.nat);
        let Some(&link) = self.links.get(&client) else { return };
        let public = *self.nat.get(&client).unwrap_or(&client);
        if from == 1 && route.remote != public {
            return; // the NAT has forgotten that one
        }
        let lost = self.chance() < link.loss;
        let cut = link.cut_from[from] && link.cut.0 <= self.now && self.now < link.cut.1;
        if cut && from == 0 {
            self.swallowed.insert(client, data.clone());
        }
        if lost || data.len() > link.mtu || cut {
            return;
        }
        let free = self.free_at.get(&(client, from)).copied().unwrap_or_default().max(self.now);
        let takes =
            Span::from_ps((data.len() as u64 * 8_000_000_000_000).checked_div(link.rate).unwrap_or(0));
        let waiting = free.since(self.now).ps() as u128 * u128::from(link.rate) / 8_000_000_000_000;
        let ect = ect && !link.bleaches;
        let dropped = !ect && link.loss_not_ect > 0 && self.chance() < link.loss_not_ect;
        if dropped || waiting > u128::from(link.queue) {
            return;
        }
        let mark = match ect {
            true if link.marks_all || waiting > u128::from(link.mark_above) => 3,
            true => 2,
            false => 0,
        };
        self.free_at.insert((client, from), free + takes);
        if let Some(tamper) = self.tamper {
            tamper(self.number, &mut data);
        }
        let route = match from {
            0 => Route { local: route.remote, remote: public },
            _ => Route { local: client, remote: route.local },
        };
        self.number += 1;
        let late = link.late > 0 && self.chance() < link.late;
        let delay = if late { link.delay + link.late_by } else { link.delay };
        self.under_way.push(Reverse((free + takes + delay, self.number, 1 - from, route, mark, data)));
    }

    /// Lets the next thing happen; whether there was one.
    pub(crate) fn step(&mut self) -> bool {
        self.step_until(Time::NEVER)
    }

    /// As [`step`](Self::step), but nothing that is later than `most`.
    fn step_until(&mut self, most: Time) -> bool {
        self.flush();
        let arrival = self.under_way.peek().map(|Reverse(packet)| packet.0);
        let timers = self.ends.iter().filter_map(Endpoint::poll_timeout);
        let Some(next) = timers.chain(arrival).min().filter(|&next| next <= most) else { return false };
        // A timer in the past fires without work.
        self.idle_steps = if next > self.now { 0 } else { self.idle_steps + 1 };
        assert!(self.idle_steps < 10_000, "time does not pass at {:?}: {:?}", self.now, self.events());
        self.now = self.now.max(next);
        while self.under_way.peek().is_some_and(|Reverse(packet)| packet.0 <= self.now) {
            let Some(Reverse((_, _, to, route, mark, mut data))) = self.under_way.pop() else { break };
            let ecn = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce][usize::from(mark)];
            self.ends[to].handle_datagram(self.now, route, ecn, &mut data);
        }
        self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
        self.flush();
        true
    }

    /// Goes on until `done`, at most so long.
    pub(crate) fn until(&mut self, most: Span, mut done: impl FnMut(&mut Net) -> bool) {
        let end = self.now + most;
        while !done(self) {
            assert!(self.now <= end, "not done at {:?}: {:?}", self.now, self.events());
            assert!(self.step(), "nothing is left to happen: {:?}", self.events());
        }
    }

    /// The last of what happened at each end.
    fn events(&self) -> [&[(Time, Handle, Event)]; 2] {
        [0, 1].map(|end| &self.events[end][self.events[end].len().saturating_sub(4)..])
    }

    pub(crate) fn run_for(&mut self, span: Span) {
        let end = self.now + span;
        while self.step_until(end) {}
        self.now = end;
    }

    pub(crate) fn happened(&self, end: usize, event: &Event) -> Option<Time> {
        self.events[end].iter().find(|(_, _, own)| own == event).map(|(at, _, _)| *at)
    }

    /// Waits for the handshake; the handle of the server's end.
    pub(crate) fn handshake(&mut self, client: Handle) -> Handle {
        self.until(Span::from_secs(20), |net| net.connection(0, client).is_confirmed());
        self.events[1].iter().rev().find(|(_, _, event)| *event == Event::Connected).unwrap().1
    }

    /// Opens the client's path number `i` and waits until it carries data.
    pub(crate) fn open_path(&mut self, client: Handle, i: u16) -> u32 {
        let mut path = None;
        self.until(Span::from_secs(10), |net| {
            let now = net.now;
            if path.is_none() {
                path = net.connection(0, client).open_path(now, route(i)).ok();
            }
            path.is_some_and(|path| net.happened(1, &Event::PathOpened { path }).is_some())
        });
        path.unwrap()
    }
}

/// Bytes of a stream that show where they belong: they repeat after a number of bytes that no packet size divides.
pub(crate) fn pattern(offset: u64, len: usize) -> Vec<u8> {
    const PERIOD: usize = 1_000_003;
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        (0..PERIOD as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
    });
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let rest = &table[(offset as usize + bytes.len()) % PERIOD..];
        bytes.extend_from_slice(&rest[..rest.len().min(len - bytes.len())]);
    }
    bytes
}

/// A transfer on one stream from one end to the other, checked byte by byte.
pub(crate) struct Transfer {
    from: (usize, Handle, u64),
    to: (usize, Handle, u64),
    written: u64,
    pub(crate) read: u64,
    total: u64,
    /// Of the total, what the application has so far.
    pub(crate) offered: u64,
    finished: bool,
    pub(crate) at_end: bool,
    /// The longest time without a byte, and when it ended.
    pub(crate) stall: Span,
    last: Time,
}

impl Transfer {
    /// From the client to the server.
    pub(crate) fn up(net: &mut Net, client: Handle, server: Handle, total: u64) -> Transfer {
        Transfer::between(net, (0, client), (1, server), total)
    }

    /// From the server to the client.
    pub(crate) fn down(net: &mut Net, client: Handle, server: Handle, total: u64) -> Transfer {
        Transfer::between(net, (1, server), (0, client), total)
    }

    fn between(net: &mut Net, from: (usize, Handle), to: (usize, Handle), total: u64) -> Transfer {
        let stream = net.connection(from.0, from.1).open_stream(Dir::Bi).expect("streams are allowed");
        Transfer {
            from: (from.0, from.1, stream),
            to: (to.0, to.1, stream),
            written: 0,
            read: 0,
            total,
            offered: total,
            finished: false,
            at_end: false,
            stall: Span::ZERO,
            last: net.now,
        }
    }

    /// Writes and reads what can be now.
    pub(crate) fn pump(&mut self, net: &mut Net) {
        let (end, handle, stream) = self.from;
        let offered = self.offered.min(self.total);
        while self.written < offered {
            let data = pattern(self.written, (offered - self.written).min(8 << 10) as usize);
            let len = net.connection(end, handle).write(stream, &data).unwrap();
            self.written += len as u64;
            if len < data.len() {
                break;
            }
        }
        if self.written == self.total && !self.finished {
            net.connection(end, handle).finish(stream).unwrap();
            self.finished = true;
        }
        self.receive(net);
    }

    fn receive(&mut self, net: &mut Net) {
        let (end, handle, stream) = self.to;
        let mut buffer = vec![0; 64 << 10];
        loop {
            match net.connection(end, handle).read(stream, &mut buffer) {
                Ok(Some(0)) | Err(vmcc_transport::StreamError::Unknown) => return,
                Ok(Some(len)) => {
                    assert_eq!(buffer[..len], pattern(self.read, len), "at {}", self.read);
                    self.read += len as u64;
                    self.stall = self.stall.max(net.now.since(self.last));
                    self.last = net.now;
                }
                Ok(None) => {
                    assert_eq!(self.read, self.total);
                    self.at_end = true;
                    return;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.at_end
    }

    /// Goes on until `done`, at most so long.
    pub(crate) fn until(&mut self, net: &mut Net, most: Span, mut done: impl FnMut(&mut Net, &Self) -> bool) {
        net.until(most, |net| {
            self.pump(net);
            done(net, self)
        });
    }

    /// Goes on until everything is there; how long it took.
    pub(crate) fn run(&mut self, net: &mut Net, most: Span) -> Span {
        let begin = net.now;
        self.until(net, most, |_, transfer| transfer.is_done());
        net.now.since(begin)
    }
}
