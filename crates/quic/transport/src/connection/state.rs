//! The parts of a connection, and its beginning.

use super::cids::{ACTIVE_LIMIT, Cids, EndpointEvent, HandshakeCids};
use super::handshake::{Handshake, Tokens};
use super::idle::IdleTimer;
use super::lifecycle::Lifecycle;
use super::pending::Pending;
use super::report::Stats;
use crate::config::Config;
use crate::congestion::Windows;
use crate::crypto::{Random, Secret, Side, Tls, TlsError};
use crate::datagrams::Datagrams;
use crate::event::{Event, PathId};
use crate::paths::mtu::Mtu;
use crate::paths::{Path, PathSet, PathState, Route};
use crate::qlog::Log;
use crate::recovery::sent::{Control, SentPacket};
use crate::recovery::space::{Space, SpaceId};
use crate::wire::cid::ConnectionId;
use crate::wire::params::Params;
use std::collections::VecDeque;
use std::sync::Arc;
use vmcc_cc::MAX_PATHS;
use vmcc_multipath::{ReinjectionBudget, Scheduler, Selector};
use vmcc_streams::Streams;
use vmcc_units::time::{Span, Time};

/// One connection. Times are those of the caller's clock, see [`crate`].
pub struct Connection {
    pub(super) config: Arc<Config>,
    pub(super) random: Random,
    pub(super) lifecycle: Lifecycle,
    pub(super) idle: IdleTimer,
    pub(super) handshake: Handshake,
    pub(super) cids: Cids,
    pub(super) paths: PathSet,
    pub(super) windows: Windows,
    pub(super) selector: Selector,
    pub(super) streams: Streams,
    pub(super) datagrams: Datagrams,
    /// Control frames to send.
    pub(super) pending: Pending,
    pub(super) events: VecDeque<Event>,
    pub(super) stats: Stats,
    pub(super) log: Option<Box<Log>>,
    /// Data may wait to be sent again.
    pub(super) repairs: bool,
    pub(super) reinjection: ReinjectionBudget,
    /// Packets that an acknowledgment takes out; the memory is reused.
    pub(super) taken: Vec<(u64, SentPacket)>,
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
    pub(crate) reset_secret: Secret,
}

impl Connection {
    pub(crate) fn new(
        init: ConnectionInit,
        tls: Arc<dyn Tls>,
        server_name: &str,
    ) -> Result<Connection, TlsError> {
        let (side, config, now) = (init.side, init.config.clone(), init.now);
        let local = local_params(&init);
        let (idle, local_max) = (IdleTimer::new(local.max_idle_timeout_ms), local.initial_max_path_id);
        let tokens = Tokens { initial: init.token, received: None, issued: init.token_to_give };
        let handshake = Handshake::new(side, tls, server_name, local, init.initial_dcid.as_slice(), tokens)?;
        let mtu = Mtu::new(config.initial_mtu, config.max_mtu);
        let mut path = Path::new(0, init.route, mtu);
        (path.state, path.last_received_at, path.last_eliciting_at) = (PathState::Open, now, now);
        if init.validated || side == Side::Client {
            path.validation.set_validated();
        }
        let sinks = config.qlog.as_ref();
        let log = sinks.and_then(|sinks| Log::begin(&**sinks, now, side, &init.original_dcid, init.route));
        let mut windows =
            Windows::new(config.coupling, config.initial_window_pkt, config.algorithm, config.params);
        windows.add_path(0, mtu.size());
        let cids = HandshakeCids {
            original: init.original_dcid,
            retry: init.retry_scid,
            own: init.own_cid,
            peer: init.peer_cid,
        };
        let mut connection = Connection {
            random: init.random,
            lifecycle: Lifecycle::new(),
            idle,
            handshake,
            cids: Cids::new(cids, init.reset_secret),
            paths: PathSet::new(path, local_max.unwrap_or(0)),
            windows,
            selector: Selector::new(config.scheduler),
            streams: Streams::new(streams_side(side), config.limits()),
            datagrams: Datagrams::new(config.datagram_buffer),
            pending: Pending::default(),
            events: VecDeque::new(),
            stats: Stats::default(),
            log: log.map(Box::new),
            repairs: false,
            reinjection: ReinjectionBudget::default(),
            taken: Vec::new(),
            config,
        };
        connection.begin_window(0, now);
        connection.idle.restart(now, connection.longest_pto());
        Ok(connection)
    }

