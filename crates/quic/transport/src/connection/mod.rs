//! The state of one connection.
//!
//! | module | does |
//! |---|---|
//! | `handshake` | TLS, levels of encryption, transport parameters |
//! | `receive`, `frames` | packets and frames that come |
//! | `acks` | what acknowledgments and losses mean |
//! | `send`, `content`, `packet`, `pending` | which packet leaves where, and what is in it |
//! | `timers` | what time brings |
//! | `windows` | what counts against which congestion window |
//! | `multipath`, `ids` | paths and connection ids |
//! | `close` | the end |
//! | `api` | what applications call |

mod acks;
mod api;
mod close;
mod content;
mod frames;
mod handshake;
mod ids;
mod keys;
mod multipath;
mod packet;
mod pending;
mod receive;
mod send;
mod timers;
mod windows;

pub use api::{PathReport, Stats};
pub use multipath::PathError;

use crate::config::Config;
use crate::congestion::Controller;
use crate::congestion::windows::Windows;
use crate::crypto::{Keys, Random, Session, Side, Tls};
use crate::datagrams::DatagramQueue;
use crate::error::ConnectionError;
use crate::event::{Event, PathId};
use crate::paths::cids::{LocalCids, RemoteCids};
use crate::paths::mtu::Mtu;
use crate::paths::{Path, PathState, Route, SchedulerView};
use crate::qlog::{self, Log};
use crate::recovery::sent::{Control, SentPacket};
use crate::recovery::space::Space;
use crate::wire::cid::ConnectionId;
use crate::wire::params::Params;
use crate::wire::ranges::Ranges;
use keys::OneRtt;
use pending::Pending;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use vmcc_multipath::{Scheduler, Selector};
use vmcc_streams::{RecvBuffer, SendBuffer, Streams};
use vmcc_units::time::Time;

/// Bytes of the connection ids that this end gives out.
pub(crate) const LOCAL_CID_LEN: usize = 8;
/// Path slots: the limit of schedulers and of congestion control.
pub(crate) const MAX_PATHS: usize = vmcc_cc::MAX_PATHS;

/// Data to send as one UDP datagram, or as several of the same size but the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// From where to where.
    pub route: Route,
    /// To be sent with ECT(0).
    pub ect: bool,
    /// Bytes of each datagram; all but the last have as many.
    pub segment: usize,
    /// Bytes of all.
    pub len: usize,
}

/// An encryption level of the handshake.
pub(crate) struct Level {
    keys: Keys,
    space: Space,
    send: SendBuffer,
    recv: RecvBuffer,
}

impl Level {
    fn new(keys: Keys) -> Level {
        Level { keys, space: Space::default(), send: SendBuffer::default(), recv: RecvBuffer::default() }
    }
}

/// Number spaces: of Initial packets, Handshake packets, and of each path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpaceId {
    Initial,
    Handshake,
    /// Slot of the path.
    Path(usize),
}

const LEVELS: [SpaceId; 2] = [SpaceId::Initial, SpaceId::Handshake];

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Handshaking,
    Established,
    /// CONNECTION_CLOSE was sent, or is to be.
    Closing,
    /// The peer has closed.
    Draining,
    Closed,
}

/// Events for the endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EndpointEvent {
    NewLocal(ConnectionId),
    RetiredLocal(ConnectionId),
    /// Stateless reset token of the peer.
    ResetToken([u8; 16]),
    ForgetToken([u8; 16]),
}

