//! A sequence of operations on a connection, the network's healing afterwards, and what must then hold.

use crate::end::{Closed, End};
use crate::network::{ADDRESSES, Network, address};
use crate::noq::Noq;
use crate::own::Own;
use crate::sequence::{Operation, Sequence};
use crate::streams::{Streams, unfinished};
use std::env;
use vmcc_transport::{Dir, Ecn, Route};
use vmcc_units::time::{Span, Time};

/// Idle timeout of both ends.
pub(crate) const IDLE_TIMEOUT: Span = Span::from_secs(30);
/// Interval of the client's keep-alive packets, by which a server learns of a rebinding.
pub(crate) const KEEP_ALIVE: Span = Span::from_secs(5);
/// Bound of the time that streams need to end once the network works.
const HEALING_TIMEOUT: Span = Span::from_secs(120);
/// Time over which a connection without work is watched, and datagrams that it may send in it.
const QUIET: (Span, u64) = (Span::from_secs(20), 300);
/// Time after which the NAT forgets addresses once more while streams have not ended.
const REBIND_INTERVAL: Span = Span::from_secs(20);
/// One-way delay of a network that works.
const DELAY: Span = Span::from_ms(1);

struct Session {
    now: Time,
    network: Network,
    ends: [Box<dyn End>; 2],
    /// Index of noq's end.
    noq: usize,
    streams: [Streams; 2],
    /// Time at which a datagram last came.
    heard: [Time; 2],
    /// Ends whose applications have closed the connection.
    asked: [bool; 2],
    /// An application has abandoned a path.
    abandoned: bool,
    /// The NAT has forgotten an address.
    rebound: bool,
    closed: [Option<Closed>; 2],
    verbose: bool,
}

/// Property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Own(String),
    /// A fault of noq's that the evidence lists, or one of which it cannot be told apart.
    Peer(String),
}

impl From<String> for Fault {
    fn from(cause: String) -> Fault {
        Fault::Own(cause)
    }
}

/// Runs a sequence.
///
/// # Errors
/// A property does not hold.
pub(crate) fn run(sequence: &Sequence) -> Result<(), Fault> {
    let setup = &sequence.setup;
    let now = Time::ZERO + Span::from_secs(1);
    let (own, noq): (Box<dyn End>, Box<dyn End>) =
        (Box::new(Own::new(setup, now)), Box::new(Noq::new(setup, now)));
    let mut session = Session {
        now,
        network: Network::new(),
        ends: if setup.own == 0 { [own, noq] } else { [noq, own] },
        noq: 1 - setup.own,
        streams: Default::default(),
        heard: [now; 2],
        asked: [false; 2],
        abandoned: false,
        rebound: false,
        closed: [None, None],
        verbose: env::var_os("VMCC_PEER_SEED").is_some(),
    };
    if setup.connected {
        session.connect()?;
    }
    for &operation in &sequence.operations {
        session.log(&format_args!("{operation:?}"));
        session.apply(operation)?;
    }
    session.heal()?;
    session.end()
}

impl Session {
    fn log(&self, what: &dyn std::fmt::Debug) {
        if self.verbose {
            println!("{:.6} {what:?}", self.now.secs_f64());
        }
    }

    fn connect(&mut self) -> Result<(), Fault> {
        let end = self.now + IDLE_TIMEOUT;
        while !self.ends.iter().all(|end| end.is_connected()) {
            self.exchange()?;
            self.skip_to_timer();
            if self.now > end || self.is_over() {
                return Err(format!("no handshake: {:?}", self.closed).into());
            }
        }
        // HANDSHAKE_DONE, connection ids.
        self.exchange()
    }

    fn is_over(&self) -> bool {
        self.closed.iter().any(Option::is_some)
    }

