//! An endpoint of ours over real sockets, in a thread that looks after nothing else.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};
use vmcc_transport::{Ecn, Endpoint, Event, Handle, Route, StreamError};
use vmcc_units::time::{Span, Time};

/// Longest wait of a test.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Udp {
    pub(crate) endpoint: Endpoint,
    sockets: Vec<(SocketAddr, UdpSocket)>,
    begin: Instant,
    pub(crate) events: Vec<(Handle, Event)>,
    /// Nothing leaves from or comes to this one any more.
    pub(crate) cut: Option<SocketAddr>,
    buffer: Vec<u8>,
}

impl Udp {
    /// With a socket on each of these addresses, at a port of its own.
    pub(crate) fn new(endpoint: Endpoint, addresses: &[&str]) -> Udp {
        let bind = |address: &&str| {
            let socket = UdpSocket::bind((*address, 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            (socket.local_addr().unwrap(), socket)
        };
        let sockets = addresses.iter().map(bind).collect();
        Udp {
            endpoint,
            sockets,
            begin: Instant::now(),
            events: Vec::new(),
            cut: None,
            buffer: vec![0; 65_536],
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time::ZERO + Span::from_us(1_000_000 + self.begin.elapsed().as_micros() as u64)
    }

    pub(crate) fn address(&self, i: usize) -> SocketAddr {
        self.sockets[i].0
    }

    /// Receives and sends what there is; sleeps a little if there was nothing.
    fn turn(&mut self) {
        let mut busy = false;
        for i in 0..self.sockets.len() {
            let local = self.sockets[i].0;
            while let Ok((len, remote)) = self.sockets[i].1.recv_from(&mut self.buffer) {
                busy = true;
                if self.cut != Some(local) {
                    let (now, route) = (self.now(), Route { local, remote });
                    self.endpoint.handle_datagram(now, route, Ecn::NotEct, &mut self.buffer[..len]);
                }
            }
        }
        let now = self.now();
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        let mut out = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut out) {
            busy = true;
            self.send(&transmit.route, &out, transmit.segment);
        }
        while let Some(event) = self.endpoint.poll_event() {
            self.events.push(event);
        }
        if !busy {
            thread::sleep(Duration::from_micros(200));
        }
    }

    fn send(&self, route: &Route, out: &[u8], segment: usize) {
        if self.cut == Some(route.local) {
            return;
        }
        let (_, socket) = self.sockets.iter().find(|(local, _)| *local == route.local).unwrap();
        for datagram in out.chunks(segment) {
            while let Err(error) = socket.send_to(datagram, route.remote) {
                if error.kind() != io::ErrorKind::WouldBlock {
                    break; // as if it were lost
                }
            }
        }
    }

    /// Goes on until `done` gives something.
    pub(crate) fn until<T>(&mut self, mut done: impl FnMut(&mut Udp) -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(found) = done(self) {
                return found;
            }
            assert!(begin.elapsed() < TIMEOUT, "nothing came of it: {:?}", self.events.last());
            self.turn();
        }
    }

    /// The connection that was established first.
    pub(crate) fn connected(&mut self) -> Handle {
        self.until(|udp| udp.events.iter().find(|(_, event)| *event == Event::Connected).map(|(h, _)| *h))
    }

    /// Writes all of `data` and the end to a stream, and reads what comes back to its end.
    pub(crate) fn exchange(
        &mut self,
        handle: Handle,
        stream: u64,
        data: &[u8],
        mut watch: impl FnMut(&mut Udp, usize),
    ) -> Vec<u8> {
        let (mut written, mut finished, mut answer) = (0, false, Vec::new());
        let mut buffer = vec![0; 256 << 10];
        self.until(|udp| {
            let connection = udp.endpoint.connection(handle).expect("it goes on");
            if written < data.len() {
                written += connection.write(stream, &data[written..]).unwrap();
            } else if !finished {
                connection.finish(stream).unwrap();
                finished = true;
            }
            match connection.read(stream, &mut buffer) {
                Ok(Some(len)) => answer.extend_from_slice(&buffer[..len]),
                Ok(None) => return Some(()),
                Err(error) => panic!("{error}"),
            }
            watch(udp, answer.len());
            None
        });
        answer
    }

    /// Gives everything that comes on the peer's first stream back, until the peer is gone.
    pub(crate) fn echo(&mut self, mut watch: impl FnMut(&mut Udp)) {
        let handle = self.connected();
        let mut buffer = vec![0; 256 << 10];
        let mut pending: Vec<u8> = Vec::new();
        let (mut ended, mut finished) = (false, false);
        self.until(|udp| {
            if udp.events.iter().any(|(_, event)| matches!(event, Event::Closed(_))) {
                return Some(());
            }
            watch(udp);
            let connection = udp.endpoint.connection(handle)?;
            if pending.len() < 1 << 20 && !ended {
                match connection.read(0, &mut buffer) {
                    Ok(Some(len)) => pending.extend_from_slice(&buffer[..len]),
                    Ok(None) => ended = true,
                    Err(StreamError::Unknown) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            if !pending.is_empty() {
                let len = connection.write(0, &pending).unwrap();
                pending.drain(..len);
            } else if ended && !finished {
                connection.finish(0).unwrap();
                finished = true;
            }
            None
        });
    }

    /// Closes and lets the last packets leave.
    pub(crate) fn close(mut self, handle: Handle) {
        let now = self.now();
        if let Some(connection) = self.endpoint.connection(handle) {
            connection.close(now, 0, b"done");
        }
        self.turn();
    }
}
