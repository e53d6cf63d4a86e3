//! The end of a connection (RFC 9000 section 10).

use super::lifecycle::CloseFrame;
use super::packet::Transmit;
use super::state::Connection;
use crate::error::{ConnectionError, TransportError, code};
use crate::event::Event;
use crate::paths::mtu;
use crate::recovery::space::SpaceId;
use crate::wire::frame::{self, Frame};
use crate::wire::varint::{self, Reader};
use vmcc_units::time::Time;

/// The closing period in probe timeouts (RFC 9000 section 10.2).
const CLOSING_PTOS: u64 = 3;
/// Bytes of a reason that are sent.
const MAX_REASON: usize = 200;

/// Bytes of CONNECTION_CLOSE beside its reason at most: type, code, type of a frame, length of the reason.
const CLOSE_OVERHEAD: usize = 1 + 8 + 1 + 2;

impl Connection {
    /// Closes the connection with a code and a reason for the peer's application. What was written and has not arrived is lost.
    pub fn close(&mut self, now: Time, code: u64, reason: &[u8]) {
        self.begin_closing(now, true, code.min(varint::MAX), reason, ConnectionError::LocallyClosed);
    }

    /// Closes the connection with a transport error.
    pub(super) fn fail(&mut self, now: Time, error: TransportError) {
        let reason = error.reason.clone();
        self.begin_closing(now, false, error.code, reason.as_bytes(), ConnectionError::Transport(error));
    }

    fn begin_closing(
        &mut self,
        now: Time,
        application: bool,
        code: u64,
        reason: &[u8],
        error: ConnectionError,
    ) {
        if !self.is_over() {
            let reason = reason[..reason.len().min(MAX_REASON)].to_vec();
            let frame = CloseFrame { application, code, reason };
            self.lifecycle.close(self.closing_end(now), frame, error.clone());
            self.report_end(now, error);
        }
    }

    /// Ends the connection without CONNECTION_CLOSE: nothing can be sent, or nobody would receive it.
    pub(super) fn end(&mut self, now: Time, error: ConnectionError) {
        if !self.is_over() {
            self.lifecycle.end(self.closing_end(now), error.clone());
            self.report_end(now, error);
        }
    }

    fn closing_end(&self, now: Time) -> Time {
        now + self.longest_pto().times(CLOSING_PTOS)
    }

    fn report_end(&mut self, now: Time, error: ConnectionError) {
        if let Some(log) = &mut self.log {
            let frame = self.lifecycle.close_frame();
            log.closed(now, &error, (frame.code, &frame.reason));
        }
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
                    self.lifecycle.drain(self.closing_end(now));
                    return;
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// CONNECTION_CLOSE in every kind of packet that the peer may be able to read.
    pub(super) fn transmit_close(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        if !self.lifecycle.take_due() {
            return None;
        }
        let slot = self.paths.last_heard();
        let room = usize::try_from(self.paths[slot].validation.amplification_room()).unwrap_or(usize::MAX);
        let limit = usize::from(mtu::BASE).min(room);
        let spaces = [SpaceId::Initial, SpaceId::Handshake, SpaceId::Path(slot)];
        for space in spaces {
            // Before the handshake is confirmed nobody knows which keys the peer has still, or already (RFC 9000 section 10.2.3).
            let short = matches!(space, SpaceId::Path(_));
            if short && self.handshake.one_rtt().is_none() {
                continue;
            }
            let Some(building) = self.begin_packet(space, out, limit) else { continue };
            // The handshake's packets do not tell what the application says (RFC 9000 section 10.2.3).
            let own = self.lifecycle.close_frame();
            match own.application && !short {
                true => frame::put_close(out, false, code::APPLICATION, &[]),
                false => {
                    let most = building.room(out).saturating_sub(CLOSE_OVERHEAD);
                    let reason = &own.reason[..own.reason.len().min(most)];
                    frame::put_close(out, own.application, own.code, reason);
                }
            }
            let pad = match space {
                SpaceId::Initial if self.handshake.is_client() => limit,
                _ => 0,
            };
            self.finish_packet(now, slot, building, out, pad, false);
            if pad > 0 {
                break;
            }
        }
        let path = &mut self.paths[slot];
        path.validation.on_sent(out.len() as u64);
        (!out.is_empty()).then_some(Transmit {
            route: path.route,
            ect: false,
            segment: out.len(),
            len: out.len(),
        })
    }
}