    /// An end receives, handles its timers and sends.
    fn drive(&mut self, at: usize) -> Result<(), Fault> {
        let (end, now) = (&mut self.ends[at], self.now);
        for datagram in std::mem::take(&mut self.network.inbound[at]) {
            if !datagram.damaged {
                self.heard[at] = now;
            }
            end.receive(now, datagram);
        }
        if end.timeout().is_some_and(|timeout| timeout <= now) {
            end.handle_timeout(now);
        }
        for datagram in end.transmit(now) {
            if self.verbose {
                println!(
                    "{:.6} end {at} sends {} bytes by {:?}",
                    now.secs_f64(),
                    datagram.bytes.len(),
                    datagram.route
                );
            }
            self.network.send(at, datagram);
        }
        self.streams[at].accept(&mut **end);
        for data in end.datagrams() {
            if data.iter().any(|&byte| usize::from(byte) != data.len() % 251) {
                return Err(format!("a datagram of {} bytes is damaged", data.len()).into());
            }
        }
        self.check_closed(at)
    }

    /// Ends of the connection that nobody wanted are faults.
    fn check_closed(&mut self, at: usize) -> Result<(), Fault> {
        let (None, Some(closed)) = (&self.closed[at], self.ends[at].closed()) else { return Ok(()) };
        self.log(&format_args!("end {at}: {closed:?}"));
        let peer_is_over = self.closed[1 - at].is_some() || self.asked[1 - at];
        let right = match &closed {
            Closed::Locally => self.asked[at],
            Closed::ByPeer => self.asked[1 - at],
            Closed::TimedOut => peer_is_over || self.now >= self.heard[at] + IDLE_TIMEOUT,
            Closed::StatelessReset => peer_is_over,
            // Each end may abandon the path that the other one keeps.
            Closed::NoPath => self.abandoned,
            Closed::Error(_) => false,
        };
        if !right {
            let cause = format!("end {at} is over at {:?}: {closed:?}", self.now);
            // Each end keeps a path that the other one has abandoned, and cannot be told because the client has moved.
            let cut_off = closed == Closed::TimedOut && self.abandoned && self.rebound;
            return Err(if cut_off { Fault::Peer(cause) } else { Fault::Own(cause) });
        }
        self.closed[at] = Some(closed);
        Ok(())
    }

    fn skip_to_timer(&mut self) {
        if let Some(next) = self.ends.iter().filter_map(|end| end.timeout()).min() {
            self.now = self.now.max(next);
        }
    }

    fn apply(&mut self, operation: Operation) -> Result<(), Fault> {
        let now = self.now;
        let Session { network, ends, streams, .. } = self;
        match operation {
            Operation::Drive(at) => return self.drive(at),
            Operation::ToTimer => self.skip_to_timer(),
            Operation::PassMs(ms) => self.now += Span::from_ms(ms),
            Operation::DropAll(at) => network.inbound[at].clear(),
            Operation::DropOne(at) => drop(network.inbound[at].pop_front()),
            Operation::Reorder(at) if !network.inbound[at].is_empty() => network.inbound[at].rotate_left(1),
            Operation::Reorder(_) => {}
            Operation::Duplicate(at) => {
                let first = network.inbound[at].front().cloned();
                network.inbound[at].extend(first);
            }
            Operation::Damage(at, random) => {
                if let Some(datagram) = network.inbound[at].front_mut() {
                    datagram.damaged = true;
                    let byte = random as usize % datagram.bytes.len();
                    datagram.bytes[byte] ^= 1 << (random >> 29);
                }
            }
            Operation::Mark(at) => {
                let capable = network.inbound[at].iter_mut().filter(|datagram| datagram.ecn != Ecn::NotEct);
                capable.for_each(|datagram| datagram.ecn = Ecn::Ce);
            }
            Operation::UpdateKeys(at) => ends[at].update_keys(now),
            // Before both ends are connected a server need not follow (RFC 9000 section 9).
            Operation::Rebind(index) if ends.iter().all(|end| end.is_connected()) => {
                network.rebind(index);
                self.rebound = true;
            }
            Operation::Rebind(_) => {}
            Operation::OpenPath { client, server, backup } => {
                let route = Route { local: address(0, client), remote: address(1, server) };
                ends[0].open_path(now, route, backup);
            }
            Operation::AbandonPath(at, index) => {
                if let Some(index) = index.checked_rem(ends[at].paths()) {
                    ends[at].abandon_path(now, index);
                    self.abandoned = true;
                }
            }
            Operation::SetBackup(at, index, backup) => {
                if let Some(index) = index.checked_rem(ends[at].paths()) {
                    ends[at].set_backup(index, backup);
                }
            }
            Operation::OpenStream(at, both) => {
                streams[at].open(&mut *ends[at], if both { Dir::Bi } else { Dir::Uni });
            }
            Operation::Write(at, index, len) => streams[at].write(&mut *ends[at], at, index, len),
            Operation::Finish(at, index) => streams[at].finish(&mut *ends[at], index),
            Operation::Reset(at, index) => streams[at].reset(&mut *ends[at], index),
            Operation::Stop(at, index) => streams[at].stop(&mut *ends[at], index),
            Operation::Read(at, index) => streams[at].read(&mut *ends[at], at, index)?,
            Operation::Datagram(at, len) => ends[at].send_datagram(now, &vec![(len % 251) as u8; len]),
            Operation::Close(at) => {
                self.asked[at] = true;
                ends[at].close(now);
            }
        }
        Ok(())
    }