/// One connection. Times are those of the caller's clock, see [`crate`].
pub struct Connection {
    side: Side,
    config: Arc<Config>,
    tls: Arc<dyn Tls>,
    session: Box<dyn Session>,
    random: Random,
    state: State,
    /// Initial and Handshake, as long as there are keys.
    levels: [Option<Level>; 2],
    one_rtt: Option<OneRtt>,
    /// Handshake messages in packets with short headers.
    crypto: (SendBuffer, RecvBuffer),
    /// Level at which handshake messages are written now: 0 and 1 as in `levels`, 2 in packets with short headers.
    write_level: usize,
    confirmed: bool,
    /// A server's: the client has shown that it receives. A client's: the server knows that of it.
    peer_validated: bool,
    local: Params,
    peer: Params,
    peer_known: bool,
    /// The destination of the client's first Initial, and what a Retry has made of it.
    original_dcid: ConnectionId,
    retry_scid: Option<ConnectionId>,
    token: Vec<u8>,
    /// For the next connection to the same server.
    new_token: Option<Vec<u8>>,
    /// Token that a server gives its client for the next connection.
    token_to_give: Vec<u8>,
    own_cid: ConnectionId,
    peer_cid: Option<ConnectionId>,
    paths: Vec<Path>,
    remote_cids: BTreeMap<PathId, RemoteCids>,
    local_cids: BTreeMap<PathId, LocalCids>,
    multipath: bool,
    /// The highest path that this end allows, and that the peer does.
    local_max_path: PathId,
    peer_max_path: PathId,
    next_path: PathId,
    /// PATH_STATUS of paths that have not begun here: sequence number, and whether they are available.
    early_status: BTreeMap<PathId, (u64, bool)>,
    /// Paths that were abandoned, open or not.
    retired_paths: Ranges,
    /// Connection ids of closed paths: late packets to them still belong to this connection.
    old_ids: VecDeque<ConnectionId>,
    /// Paths up to here have been given connection ids.
    cids_issued_to: PathId,
    selector: Selector,
    controller: Controller,
    windows: Windows,
    streams: Streams,
    pending: Pending,
    datagrams_out: DatagramQueue,
    datagrams_in: VecDeque<Vec<u8>>,
    datagram_bytes_in: usize,
    events: VecDeque<Event>,
    endpoint_events: VecDeque<EndpointEvent>,
    error: Option<ConnectionError>,
    close: close::Close,
    idle_at: Time,
    /// Something that asks for an answer was sent since something came.
    idle_touched: bool,
    /// Bytes of the datagram that is being read.
    arriving: u64,
    stats: Stats,
    /// Memory that calls reuse.
    scratch: Vec<(u64, SentPacket)>,
    reset_secret: crate::crypto::Secret,
    log: Option<Box<Log>>,
}

/// Parameters of a new connection.
pub(crate) struct ConnectionInit {
    pub(crate) side: Side,
    pub(crate) config: Arc<Config>,
    pub(crate) random: Random,
    pub(crate) route: Route,
    pub(crate) now: Time,
    pub(crate) own_cid: ConnectionId,
    /// A client's choice; a server's: what the client chose first.
    pub(crate) original_dcid: ConnectionId,
    /// Of a server that has sent a Retry: its id in it.
    pub(crate) retry_scid: Option<ConnectionId>,
    /// Destination id of the client's Initial: its keys follow from it.
    pub(crate) initial_dcid: ConnectionId,
    pub(crate) peer_cid: Option<ConnectionId>,
    pub(crate) token: Vec<u8>,
    pub(crate) token_to_give: Vec<u8>,
    pub(crate) validated: bool,
    pub(crate) reset_secret: crate::crypto::Secret,
}

impl Connection {
    pub(crate) fn new(
        begin: ConnectionInit,
        tls: Arc<dyn Tls>,
        server_name: &str,
    ) -> Result<Connection, crate::crypto::TlsError> {
        let ConnectionInit { side, config, .. } = &begin;
        let (side, config) = (*side, config.clone());
        let local = local_params(&begin, &config);
        let session = tls.start(server_name, local.encode())?;
        let keys = tls.initial_keys(begin.initial_dcid.as_slice(), side);
        let end = match side {
            Side::Client => vmcc_streams::Side::Client,
            Side::Server => vmcc_streams::Side::Server,
        };
        let streams = Streams::new(end, config.limits());
        let mtu = Mtu::new(config.initial_mtu, config.max_mtu);
        let mut path = Path::new(0, begin.route, mtu);
        path.validated = begin.validated || side == Side::Client;
        (path.state, path.last_received_at, path.last_eliciting_at) = (PathState::Open, begin.now, begin.now);
        let peer_cid = begin.peer_cid.unwrap_or(begin.original_dcid);
        let id = begin.original_dcid;
        let log = config.qlog.as_ref();
        let log = log.and_then(|sinks| Log::begin(&**sinks, begin.now, side, &id, begin.route));
        let log = log.map(Box::new);
        let mut windows = Windows::new(config.coupling, config.initial_window_pkt);
        windows.add_path(0, mtu.size());
        let mut local_cids = LocalCids::default();
        local_cids.push(begin.own_cid);
        let mut connection = Connection {
            side,
            tls,
            session,
            random: begin.random,
            state: State::Handshaking,
            levels: [Some(Level::new(keys)), None],
            one_rtt: None,
            crypto: Default::default(),
            write_level: 0,
            confirmed: false,
            peer_validated: side == Side::Server,
            local_max_path: local.initial_max_path_id.unwrap_or(0),
            local,
            peer: Params::default(),
            peer_known: false,
            original_dcid: begin.original_dcid,
            retry_scid: begin.retry_scid,
            token: begin.token,
            new_token: None,
            token_to_give: begin.token_to_give,
            own_cid: begin.own_cid,
            peer_cid: begin.peer_cid,
            paths: vec![path],
            remote_cids: BTreeMap::from([(0, RemoteCids::of_handshake(peer_cid))]),
            local_cids: BTreeMap::from([(0, local_cids)]),
            multipath: false,
            peer_max_path: 0,
            next_path: 1,
            early_status: BTreeMap::new(),
            retired_paths: Ranges::default(),
            old_ids: VecDeque::new(),
            cids_issued_to: 0,
            selector: Selector::new(config.scheduler),
            controller: Controller::new(config.algorithm, config.params),
            windows,
            streams,
            pending: Pending::default(),
            datagrams_out: DatagramQueue::default(),
            datagrams_in: VecDeque::new(),
            datagram_bytes_in: 0,
            events: VecDeque::new(),
            endpoint_events: VecDeque::new(),
            error: None,
            close: close::Close::default(),
            idle_at: Time::NEVER,
            idle_touched: false,
            arriving: 0,
            stats: Stats::default(),
            scratch: Vec::new(),
            reset_secret: begin.reset_secret,
            log,
            config,
        };
        connection.begin_window(0, begin.now);
        connection.touch_idle(begin.now);
        if side == Side::Client {
            connection.write_handshake();
        }
        Ok(connection)
    }

