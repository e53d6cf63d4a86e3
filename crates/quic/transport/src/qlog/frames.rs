//! The frames of a packet, as draft-ietf-quic-qlog-quic-events has them; those of multipath QUIC by their names.

use super::json::{Elements, Fields};
use crate::wire::ack::Ack;
use crate::wire::frame::{Frame, NewCid, ty};
use crate::wire::varint::Reader;
use vmcc_streams::{Dir, Frame as StreamFrame};
use vmcc_units::time::Span;

/// Ranges of an acknowledgment that are written; the highest, which are the news.
const MAX_RANGES: usize = 32;

/// The frames of a readable packet.
pub(super) fn put_all(list: &mut Elements<'_>, payload: &[u8], ack_exponent: u64) {
    let mut reader = Reader::new(payload);
    let mut padding = 0;
    while !reader.is_empty() {
        match Frame::decode(&mut reader) {
            Ok((_, Frame::Padding)) => padding += 1,
            Ok((kind, frame)) => list.object(|fields| put(fields, kind, &frame, ack_exponent)),
            Err(_) => break,
        }
    }
    if padding > 0 {
        list.object(|fields| {
            fields.text("frame_type", "padding");
            fields.object("raw", |raw| raw.number("payload_length", padding));
        });
    }
}

fn put(fields: &mut Fields<'_>, kind: u64, frame: &Frame<'_>, ack_exponent: u64) {
    let mut name = |name: &str| fields.text("frame_type", name);
    match frame {
        Frame::Padding => name("padding"),
        Frame::Ping => name("ping"),
        Frame::Ack { path, ack } => put_ack(fields, *path, ack, ack_exponent),
        Frame::Stream(StreamFrame::ResetStream { id, code, final_size }) => {
            name("reset_stream");
            fields.number("stream_id", *id);
            application_error(fields, *code);
            fields.number("final_size", *final_size);
        }
        Frame::Stream(StreamFrame::StopSending { id, code }) => {
            name("stop_sending");
            fields.number("stream_id", *id);
            application_error(fields, *code);
        }
        Frame::Crypto { offset, data } => {
            name("crypto");
            fields.number("offset", *offset);
            length(fields, data);
        }
        Frame::NewToken(token) => {
            name("new_token");
            fields.object("token", |own| length(own, token));
        }
        Frame::Stream(StreamFrame::Data { id, offset, data, fin }) => {
            name("stream");
            fields.number("stream_id", *id);
            fields.number("offset", *offset);
            fields.flag("fin", *fin);
            length(fields, data);
        }
        Frame::Datagram(data) => {
            name("datagram");
            length(fields, data);
        }
        Frame::PathChallenge(data) => {
            name("path_challenge");
            fields.bytes("data", &data.to_be_bytes());
        }
        Frame::PathResponse(data) => {
            name("path_response");
            fields.bytes("data", &data.to_be_bytes());
        }
        Frame::Close { application, code, reason } => {
            name("connection_close");
            super::close_reason(fields, *application, *code);
            fields.text("reason", &String::from_utf8_lossy(reason));
        }
        Frame::HandshakeDone => name("handshake_done"),
        Frame::NewConnectionId { multipath, new } => put_new_id(fields, *multipath, new),
        other => put_limits(fields, kind, other),
    }
}

fn put_limits(fields: &mut Fields<'_>, kind: u64, frame: &Frame<'_>) {
    let name = match kind {
        ty::MAX_DATA => "max_data",
        ty::MAX_STREAM_DATA => "max_stream_data",
        ty::MAX_STREAMS_BIDI | ty::MAX_STREAMS_UNI => "max_streams",
        ty::DATA_BLOCKED => "data_blocked",
        ty::STREAM_DATA_BLOCKED => "stream_data_blocked",
        ty::STREAMS_BLOCKED_BIDI | ty::STREAMS_BLOCKED_UNI => "streams_blocked",
        ty::RETIRE_CONNECTION_ID => "retire_connection_id",
        ty::PATH_ABANDON => "path_abandon",
        ty::PATH_STATUS_BACKUP => "path_status_backup",
        ty::PATH_STATUS_AVAILABLE => "path_status_available",
        ty::PATH_RETIRE_CONNECTION_ID => "path_retire_connection_id",
        ty::MAX_PATH_ID => "max_path_id",
        ty::PATHS_BLOCKED => "paths_blocked",
        ty::PATH_CIDS_BLOCKED => "path_cids_blocked",
        _ => "unknown",
    };
    fields.text("frame_type", name);
    let mut numbers = |all: &[(&str, u64)]| all.iter().for_each(|(key, value)| fields.number(key, *value));
    match *frame {
        Frame::Stream(StreamFrame::MaxData(maximum)) => numbers(&[("maximum", maximum)]),
        Frame::Stream(StreamFrame::MaxStreamData { id, max }) => {
            numbers(&[("stream_id", id), ("maximum", max)])
        }
        Frame::Stream(StreamFrame::MaxStreams { dir, max }) => {
            fields.text("stream_type", direction(dir));
            fields.number("maximum", max);
        }
        Frame::Stream(StreamFrame::StreamDataBlocked { id }) => numbers(&[("stream_id", id)]),
        Frame::RetireConnectionId { path, seq } => {
            numbers(&[("sequence_number", seq)]);
            path.into_iter().for_each(|path| fields.number("path_id", path.into()));
        }
        Frame::PathAbandon { path, code } => numbers(&[("path_id", path.into()), ("error_code", code)]),
        Frame::PathStatus { path, seq, .. } => numbers(&[("path_id", path.into()), ("sequence_number", seq)]),
        Frame::MaxPathId(max) | Frame::PathsBlocked(max) => numbers(&[("maximum_path_id", max.into())]),
        Frame::PathCidsBlocked { path } => numbers(&[("path_id", path.into())]),
        _ => {}
    }
}

fn put_ack(fields: &mut Fields<'_>, path: Option<u32>, ack: &Ack<'_>, exponent: u64) {
    fields.text("frame_type", if path.is_some() { "path_ack" } else { "ack" });
    path.into_iter().for_each(|path| fields.number("path_id", path.into()));
    fields.time("ack_delay", Span::from_us(ack.delay.saturating_mul(1 << exponent.min(20)).min(1 << 40)));
    fields.array("acked_ranges", |list| {
        ack.ranges().take(MAX_RANGES).for_each(|range| list.numbers(*range.start(), *range.end()));
    });
    if let Some(counts) = ack.ecn {
        fields.number("ect1", counts.ect1);
        fields.number("ect0", counts.ect0);
        fields.number("ce", counts.ce);
    }
}

/// Without the token, by which anybody could end the connection.
fn put_new_id(fields: &mut Fields<'_>, multipath: bool, new: &NewCid) {
    fields.text("frame_type", if multipath { "path_new_connection_id" } else { "new_connection_id" });
    if multipath {
        fields.number("path_id", new.path.into());
    }
    fields.number("sequence_number", new.seq);
    fields.number("retire_prior_to", new.retire_prior_to);
    fields.bytes("connection_id", new.id.as_slice());
}

fn length(fields: &mut Fields<'_>, data: &[u8]) {
    fields.object("raw", |raw| raw.number("length", data.len() as u64));
}

fn application_error(fields: &mut Fields<'_>, code: u64) {
    fields.text("error", "unknown");
    fields.number("error_code", code);
}

fn direction(dir: Dir) -> &'static str {
    match dir {
        Dir::Bi => "bidirectional",
        Dir::Uni => "unidirectional",
    }
}
