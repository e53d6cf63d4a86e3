//! Log of a connection: draft-ietf-quic-qlog-main-schema and draft-ietf-quic-qlog-quic-events, both in version 13,
//! as JSON text sequences (RFC 7464), one for each connection.
//!
//! Beyond the drafts, which know one path: every event has the number of its path in `path_id`, beside the `tuple`, and frames of multipath
//! QUIC have their names. Keys, tokens and data are never written.
//!
//! Here texts are made; where they go is a [`Sink`]'s affair. A connection without one pays a comparison per packet.

mod frames;
mod json;

use crate::congestion::Window;
use crate::crypto::Side;
use crate::error::{ConnectionError, TransportError, code};
use crate::event::PathId;
use crate::paths::{Path, Route, SchedulerView};
use crate::recovery::received::Ecn;
use crate::recovery::space::SpaceId;
use crate::wire::cid::ConnectionId;
use json::{Fields, object};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use vmcc_cc::{SSTHRESH_INFINITE, State};
use vmcc_units::time::{Span, Time};

const RECORD: char = '\u{1e}';

/// Destination of one connection's log; dropped when the connection is forgotten.
pub trait Sink: Send {
    /// Takes a whole record, or refuses it: it must not wait, because the connection would.
    fn record(&mut self, text: &str) -> bool;

    /// The peer has proved who it is.
    fn established(&mut self) {}
}

/// Factory of connections' logs; a setting of [`Config`](crate::Config).
pub trait Sinks: Debug + Send + Sync {
    /// For a connection that begins, known by the destination of the client's first packet; none if it is not to be logged.
    fn open(&self, id: &ConnectionId, client: bool) -> Option<Box<dyn Sink>>;

    /// The time, as RFC 3339 has it; empty if it is not to be told.
    fn wall_clock(&self) -> String;
}

/// The log of a connection.
pub(crate) struct Log {
    sink: Box<dyn Sink>,
    begin: Time,
    line: String,
    /// Records that were refused since one was taken.
    refused: u64,
    /// Last logged figures of each path.
    last: BTreeMap<PathId, LastLogged>,
}

/// A packet, as far as events say something of it.
#[derive(Clone, Copy)]
pub(crate) struct Packet<'a> {
    pub(crate) space: SpaceId,
    pub(crate) path: PathId,
    pub(crate) number: u64,
    /// Bytes with header and tag.
    pub(crate) len: usize,
    /// Its frames, readable.
    pub(crate) payload: &'a [u8],
    /// Exponent of acknowledgment delays.
    pub(crate) ack_exponent: u64,
}

/// A packet that counts as lost.
#[derive(Clone, Copy)]
pub(crate) struct Lost {
    pub(crate) space: SpaceId,
    pub(crate) number: u64,
    pub(crate) mtu_probe: bool,
    /// Because later ones were acknowledged; else because it took too long.
    pub(crate) reordered: bool,
}

#[derive(Default)]
struct LastLogged {
    metrics: [Option<u64>; 7],
    state: &'static str,
    mtu: u16,
}

impl Log {
    pub(crate) fn begin(
        sinks: &dyn Sinks,
        now: Time,
        side: Side,
        id: &ConnectionId,
        route: Route,
    ) -> Option<Log> {
        let client = side == Side::Client;
        let sink = sinks.open(id, client)?;
        let mut log = Log { sink, begin: now, line: String::new(), refused: 0, last: BTreeMap::new() };
        log.header(&sinks.wall_clock(), id, client);
        log.event(now, None, "quic:connection_started", |data| {
            data.object("local", |end| endpoint(end, route.local));
            data.object("remote", |end| endpoint(end, route.remote));
        });
        log.tuple(now, 0, Some(route));
        Some(log)
    }