    /// Returns true once a packet has come that could be read.
    pub(crate) fn is_begun(&self) -> bool {
        !self.lifecycle.is_handshaking() || self.handshake.is_begun()
    }

    /// A number space, if it is in use.
    pub(super) fn space_mut(&mut self, space: SpaceId) -> Option<&mut Space> {
        match space {
            SpaceId::Path(slot) => self.paths.get_mut(slot).map(|path| &mut path.space),
            _ => self.handshake.space_mut(space),
        }
    }

    /// Returns true if the connection closes, drains, or is closed.
    pub(super) fn is_over(&self) -> bool {
        self.lifecycle.is_over()
    }

    /// Queues a frame, unless the same is there.
    pub(super) fn queue(&mut self, control: Control) {
        self.pending.push(control);
    }

    /// The longest probe timeout of a path that is in use.
    pub(super) fn longest_pto(&self) -> Span {
        self.paths.longest_pto(self.handshake.peer_ack_delay())
    }

    /// The congestion control algorithm begins on a path.
    pub(super) fn begin_window(&mut self, slot: usize, now: Time) {
        self.windows.begin(&self.paths[slot].cc_context(now, slot, false));
    }

    /// A path's packets have a new size.
    pub(super) fn on_mtu(&mut self, slot: usize) {
        self.windows.set_mtu(slot, self.paths[slot].mtu.size());
        self.paths.pace(&self.windows, slot);
    }

    /// Logs a message for which qlog defines no event.
    pub(super) fn note(&mut self, now: Time, path: PathId, message: &str) {
        if let Some(log) = &mut self.log {
            log.note(now, path, message);
        }
    }

    /// Next event for the endpoint.
    pub(crate) fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.cids.poll_event()
    }

    /// Nothing is left to do: it can be forgotten.
    pub(crate) fn is_drained(&self) -> bool {
        self.lifecycle.is_closed()
    }

    /// Every connection id that leads here.
    pub(crate) fn all_ids(&self) -> impl Iterator<Item = &ConnectionId> {
        self.cids.all_local()
    }

    pub(crate) fn reset_tokens(&self) -> impl Iterator<Item = &[u8; 16]> {
        self.cids.tokens()
    }

    /// The scheduler that is in use.
    pub fn scheduler(&self) -> Scheduler {
        self.selector.scheduler
    }
}

/// This end, as the stream layer names it.
fn streams_side(side: Side) -> vmcc_streams::Side {
    match side {
        Side::Client => vmcc_streams::Side::Client,
        Side::Server => vmcc_streams::Side::Server,
    }
}

/// Transport parameters of a new connection.
fn local_params(init: &ConnectionInit) -> Params {
    let (config, server) = (&init.config, init.side == Side::Server);
    let stream_limit = config.limits().initial_stream_limit();
    Params {
        max_idle_timeout_ms: config.idle_timeout.us() / 1000,
        max_udp_payload: 65_527,
        max_data: config.connection_window,
        stream_data_bidi_local: stream_limit,
        stream_data_bidi_remote: stream_limit,
        stream_data_uni: stream_limit,
        max_streams_bidi: config.max_streams_bidi,
        max_streams_uni: config.max_streams_uni,
        max_ack_delay_ms: (config.max_ack_delay.us() / 1000).min((1 << 14) - 1),
        active_cid_limit: ACTIVE_LIMIT,
        max_datagram_frame: config.max_datagram.into(),
        initial_max_path_id: (config.max_paths > 1).then(|| config.max_paths.min(MAX_PATHS as u32) - 1),
        initial_scid: Some(init.own_cid),
        original_dcid: server.then_some(init.original_dcid),
        retry_scid: init.retry_scid,
        reset_token: server.then(|| init.reset_secret.tag(init.own_cid.as_slice())),
        ..Params::default()
    }
}
