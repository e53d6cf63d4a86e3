//! Cost of the engine without a network: a transfer between two endpoints in one thread, over one path or several.
//!
//! `cargo run --release --example in_memory -- [PATHS] [GIGABYTES]` prints CPU seconds of both ends together per gigabyte, encryption
//! included, and the rate that one core would reach with both.

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use vmcc_transport::crypto::{ClientTls, ServerTls};
use vmcc_transport::{Config, Dir, Ecn, Endpoint, Event, Handle, Retry, Route, Server};
use vmcc_units::time::{Span, Time};

/// One-way delay of a datagram.
const DELAY: Span = Span::from_us(100);

struct Memory {
    now: Time,
    ends: [Endpoint; 2],
    /// Arrival time, end and route of each datagram in flight.
    under_way: VecDeque<(Time, usize, Route, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    events: Vec<(usize, Handle, Event)>,
}

impl Memory {
    fn step(&mut self) {
        let mut out = Vec::new();
        for end in 0..2 {
            while let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut out) {
                let route = Route { local: transmit.route.remote, remote: transmit.route.local };
                for datagram in out.chunks(transmit.segment) {
                    let mut bytes = self.spare.pop().unwrap_or_default();
                    bytes.clear();
                    bytes.extend_from_slice(datagram);
                    self.under_way.push_back((self.now + DELAY, 1 - end, route, bytes));
                }
            }
            while let Some((handle, event)) = self.ends[end].poll_event() {
                self.events.push((end, handle, event));
            }
        }
        let timers = self.ends.iter().filter_map(Endpoint::poll_timeout);
        let next = timers.chain(self.under_way.front().map(|packet| packet.0)).min();
        self.now = self.now.max(next.unwrap_or(self.now));
        while self.under_way.front().is_some_and(|packet| packet.0 <= self.now) {
            let Some((_, end, route, mut bytes)) = self.under_way.pop_front() else { break };
            self.ends[end].handle_datagram(self.now, route, Ecn::NotEct, &mut bytes);
            self.spare.push(bytes);
        }
        self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
    }

    fn established(&self, end: usize) -> Option<Handle> {
        self.events
            .iter()
            .find(|(own, _, event)| *own == end && *event == Event::Connected)
            .map(|found| found.1)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let paths: u16 = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let gigabytes: f64 = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = [&rustls::version::TLS13];
    let server =
        rustls::ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions)?;
    let server = server.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key)?;
    let client = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&versions)?;
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let config = Arc::new(Config { max_segments: 44, ..Config::default() });
    let tls = Arc::new(ServerTls(Arc::new(server)));
    let server = Server { tls, config: config.clone(), retry: Retry::Above(10), max_connections: 1 };
    let mut memory = Memory {
        now: Time::ZERO + Span::from_secs(1),
        ends: [Endpoint::new(None, [1; 32]), Endpoint::new(Some(server), [2; 32])],
        under_way: VecDeque::new(),
        spare: Vec::new(),
        events: Vec::new(),
    };
    let local = |i: u16| SocketAddr::from(([10, 0, 0, 1], 1000 + i));
    let route = |i| Route { local: local(i), remote: SocketAddr::from(([10, 0, 0, 2], 443)) };
    let tls = Arc::new(ClientTls(Arc::new(client)));
    let client = memory.ends[0].connect(memory.now, tls, config, "localhost", route(0), Vec::new())?;
    for i in 1..paths {
        while memory.ends[0].connection(client).ok_or("closed")?.open_path(memory.now, route(i)).is_err() {
            memory.step();
        }
    }
    while memory.established(1).is_none() {
        memory.step();
    }
    let server = memory.established(1).ok_or("not established")?;
    let total = (gigabytes * 1e9) as usize;
    let stream =
        memory.ends[0].connection(client).ok_or("closed")?.open_stream(Dir::Uni).ok_or("no stream")?;
    let (data, mut buffer) = (vec![42; 1 << 20], vec![0; 1 << 20]);
    let (mut written, mut read, begin) = (0, 0, Instant::now());
    while read < total {
        let connection = memory.ends[0].connection(client).ok_or("closed")?;
        written += connection.write(stream, &data[..data.len().min(total - written)])?;
        memory.step();
        let connection = memory.ends[1].connection(server).ok_or("closed")?;
        while let Ok(Some(len @ 1..)) = connection.read(stream, &mut buffer) {
            read += len;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{paths} paths: {:.3} s per GB, {:.2} Gbit/s", seconds / gigabytes, gigabytes * 8.0 / seconds);
    Ok(())
}
