//! noq's engine as an end.

use crate::end::{APPLICATION_ERROR, Closed, End, Ending, NO_VIABLE_PATH};
use crate::network::{Datagram, address};
use crate::sequence::Setup;
use crate::session::{IDLE_TIMEOUT, KEEP_ALIVE};
use bytes::{Bytes, BytesMut};
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint,
    EndpointConfig, Event, FourTuple, PathStatus, ReadError, ServerConfig, StreamId, Transmit,
    TransportConfig, VarInt,
};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vmcc_quic_testkit::tls;
use vmcc_transport::{Dir, Ecn, Route};
use vmcc_units::time::{Span, Time};

/// Error code of resets.
const CODE: VarInt = VarInt::from_u32(7);
/// Datagrams of one transmission.
const SEGMENTS: NonZeroUsize = NonZeroUsize::new(10).unwrap();

pub(crate) struct Noq {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    side: usize,
    retry: bool,
    /// Instant of [`Time::ZERO`].
    zero: Instant,
    replies: Vec<Datagram>,
    connected: bool,
    closed: Option<Closed>,
    gone: bool,
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.ns())
}

fn transport(setup: &Setup) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(duration(IDLE_TIMEOUT).try_into().unwrap()));
    if setup.multipath {
        transport.max_concurrent_multipath_paths(4);
    }
    if setup.own == 1 {
        transport.keep_alive_interval(Some(duration(KEEP_ALIVE)));
        transport.default_path_keep_alive_interval(Some(duration(KEEP_ALIVE)));
    }
    if setup.small_windows {
        transport.stream_receive_window(5_000_u32.into());
        transport.receive_window(12_000_u32.into());
        transport.send_window(20_000);
        transport.max_concurrent_bidi_streams(3_u32.into());
    }
    Arc::new(transport)
}

fn client_config(setup: &Setup) -> ClientConfig {
    let crypto = QuicClientConfig::try_from(tls::client_config()).unwrap();
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport(setup));
    config
}

fn server_config(setup: &Setup) -> ServerConfig {
    let crypto = QuicServerConfig::try_from(tls::server_config()).unwrap();
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport(setup));
    config
}

impl Noq {
    pub(crate) fn new(setup: &Setup, now: Time) -> Noq {
        let side = 1 - setup.own;
        let mut seed = [1; 32];
        seed[..8].copy_from_slice(&setup.seed.to_be_bytes());
        let mut config = EndpointConfig::default();
        config.rng_seed(Some(seed));
        let server = (side == 1).then(|| Arc::new(server_config(setup)));
        let mut endpoint = Endpoint::new(Arc::new(config), server, true);
        let zero = Instant::now();
        let connection = (side == 0).then(|| {
            let now = zero + duration(now.since(Time::ZERO));
            endpoint.connect(now, client_config(setup), address(1, 0), "localhost").unwrap()
        });
        Noq {
            endpoint,
            connection,
            side,
            retry: setup.retry,
            zero,
            replies: Vec::new(),
            connected: false,
            closed: None,
            gone: false,
        }
    }

    fn instant(&self, now: Time) -> Instant {
        self.zero + duration(now.since(Time::ZERO))
    }

    fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut().map(|(_, connection)| connection)
    }

    /// The connection while it is alive.
    fn alive(&mut self) -> Option<&mut Connection> {
        self.connection().filter(|connection| !connection.is_closed())
    }

    fn datagrams_of(&self, transmit: &Transmit, bytes: &[u8]) -> Vec<Datagram> {
        let local = (0..crate::network::ADDRESSES)
            .map(|index| address(self.side, index))
            .find(|local| transmit.src_ip.is_none_or(|ip| ip == local.ip()))
            .expect("an address of this end");
        let route = Route { local, remote: transmit.destination };
        let ecn = match transmit.ecn {
            None => Ecn::NotEct,
            Some(EcnCodepoint::Ect0) => Ecn::Ect0,
            Some(EcnCodepoint::Ect1) => Ecn::Ect1,
            Some(EcnCodepoint::Ce) => Ecn::Ce,
        };
        let segments = bytes[..transmit.size].chunks(transmit.segment_size.unwrap_or(transmit.size));
        segments.map(|bytes| Datagram::new(route, ecn, bytes)).collect()
    }

    /// Exchanges events between connection and endpoint, and notes what concerns the application.
    fn poll(&mut self) {
        let Some((handle, connection)) = &mut self.connection else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            self.gone |= event.is_drained();
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected => self.connected = true,
                Event::ConnectionLost { reason } => self.closed = Some(closed(reason)),
                _ => {}
            }
        }
    }

    fn on_datagram_event(&mut self, now: Instant, event: DatagramEvent, buffer: &mut Vec<u8>) {
        match event {
            DatagramEvent::ConnectionEvent(handle, event) => match &mut self.connection {
                Some((own, connection)) if *own == handle => connection.handle_event(event),
                _ => {}
            },
            DatagramEvent::Response(transmit) => {
                let replies = self.datagrams_of(&transmit, buffer);
                self.replies.extend(replies);
            }
            DatagramEvent::NewConnection(incoming) if self.connection.is_some() => {
                self.endpoint.ignore(incoming); // a duplicate of the client's first packet
            }
            DatagramEvent::NewConnection(incoming)
                if self.retry && !incoming.remote_address_validated() && incoming.may_retry() =>
            {
                buffer.clear();
                let transmit = self.endpoint.retry(incoming, buffer).unwrap();
                let replies = self.datagrams_of(&transmit, buffer);
                self.replies.extend(replies);
            }
            DatagramEvent::NewConnection(incoming) => {
                buffer.clear();
                match self.endpoint.accept(incoming, now, buffer, None) {
                    Ok(new) => self.connection = Some(new),
                    Err(error) => {
                        let replies = error.response.map(|transmit| self.datagrams_of(&transmit, buffer));
                        self.replies.extend(replies.into_iter().flatten());
                    }
                }
            }
        }
    }
}

fn closed(reason: ConnectionError) -> Closed {
    match reason {
        ConnectionError::LocallyClosed => Closed::Locally,
        ConnectionError::ApplicationClosed(_) => Closed::ByPeer,
        ConnectionError::ConnectionClosed(close) if u64::from(close.error_code) == APPLICATION_ERROR => {
            Closed::ByPeer
        }
        ConnectionError::ConnectionClosed(close) if u64::from(close.error_code) == NO_VIABLE_PATH => {
            Closed::NoPath
        }
        ConnectionError::TransportError(error) if u64::from(error.code) == NO_VIABLE_PATH => Closed::NoPath,
        ConnectionError::TimedOut => Closed::TimedOut,
        ConnectionError::Reset => Closed::StatelessReset,
        other => Closed::Error(format!("{other:?}")),
    }
}

fn stream_id(stream: u64) -> StreamId {
    VarInt::from_u64(stream).unwrap().into()
}

fn tuple(route: Route) -> FourTuple {
    FourTuple::new(route.remote, Some(SocketAddr::ip(&route.local)))
}

fn status(backup: bool) -> PathStatus {
    if backup { PathStatus::Backup } else { PathStatus::Available }
}

impl End for Noq {
    fn receive(&mut self, now: Time, datagram: Datagram) {
        let now = self.instant(now);
        let ecn = match datagram.ecn {
            Ecn::NotEct => None,
            Ecn::Ect0 => Some(EcnCodepoint::Ect0),
            Ecn::Ect1 => Some(EcnCodepoint::Ect1),
            Ecn::Ce => Some(EcnCodepoint::Ce),
        };
        let mut buffer = Vec::new();
        let bytes = BytesMut::from(&datagram.bytes[..]);
        if let Some(event) = self.endpoint.handle(now, tuple(datagram.route), ecn, bytes, &mut buffer) {
            self.on_datagram_event(now, event, &mut buffer);
        }
        self.poll();
    }

    fn timeout(&self) -> Option<Time> {
        let (_, connection) = self.connection.as_ref()?;
        let at = connection.poll_timeout()?.saturating_duration_since(self.zero);
        Some(Time::ZERO + Span::from_ns(at.as_nanos() as u64))
    }

    fn handle_timeout(&mut self, now: Time) {
        let now = self.instant(now);
        if let Some(connection) = self.connection() {
            connection.handle_timeout(now);
        }
        self.poll();
    }

