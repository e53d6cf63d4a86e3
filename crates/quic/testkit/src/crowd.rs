//! Many connections between two endpoints without a network: each has carried something once, and since then nothing.

use crate::tls;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use vmcc_transport::crypto::ClientTls;
use vmcc_transport::{Config, Dir, Ecn, Endpoint, Event, Handle, Retry, Route, Server};
use vmcc_units::time::{Span, Time};

/// Bytes that each carries there and back before it falls silent: several windows, so that every buffer has been in use.
const SAID: usize = 100_000;
/// One-way delay of a datagram.
const DELAY: Span = Span::from_ms(1);

/// Many idle connections between two endpoints.
pub struct Crowd {
    now: Time,
    ends: [Option<Endpoint>; 2],
    under_way: VecDeque<(Time, usize, Route, Vec<u8>)>,
    out: Vec<u8>,
    /// One for all, with what it remembers for later connections.
    tls: Arc<ClientTls>,
    config: Arc<Config>,
    clients: Vec<Handle>,
    /// Nothing carried is kept by the test itself.
    buffer: Vec<u8>,
}

impl Crowd {
    /// Two endpoints for at most `most` connections.
    pub fn new(most: usize) -> Crowd {
        let config = Arc::new(Config { idle_timeout: Span::ZERO, ..Config::default() });
        let (tls, retry) = (tls::server(), Retry::Above(64));
        let server = Server { tls, config: config.clone(), retry, max_connections: most };
        Crowd {
            now: Time::ZERO + Span::from_secs(1),
            ends: [Some(Endpoint::new(None, [1; 32])), Some(Endpoint::new(Some(server), [2; 32]))],
            under_way: VecDeque::new(),
            out: Vec::new(),
            tls: tls::client(),
            config,
            clients: Vec::new(),
            buffer: vec![0; SAID],
        }
    }

    fn end(&mut self, end: usize) -> &mut Endpoint {
        self.ends[end].as_mut().expect("it is there until it is dropped")
    }

    /// Opens one more, which carries a stream there and back, and lets it fall silent.
    pub fn open(&mut self) {
        // Another port for each, as clients of their own have.
        let port = 1024 + (self.clients.len() % 60_000) as u16;
        let route = Route {
            local: SocketAddr::from(([10, 0, 0, 1], port)),
            remote: SocketAddr::from(([10, 0, 0, 2], 443)),
        };
        let (now, tls, config) = (self.now, self.tls.clone(), self.config.clone());
        let client = self.end(0).connect(now, tls, config, "localhost", route, Vec::new());
        let client = client.expect("the name is one");
        self.clients.push(client);
        self.until(|end, _, event| end == 0 && *event == Event::Connected);
        self.talk(self.clients.len() - 1);
        // Timers of the handshake and of the last acknowledgments.
        self.run(Span::from_secs(2));
    }

    /// Has one of them carry a stream there and back.
    pub fn talk(&mut self, client: usize) {
        let client = self.clients[client];
        let data = vec![7; SAID];
        let connection = self.end(0).connection(client).expect("it is open");
        let stream = connection.open_stream(Dir::Bi).expect("streams are free");
        assert_eq!(connection.write(stream, &data), Ok(SAID));
        connection.finish(stream).expect("it is open");
        let mut server = None;
        let mut back = 0;
        while back < SAID {
            self.step(&mut |end, handle, event| match event {
                Event::StreamOpened { stream: new } if end == 1 && *new == stream => server = Some(handle),
                _ => {}
            });
            if server.is_some_and(|server| self.echo(server, stream)) {
                server = None;
            }
            back += self.read(0, client, stream);
        }
    }

    fn read(&mut self, end: usize, handle: Handle, stream: u64) -> usize {
        let mut buffer = std::mem::take(&mut self.buffer);
        let connection = self.end(end).connection(handle).expect("it is open");
        let mut total = 0;
        while let Ok(Some(len @ 1..)) = connection.read(stream, &mut buffer) {
            assert!(buffer[..len].iter().all(|&byte| byte == 7));
            total += len;
        }
        self.buffer = buffer;
        total
    }

    /// Gives back what has come; whether that was all.
    fn echo(&mut self, server: Handle, stream: u64) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let connection = self.end(1).connection(server).expect("it is open");
        let done = loop {
            match connection.read(stream, &mut buffer).expect("it is open") {
                Some(0) => break false,
                Some(len) => assert_eq!(connection.write(stream, &buffer[..len]), Ok(len)),
                None => {
                    connection.finish(stream).expect("it is open");
                    break true;
                }
            }
        };
        self.buffer = buffer;
        done
    }

    fn until(&mut self, mut wanted: impl FnMut(usize, Handle, &Event) -> bool) {
        let mut found = false;
        while !found {
            self.step(&mut |end, handle, event| found |= wanted(end, handle, event));
        }
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end && self.next().is_some_and(|next| next <= end) {
            self.step(&mut |_, _, _| {});
        }
        self.now = end;
    }

    fn next(&self) -> Option<Time> {
        let timers = self.ends.iter().flatten().filter_map(Endpoint::poll_timeout);
        timers.chain(self.under_way.front().map(|packet| packet.0)).min()
    }

    fn step(&mut self, told: &mut dyn FnMut(usize, Handle, &Event)) {
        for end in 0..2 {
            let mut out = std::mem::take(&mut self.out);
            let (now, arrival) = (self.now, self.now + DELAY);
            while let Some(transmit) = self.end(end).poll_transmit(now, &mut out) {
                let route = Route { local: transmit.route.remote, remote: transmit.route.local };
                let datagrams = out.chunks(transmit.segment);
                self.under_way.extend(datagrams.map(|bytes| (arrival, 1 - end, route, bytes.to_vec())));
            }
            self.out = out;
            while let Some((handle, event)) = self.end(end).poll_event() {
                told(end, handle, &event);
            }
        }
        self.now = self.next().map_or(self.now, |next| next.max(self.now));
        let now = self.now;
        while self.under_way.front().is_some_and(|packet| packet.0 <= now) {
            let Some((_, end, route, mut bytes)) = self.under_way.pop_front() else { break };
            self.end(end).handle_datagram(now, route, Ecn::NotEct, &mut bytes);
        }
        (0..2).for_each(|end| self.end(end).handle_timeout(now));
    }

    /// Drops one end, and says how many bytes that gave back to the C library, which has those of the cryptography too.
    pub fn weigh(&mut self, end: usize) -> usize {
        let before = allocated();
        drop(self.ends[end].take());
        before - allocated()
    }
}

/// Bytes that this process has of the C library.
fn allocated() -> usize {
    // SAFETY: it has no arguments, and only reads what the library keeps.
    let info = unsafe { nix::libc::mallinfo2() };
    info.uordblks + info.hblkhd
}