    /// Hands everything over until nobody has anything to say.
    fn exchange(&mut self) -> Result<(), Fault> {
        for _ in 0..2000 {
            let before = self.network.sent;
            for at in 0..2 {
                self.drive(at)?;
                self.streams[at].read_all(&mut *self.ends[at], at)?;
            }
            if before == self.network.sent && self.network.inbound.iter().all(|queue| queue.is_empty()) {
                return Ok(());
            }
            self.now += DELAY;
        }
        Err(format!("both ends send without an end at {:?}", self.now).into())
    }

    /// From now on nothing is lost: streams end, and then both ends become quiet.
    fn heal(&mut self) -> Result<(), Fault> {
        self.log(&"the network heals");
        let end = self.now + HEALING_TIMEOUT;
        let mut rebind_at = self.now + REBIND_INTERVAL;
        loop {
            // noq's server sends to an address without a limit only if it has validated it the first time, see the evidence.
            if self.rebound && self.now >= rebind_at {
                (0..ADDRESSES).for_each(|index| self.network.rebind(index));
                rebind_at = self.now + REBIND_INTERVAL;
            }
            for at in 0..2 {
                self.streams[at].finish_all(&mut *self.ends[at]);
            }
            self.exchange()?;
            if self.is_over() {
                return Ok(());
            }
            let [client, server] = &self.streams;
            let open = [unfinished(client, server), unfinished(server, client)];
            let Some(from) = open.iter().position(Option::is_some) else { break };
            if self.now > end {
                let cause = format!("at {:?} {open:?}", self.now);
                // noq does not always send again what was under way on a path that it has abandoned.
                let of_peer = self.abandoned && from == self.noq && open[1 - from].is_none();
                return Err(if of_peer { Fault::Peer(cause) } else { Fault::Own(cause) });
            }
            self.skip_to_timer();
        }
        let (span, most) = QUIET;
        let (until, before) = (self.now + span, self.network.sent);
        while self.now < until && !self.is_over() {
            self.exchange()?;
            self.skip_to_timer();
        }
        let sent = self.network.sent - before;
        if sent > most { Err(format!("{sent} datagrams of two ends without work").into()) } else { Ok(()) }
    }

    /// The client closes the connection, and both ends forget it.
    fn end(&mut self) -> Result<(), Fault> {
        let end = self.now + HEALING_TIMEOUT;
        if self.closed[0].is_none() && !self.asked[0] {
            self.asked[0] = true;
            self.ends[0].close(self.now);
        }
        while !self.ends.iter_mut().all(|end| end.is_gone()) {
            self.exchange()?;
            if self.now > end {
                return Err(format!("not forgotten at {:?}: {:?}", self.now, self.closed).into());
            }
            self.skip_to_timer();
        }
        Ok(())
    }
}