    fn transmit(&mut self, now: Time) -> Vec<Datagram> {
        let (now, mut buffer) = (self.instant(now), Vec::new());
        let mut all = std::mem::take(&mut self.replies);
        while let Some(connection) = self.connection()
            && let Some(transmit) = connection.poll_transmit(now, SEGMENTS, &mut buffer)
        {
            all.extend(self.datagrams_of(&transmit, &buffer));
            buffer.clear();
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
        self.gone || self.connection.is_none()
    }

    fn close(&mut self, now: Time) {
        let now = self.instant(now);
        if let Some(connection) = self.alive() {
            connection.close(now, CODE, Bytes::from_static(b"done"));
            self.closed = Some(Closed::Locally);
        }
        self.poll();
    }

    fn open_stream(&mut self, dir: Dir) -> Option<u64> {
        let dir = if dir == Dir::Bi { noq_proto::Dir::Bi } else { noq_proto::Dir::Uni };
        self.alive()?.streams().open(dir).map(u64::from)
    }

    fn accept(&mut self) -> Vec<u64> {
        let Some(connection) = self.alive() else { return Vec::new() };
        let dirs = [noq_proto::Dir::Bi, noq_proto::Dir::Uni];
        let all = dirs.map(|dir| std::iter::from_fn(|| connection.streams().accept(dir)).collect::<Vec<_>>());
        all.concat().into_iter().map(u64::from).collect()
    }

    fn write(&mut self, stream: u64, data: &[u8]) -> usize {
        self.alive()
            .and_then(|connection| connection.send_stream(stream_id(stream)).write(data).ok())
            .unwrap_or(0)
    }

    fn finish(&mut self, stream: u64) -> bool {
        self.alive().is_some_and(|connection| connection.send_stream(stream_id(stream)).finish().is_ok())
    }

    fn reset(&mut self, stream: u64) -> bool {
        self.alive().is_some_and(|connection| connection.send_stream(stream_id(stream)).reset(CODE).is_ok())
    }

    fn stop(&mut self, stream: u64) -> bool {
        self.alive().is_some_and(|connection| connection.recv_stream(stream_id(stream)).stop(CODE).is_ok())
    }

    fn read(&mut self, stream: u64, out: &mut Vec<u8>) -> Ending {
        let Some(connection) = self.alive() else { return Ending::Unknown };
        let mut half = connection.recv_stream(stream_id(stream));
        let Ok(mut chunks) = half.read(true) else { return Ending::Unknown };
        let ending = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => out.extend_from_slice(&chunk.bytes),
                Ok(None) => break Ending::Whole,
                Err(ReadError::Blocked) => break Ending::Open,
                Err(ReadError::Reset(_)) => break Ending::Reset,
            }
        };
        let _ = chunks.finalize();
        ending
    }

    fn send_datagram(&mut self, _now: Time, data: &[u8]) {
        if let Some(connection) = self.alive() {
            let _too_large = connection.datagrams().send(Bytes::copy_from_slice(data), true);
        }
    }

    fn datagrams(&mut self) -> Vec<Vec<u8>> {
        let Some(connection) = self.alive() else { return Vec::new() };
        std::iter::from_fn(|| connection.datagrams().recv()).map(|data| data.to_vec()).collect()
    }

    fn update_keys(&mut self, _now: Time) {
        if let Some(connection) = self.alive() {
            connection.force_key_update();
        }
    }

    fn open_path(&mut self, now: Time, route: Route, backup: bool) {
        let now = self.instant(now);
        if let Some(connection) = self.alive() {
            let _not_allowed = connection.open_path_ensure(tuple(route), status(backup), now);
        }
    }

    fn paths(&mut self) -> usize {
        self.alive().map_or(0, |connection| connection.paths().len())
    }

    fn abandon_path(&mut self, now: Time, index: usize) {
        let now = self.instant(now);
        if let Some(connection) = self.alive() {
            let path = connection.paths()[index];
            let _last = connection.close_path(now, path, CODE);
        }
    }

    fn set_backup(&mut self, index: usize, backup: bool) {
        if let Some(connection) = self.alive() {
            let path = connection.paths()[index];
            let _not_negotiated = connection.set_path_status(path, status(backup));
        }
    }
}