    fn header(&mut self, wall_clock: &str, id: &ConnectionId, client: bool) {
        self.line.push(RECORD);
        object(&mut self.line, |file| {
            file.text("file_schema", "urn:ietf:params:qlog:file:sequential");
            file.text("serialization_format", "application/qlog+json-seq");
            file.text("title", concat!("vmcc ", env!("CARGO_PKG_VERSION")));
            file.object("trace", |trace| {
                trace.object("common_fields", |common| {
                    common.bytes("group_id", id.as_slice());
                    common.text("time_format", "relative_to_epoch");
                    common.object("reference_time", |reference| {
                        reference.text("clock_type", "monotonic");
                        reference.text("epoch", "unknown");
                        if !wall_clock.is_empty() {
                            reference.text("wall_clock_time", wall_clock);
                        }
                    });
                });
                trace.object("vantage_point", |point| {
                    point.text("type", if client { "client" } else { "server" })
                });
                trace.array("event_schemas", |list| {
                    list.text("urn:ietf:params:qlog:events:quic-13");
                    list.text("urn:ietf:params:qlog:events:loglevel-13");
                });
            });
        });
        self.end_record();
    }

    fn end_record(&mut self) {
        self.line.push('\n');
        self.refused += u64::from(!self.sink.record(&self.line));
        self.line.clear();
    }

    /// Says what is missing before something else is said.
    fn admit(&mut self, now: Time) {
        let refused = std::mem::take(&mut self.refused);
        if refused > 0 {
            let message = format!("{refused} events are missing here: the log's disk did not keep up");
            self.put(now, None, "loglevel:warning", |_| {}, |data| data.text("message", &message));
            // If that was refused, too, it is one more than what it would have said.
            self.refused = if self.refused > 0 { refused } else { 0 };
        }
    }