    /// Keys of Initial packets to this id.
    fn initial_keys_of(&self, dcid: &ConnectionId) -> Keys {
        self.tls.initial_keys(dcid.as_slice(), self.side)
    }

    /// Returns true once a packet has come that could be read.
    pub(crate) fn is_begun(&self) -> bool {
        self.state != State::Handshaking
            || self.levels.iter().flatten().any(|level| level.space.received.expected() > 0)
    }

    fn level_mut(&mut self, space: SpaceId) -> Option<&mut Level> {
        match space {
            SpaceId::Initial => self.levels[0].as_mut(),
            SpaceId::Handshake => self.levels[1].as_mut(),
            SpaceId::Path(_) => None,
        }
    }

    /// A number space, if it is in use.
    fn space_mut(&mut self, space: SpaceId) -> Option<&mut Space> {
        match space {
            SpaceId::Path(slot) => self.paths.get_mut(slot).map(|path| &mut path.space),
            _ => self.level_mut(space).map(|level| &mut level.space),
        }
    }

    /// Send buffer of a space's handshake messages.
    fn crypto_out(&mut self, space: SpaceId) -> Option<&mut SendBuffer> {
        match space {
            SpaceId::Path(_) => Some(&mut self.crypto.0),
            _ => self.level_mut(space).map(|level| &mut level.send),
        }
    }

    /// Slot of a path that is not closed.
    fn slot_of(&self, path: PathId) -> Option<usize> {
        self.paths.iter().position(|own| own.id == path && own.state != PathState::Closed)
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Closing | State::Draining | State::Closed)
    }

    /// Queues a frame, unless the same is there.
    fn queue(&mut self, control: Control) {
        self.pending.push(control);
    }

    /// Next event for the endpoint.
    pub(crate) fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.endpoint_events.pop_front()
    }

    /// Nothing is left to do: it can be forgotten.
    pub(crate) fn is_drained(&self) -> bool {
        self.state == State::Closed
    }

    /// Every connection id that leads here.
    pub(crate) fn all_ids(&self) -> impl Iterator<Item = &ConnectionId> {
        let first =
            [&self.original_dcid, &self.own_cid].into_iter().chain(&self.retry_scid).chain(&self.old_ids);
        self.local_cids.values().flat_map(LocalCids::iter).chain(first)
    }

    pub(crate) fn reset_tokens(&self) -> impl Iterator<Item = &[u8; 16]> {
        self.remote_cids.values().flat_map(RemoteCids::tokens)
    }

    /// The scheduler that is in use.
    pub fn scheduler(&self) -> Scheduler {
        self.selector.scheduler
    }
}

fn local_params(begin: &ConnectionInit, config: &Config) -> Params {
    let server = begin.side == Side::Server;
    let own = begin.own_cid;
    Params {
        max_idle_timeout_ms: config.idle_timeout.us() / 1000,
        max_udp_payload: 65_527,
        max_data: config.connection_window,
        stream_data_bidi_local: config.limits().initial_stream_limit(),
        stream_data_bidi_remote: config.limits().initial_stream_limit(),
        stream_data_uni: config.limits().initial_stream_limit(),
        max_streams_bidi: config.max_streams_bidi,
        max_streams_uni: config.max_streams_uni,
        max_ack_delay_ms: (config.max_ack_delay.us() / 1000).min((1 << 14) - 1),
        active_cid_limit: crate::paths::cids::ACTIVE_LIMIT,
        max_datagram_frame: config.max_datagram.into(),
        initial_max_path_id: (config.max_paths > 1).then(|| config.max_paths.min(MAX_PATHS as u32) - 1),
        initial_scid: Some(own),
        original_dcid: server.then_some(begin.original_dcid),
        retry_scid: begin.retry_scid,
        reset_token: server.then(|| begin.reset_secret.tag(own.as_slice())),
        ..Params::default()
    }
}
