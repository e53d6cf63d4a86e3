//! This engine as an end.

use crate::end::{APPLICATION_ERROR, Closed, End, Ending, NO_VIABLE_PATH};
use crate::network::{Datagram, address};
use crate::sequence::Setup;
use crate::session::{IDLE_TIMEOUT, KEEP_ALIVE};
use std::sync::Arc;
use vmcc_quic_testkit::tls;
use vmcc_transport::{
    Config, Connection, ConnectionError, Dir, Ecn, Endpoint, Event, Handle, Retry, Route, Server, StreamError,
};
use vmcc_units::time::{Span, Time};

/// Error code of resets.
const CODE: u64 = 7;

pub(crate) struct Own {
    endpoint: Endpoint,
    /// The server has none before the handshake is complete.
    handle: Option<Handle>,
    connected: bool,
    closed: Option<Closed>,
    accepted: Vec<u64>,
}

fn config(setup: &Setup) -> Config {
    let config = Config {
        max_paths: if setup.multipath { 4 } else { 1 },
        idle_timeout: IDLE_TIMEOUT,
        keep_alive: if setup.own == 0 { KEEP_ALIVE } else { Span::ZERO },
        ..Config::default()
    };
    if !setup.small_windows {
        return config;
    }
    Config {
        stream_window: 5_000,
        connection_window: 12_000,
        send_window: 20_000,
        max_streams_bidi: 3,
        ..config
    }
}

impl Own {
    pub(crate) fn new(setup: &Setup, now: Time) -> Own {
        let config = Arc::new(config(setup));
        let retry = if setup.retry { Retry::Always } else { Retry::Above(100) };
        let server = (setup.own == 1).then(|| Server {
            tls: tls::server(),
            config: config.clone(),
            retry,
            max_connections: 100,
        });
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&setup.seed.to_be_bytes());
        let mut endpoint = Endpoint::new(server, seed);
        let handle = (setup.own == 0).then(|| {
            let route = Route { local: address(0, 0), remote: address(1, 0) };
            endpoint.connect(now, tls::client(), config, "localhost", route, Vec::new()).unwrap()
        });
        Own { endpoint, handle, connected: false, closed: None, accepted: Vec::new() }
    }

    fn connection(&mut self) -> Option<&mut Connection> {
        self.endpoint.connection(self.handle?)
    }

    fn poll(&mut self) {
        while let Some((handle, event)) = self.endpoint.poll_event() {
            if *self.handle.get_or_insert(handle) != handle {
                continue; // of a duplicate of the client's first packet
            }
            match event {
                Event::Connected => self.connected = true,
                Event::StreamOpened { stream } => self.accepted.push(stream),
                Event::Closed(error) => self.closed = Some(reason(error)),
                _ => {}
            }
        }
    }
}

fn reason(error: ConnectionError) -> Closed {
    match error {
        ConnectionError::LocallyClosed => Closed::Locally,
        ConnectionError::ApplicationClosed { .. } => Closed::ByPeer,
        ConnectionError::PeerClosed(error) if error.code == APPLICATION_ERROR => Closed::ByPeer,
        ConnectionError::PeerClosed(error) | ConnectionError::Transport(error)
            if error.code == NO_VIABLE_PATH =>
        {
            Closed::NoPath
        }
        ConnectionError::TimedOut => Closed::TimedOut,
        ConnectionError::Reset => Closed::StatelessReset,
        other => Closed::Error(format!("{other:?}")),
    }
}

impl End for Own {
    fn receive(&mut self, now: Time, mut datagram: Datagram) {
        self.endpoint.handle_datagram(now, datagram.route, datagram.ecn, &mut datagram.bytes);
        self.poll();
    }

    fn timeout(&self) -> Option<Time> {
        self.endpoint.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        self.poll();
    }

    fn transmit(&mut self, now: Time) -> Vec<Datagram> {
        let (mut out, mut all) = (Vec::new(), Vec::new());
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut out) {
            let ecn = if transmit.ect { Ecn::Ect0 } else { Ecn::NotEct };
            let datagrams = out.chunks(transmit.segment);
            all.extend(datagrams.map(|bytes| Datagram::new(transmit.route, ecn, bytes)));
        }
        self.poll();
        all
    }

    fn is_connected(&self) -> bool {
        self.connected
    }

    fn closed(&self) -> Option<Closed> {
        self.closed.clone()
    }

    fn is_gone(&mut self) -> bool {
        self.endpoint.connections() == 0
    }

    fn close(&mut self, now: Time) {
        if let Some(connection) = self.connection() {
            connection.close(now, CODE, b"done");
        }
    }

    fn open_stream(&mut self, dir: Dir) -> Option<u64> {
        self.connection()?.open_stream(dir)
    }

    fn accept(&mut self) -> Vec<u64> {
        self.poll();
        std::mem::take(&mut self.accepted)
    }

    fn write(&mut self, stream: u64, data: &[u8]) -> usize {
        self.connection().and_then(|connection| connection.write(stream, data).ok()).unwrap_or(0)
    }

    fn finish(&mut self, stream: u64) -> bool {
        self.connection().is_some_and(|connection| connection.finish(stream).is_ok())
    }

    fn reset(&mut self, stream: u64) -> bool {
        self.connection().is_some_and(|connection| connection.reset(stream, CODE).is_ok())
    }

    fn stop(&mut self, stream: u64) -> bool {
        self.connection().is_some_and(|connection| connection.stop(stream, CODE).is_ok())
    }

    fn read(&mut self, stream: u64, out: &mut Vec<u8>) -> Ending {
        let Some(connection) = self.connection() else { return Ending::Unknown };
        let mut buffer = vec![0; 16 << 10];
        loop {
            match connection.read(stream, &mut buffer) {
                Ok(Some(0)) => return Ending::Open,
                Ok(Some(len)) => out.extend_from_slice(&buffer[..len]),
                Ok(None) => return Ending::Whole,
                Err(StreamError::Reset(_)) => return Ending::Reset,
                Err(_) => return Ending::Unknown,
            }
        }
    }

    fn send_datagram(&mut self, now: Time, data: &[u8]) {
        if let Some(connection) = self.connection() {
            connection.send_datagram(now, data);
        }
    }

    fn datagrams(&mut self) -> Vec<Vec<u8>> {
        let Some(connection) = self.connection() else { return Vec::new() };
        std::iter::from_fn(|| connection.read_datagram()).collect()
    }

    fn update_keys(&mut self, now: Time) {
        if let Some(connection) = self.connection() {
            connection.update_keys(now);
        }
    }

    fn open_path(&mut self, now: Time, route: Route, backup: bool) {
        if let Some(connection) = self.connection()
            && let Ok(path) = connection.open_path(now, route)
        {
            connection.set_backup(path, backup).unwrap();
        }
    }

    fn paths(&mut self) -> usize {
        self.connection().map_or(0, |connection| connection.paths().count())
    }

    fn abandon_path(&mut self, now: Time, index: usize) {
        if let Some(connection) = self.connection() {
            let path = connection.paths().nth(index).unwrap().id;
            let _last = connection.abandon_path(now, path);
        }
    }

    fn set_backup(&mut self, index: usize, backup: bool) {
        if let Some(connection) = self.connection() {
            let path = connection.paths().nth(index).unwrap().id;
            let _not_negotiated = connection.set_backup(path, backup);
        }
    }
}