    fn event(&mut self, now: Time, path: Option<PathId>, name: &str, data: impl FnOnce(&mut Fields<'_>)) {
        self.admit(now);
        self.put(now, path, name, |_| {}, data);
    }

    /// Writes an event, with fields beside its data.
    fn put(
        &mut self,
        now: Time,
        path: Option<PathId>,
        name: &str,
        beside: impl FnOnce(&mut Fields<'_>),
        data: impl FnOnce(&mut Fields<'_>),
    ) {
        self.line.push(RECORD);
        let time = now.since(self.begin);
        object(&mut self.line, |event| {
            event.time("time", time);
            event.text("name", name);
            if let Some(path) = path {
                event.text("tuple", &path.to_string());
                event.number("path_id", path.into());
            }
            beside(event);
            event.object("data", data);
        });
        self.end_record();
    }

    /// A path has these addresses from now on, or is gone.
    pub(crate) fn tuple(&mut self, now: Time, path: PathId, route: Option<Route>) {
        self.event(now, Some(path), "quic:tuple_assigned", |data| {
            data.text("tuple_id", &path.to_string());
            if let Some(route) = route {
                data.object("tuple_remote", |end| endpoint(end, route.remote));
                data.object("tuple_local", |end| endpoint(end, route.local));
            }
        });
        if route.is_none() {
            self.last.remove(&path);
        }
    }

    /// For people: what no event is defined for.
    pub(crate) fn note(&mut self, now: Time, path: PathId, message: &str) {
        self.event(now, Some(path), "loglevel:info", |data| data.text("message", message));
    }

    pub(crate) fn state(&mut self, now: Time, new: &'static str) {
        if new == "handshake_complete" {
            self.sink.established();
        }
        self.event(now, None, "quic:connection_state_updated", |data| data.text("new", new));
    }

    pub(crate) fn sent(&mut self, now: Time, packet: &Packet<'_>, mtu_probe: bool) {
        self.event(now, Some(packet.path), "quic:packet_sent", |data| {
            put_packet(data, packet);
            data.flag("is_mtu_probe_packet", mtu_probe);
        });
    }

    pub(crate) fn received(&mut self, now: Time, packet: &Packet<'_>, ecn: Ecn) {
        // The drafts have it with UDP datagrams only.
        let bits = match ecn {
            Ecn::NotEct => None,
            Ecn::Ect0 => Some("ECT(0)"),
            Ecn::Ect1 => Some("ECT(1)"),
            Ecn::Ce => Some("CE"),
        };
        let beside = |event: &mut Fields<'_>| bits.into_iter().for_each(|bits| event.text("ecn", bits));
        let data = |data: &mut Fields<'_>| put_packet(data, packet);
        self.admit(now);
        self.put(now, Some(packet.path), "quic:packet_received", beside, data);
    }

    pub(crate) fn lost(&mut self, now: Time, path: PathId, lost: &Lost) {
        self.event(now, Some(path), "quic:packet_lost", |data| {
            data.object("header", |header| put_header(header, lost.space, lost.number));
            data.flag("is_mtu_probe_packet", lost.mtu_probe);
            data.text("trigger", if lost.reordered { "reordering_threshold" } else { "time_threshold" });
        });
    }

    /// Logs the changes of a path's figures.
    pub(crate) fn metrics(&mut self, now: Time, seen: &SchedulerView<'_>) {
        const KEYS: [&str; 7] = [
            "min_rtt",
            "smoothed_rtt",
            "latest_rtt",
            "rtt_variance",
            "pto_count",
            "congestion_window",
            "bytes_in_flight",
        ];
        /// The first of them, up to this number, are times.
        const TIMES: usize = 4;
        let (path, window) = (seen.path, seen.windows.of(seen.slot));
        let time = |time: Span| Some(time.us()).filter(|_| path.rtt.srtt_8us != 0);
        let metrics = [
            time(path.rtt.min_rtt),
            time(path.rtt.srtt()),
            time(path.latest_rtt),
            time(Span::from_us(path.rtt.deviation_us().into())),
            Some(path.pto_count.into()),
            Some(u64::from(window.cwnd) * u64::from(window.mtu)),
            Some(seen.windows.in_flight(seen.slot)),
        ];
        let last = self.last.entry(path.id).or_default();
        let old = std::mem::replace(&mut last.metrics, metrics);
        if old != metrics {
            let ssthresh = window.ssthresh;
            self.event(now, Some(path.id), "quic:recovery_metrics_updated", |data| {
                for (i, key) in KEYS.iter().enumerate() {
                    match metrics[i].filter(|_| old[i] != metrics[i]) {
                        Some(us) if i < TIMES => data.time(key, Span::from_us(us)),
                        Some(value) => data.number(key, value),
                        None => {}
                    }
                }
                if ssthresh != SSTHRESH_INFINITE {
                    data.number("ssthresh", u64::from(ssthresh) * u64::from(window.mtu));
                }
            });
        }
        self.congestion(now, path.id, window);
        self.mtu(now, path);
    }

    fn congestion(&mut self, now: Time, path: PathId, window: &Window) {
        let (new, trigger) = match window.state {
            State::Cwr => ("recovery", "ecn"),
            State::Recovery => ("recovery", "loss"),
            State::Loss => ("persistent_congestion", "loss"),
            _ if window.in_slow_start() => ("slow_start", ""),
            _ => ("congestion_avoidance", ""),
        };
        let last = self.last.entry(path).or_default();
        let old = std::mem::replace(&mut last.state, new);
        if old != new {
            self.event(now, Some(path), "quic:congestion_state_updated", |data| {
                if !old.is_empty() {
                    data.text("old", old);
                }
                data.text("new", new);
                if !trigger.is_empty() {
                    data.text("trigger", trigger);
                }
            });
        }
    }

    fn mtu(&mut self, now: Time, path: &Path) {
        let (last, new) = (self.last.entry(path.id).or_default(), path.mtu.size());
        let old = std::mem::replace(&mut last.mtu, new);
        if old != new {
            self.event(now, Some(path.id), "quic:mtu_updated", |data| {
                if old > 0 {
                    data.number("old", old.into());
                }
                data.number("new", new.into());
            });
        }
    }

    /// The end; with what this end says, if it is this one that closes.
    pub(crate) fn closed(&mut self, now: Time, error: &ConnectionError, own: (u64, &[u8])) {
        let (initiator, trigger) = match error {
            ConnectionError::LocallyClosed => ("local", "application"),
            ConnectionError::ApplicationClosed { .. } => ("remote", "application"),
            ConnectionError::PeerClosed(_) => ("remote", "error"),
            ConnectionError::Transport(_) => ("local", "error"),
            ConnectionError::Reset => ("remote", "stateless_reset"),
            ConnectionError::PortUnreachable => ("remote", "unspecified"),
            ConnectionError::TimedOut => ("local", "idle_timeout"),
            ConnectionError::VersionMismatch => ("local", "version_mismatch"),
        };
        self.event(now, None, "quic:connection_closed", |data| {
            data.text("initiator", initiator);
            let reason = match error {
                ConnectionError::ApplicationClosed { code, reason } => {
                    close_error(data, "application_error", true, *code);
                    reason.clone()
                }
                ConnectionError::PeerClosed(TransportError { code, reason })
                | ConnectionError::Transport(TransportError { code, reason }) => {
                    close_error(data, "connection_error", false, *code);
                    reason.clone()
                }
                ConnectionError::LocallyClosed => {
                    close_error(data, "application_error", true, own.0);
                    String::from_utf8_lossy(own.1).into_owned()
                }
                _ => String::new(),
            };
            if !reason.is_empty() {
                data.text("reason", &reason);
            }
            data.text("trigger", trigger);
        });
    }
}

fn put_packet(data: &mut Fields<'_>, packet: &Packet<'_>) {
    data.object("header", |header| put_header(header, packet.space, packet.number));
    data.array("frames", |list| frames::put_all(list, packet.payload, packet.ack_exponent));
    data.object("raw", |raw| raw.number("length", packet.len as u64));
}

fn put_header(header: &mut Fields<'_>, space: SpaceId, number: u64) {
    header.text(
        "packet_type",
        match space {
            SpaceId::Initial => "initial",
            SpaceId::Handshake => "handshake",
            SpaceId::Path(_) => "1RTT",
        },
    );
    header.number("packet_number", number);
}

fn endpoint(end: &mut Fields<'_>, address: SocketAddr) {
    let (ip, port) = match address {
        SocketAddr::V4(_) => ("ip_v4", "port_v4"),
        SocketAddr::V6(_) => ("ip_v6", "port_v6"),
    };
    end.text(ip, &address.ip().to_string());
    end.number(port, address.port().into());
}

/// Of a CONNECTION_CLOSE frame.
fn close_reason(fields: &mut Fields<'_>, application: bool, code: u64) {
    fields.text("error_space", if application { "application" } else { "transport" });
    close_error(fields, "error", application, code);
}

/// The error by its name; with its code where it has none.
fn close_error(fields: &mut Fields<'_>, key: &str, application: bool, code: u64) {
    match error_name(code).filter(|_| !application) {
        Some(name) => fields.text(key, &name),
        None => {
            fields.text(key, "unknown");
            fields.number("error_code", code);
        }
    }
}

fn error_name(code: u64) -> Option<String> {
    let name = match code {
        code::NO_ERROR => "no_error",
        code::INTERNAL => "internal_error",
        code::REFUSED => "connection_refused",
        code::FLOW_CONTROL => "flow_control_error",
        code::STREAM_LIMIT => "stream_limit_error",
        code::STREAM_STATE => "stream_state_error",
        code::FINAL_SIZE => "final_size_error",
        code::FRAME_ENCODING => "frame_encoding_error",
        code::TRANSPORT_PARAMETER => "transport_parameter_error",
        code::CONNECTION_ID_LIMIT => "connection_id_limit_error",
        code::PROTOCOL_VIOLATION => "protocol_violation",
        code::INVALID_TOKEN => "invalid_token",
        code::APPLICATION => "application_error",
        code::CRYPTO_BUFFER => "crypto_buffer_exceeded",
        code::KEY_UPDATE => "key_update_error",
        code::AEAD_LIMIT => "aead_limit_reached",
        code::CRYPTO..0x200 => return Some(format!("crypto_error_0x1{:02x}", code & 0xff)),
        _ => return None,
    };
    Some(name.to_owned())
}
