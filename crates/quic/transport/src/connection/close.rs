//! The end of a connection (RFC 9000 section 10).

use super::*;
use crate::error::{TransportError, code};
use crate::wire::frame::{self, Frame};
use crate::wire::varint::Reader;

/// The closing period in probe timeouts (RFC 9000 section 10.2).
const CLOSING_PTOS: u64 = 3;
/// Bytes of a reason that are sent.
const MAX_REASON: usize = 200;

/// CONNECTION_CLOSE to send, and its repetition.
#[derive(Clone, Debug)]
pub(super) struct Close {
    application: bool,
    code: u64,
    reason: Vec<u8>,
    pub(super) until: Time,
    /// To be sent now.
    due: bool,
    /// Packets received since it was sent last, and the number after which it is sent again.
    packets_since_sent: u32,
    resend_after: u32,
}

impl Default for Close {
    fn default() -> Close {
        Close {
            application: false,
            code: 0,
            reason: Vec::new(),
            until: Time::NEVER,
            due: false,
            packets_since_sent: 0,
            resend_after: 1,
        }
    }
}

impl Close {
    /// Counts a packet in the closing period; CONNECTION_CLOSE is resent after 1, 2, 4, ... of them (RFC 9000 section 10.2.1).
    pub(super) fn on_packet(&mut self) {
        self.packets_since_sent += 1;
        if self.packets_since_sent >= self.resend_after {
            (self.due, self.packets_since_sent) = (true, 0);
            self.resend_after = self.resend_after.saturating_mul(2);
        }
    }
}

impl Connection {
    /// Closes the connection with a code and a reason for the peer's application. What was written and has not arrived is lost.
    pub fn close(&mut self, now: Time, code: u64, reason: &[u8]) {
        if !self.is_over() {
            self.queue_close(now, true, code.min(crate::wire::varint::MAX), reason);
            self.set_over(now, ConnectionError::LocallyClosed);
        }
    }

    /// Closes the connection with a transport error.
    pub(super) fn fail(&mut self, now: Time, error: TransportError) {
        if !self.is_over() {
            self.queue_close(now, false, error.code, error.reason.as_bytes());
            self.set_over(now, ConnectionError::Transport(error));
        }
    }

    fn queue_close(&mut self, now: Time, application: bool, code: u64, reason: &[u8]) {
        let until = now + self.longest_pto().times(CLOSING_PTOS);
        let reason = reason[..reason.len().min(MAX_REASON)].to_vec();
        self.close = Close { application, code, reason, until, due: true, ..Close::default() };
        self.state = State::Closing;
    }

    /// Ends the connection without CONNECTION_CLOSE: nothing can be sent, or nobody would receive it.
    pub(super) fn end(&mut self, now: Time, error: ConnectionError) {
        if self.is_over() {
            return;
        }
        let silent =
            matches!(error, ConnectionError::PeerClosed(_) | ConnectionError::ApplicationClosed { .. });
        self.close.until = now + self.longest_pto().times(CLOSING_PTOS);
        self.state = if silent { State::Draining } else { State::Closed };
        self.set_over(now, error);
    }

    fn set_over(&mut self, now: Time, error: ConnectionError) {
        if let Some(log) = &mut self.log {
            log.closed(now, &error, (self.close.code, &self.close.reason));
        }
        self.error = Some(error.clone());
        self.events.push_back(Event::Closed(error));
    }

    /// CONNECTION_CLOSE.
    pub(super) fn on_close(&mut self, now: Time, application: bool, code: u64, reason: &[u8]) {
        let reason = String::from_utf8_lossy(reason).into_owned();
        let error = match application {
            true => ConnectionError::ApplicationClosed { code, reason },
            false => ConnectionError::PeerClosed(TransportError { code, reason }),
        };
        self.end(now, error);
    }

    /// Reads a packet of the closing period: only the peer's CONNECTION_CLOSE matters.
    pub(super) fn process_closing_payload(&mut self, now: Time, payload: &[u8]) {
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            match Frame::decode(&mut reader) {
                Ok((_, Frame::Close { .. })) => {
                    (self.state, self.close.due) = (State::Draining, false);
                    self.close.until = self.close.until.min(now + self.longest_pto().times(CLOSING_PTOS));
                    return;
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Path on which the peer was heard last: another one may be silent although nobody could notice so far.
    fn slot_to_close_on(&self) -> usize {
        let rank = |path: &Path| (path.is_open(), !path.failed, path.last_received_at);
        let live = self.paths.iter().enumerate().rev().filter(|(_, path)| path.is_live());
        live.max_by_key(|(_, path)| rank(path)).map_or(0, |(slot, _)| slot)
    }

    /// CONNECTION_CLOSE in every kind of packet that the peer may be able to read.
    pub(super) fn transmit_close(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        if self.state != State::Closing || !std::mem::take(&mut self.close.due) {
            return None;
        }
        let slot = self.slot_to_close_on();
        let room = usize::try_from(self.paths[slot].amplification_room()).unwrap_or(usize::MAX);
        let limit = usize::from(crate::paths::mtu::BASE).min(room);
        let spaces = [SpaceId::Initial, SpaceId::Handshake, SpaceId::Path(slot)];
        for space in spaces {
            // Before the handshake is confirmed nobody knows which keys the peer has still, or already (RFC 9000 section 10.2.3).
            let short = matches!(space, SpaceId::Path(_));
            if short && self.one_rtt.is_none() {
                continue;
            }
            let Some(building) = self.begin_packet(space, out, limit) else { continue };
            // The handshake's packets do not tell what the application says (RFC 9000 section 10.2.3).
            let hidden = self.close.application && !short;
            match hidden {
                true => frame::put_close(out, false, code::APPLICATION, &[]),
                false => frame::put_close(out, self.close.application, self.close.code, &self.close.reason),
            }
            let pad = if space == SpaceId::Initial && self.side == Side::Client { limit } else { 0 };
            self.finish_packet(now, slot, building, out, pad, false);
            if pad > 0 {
                break;
            }
        }
        let route = self.paths[slot].route;
        self.paths[slot].bytes_out += out.len() as u64;
        (!out.is_empty()).then_some(Transmit { route, ect: false, segment: out.len(), len: out.len() })
    }
}
