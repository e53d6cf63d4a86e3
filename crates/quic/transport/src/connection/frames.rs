//! Dispatch of received frames.

use super::receive::Arrival;
use super::state::Connection;
use crate::error::{TransportError, code};
use crate::event::{Event, PathId};
use crate::recovery::space::SpaceId;
use crate::wire::frame::Frame;
use crate::wire::varint::Reader;
use vmcc_streams::Frame as StreamFrame;

/// Combined properties of a packet's frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct PayloadKind {
    pub(super) eliciting: bool,
    /// Nothing but frames that probe a path.
    pub(super) probing: bool,
}

impl Connection {
    /// The frames of a packet that came in `space`, on the path at `slot`.
    pub(super) fn on_payload(
        &mut self,
        arrival: &Arrival,
        space: SpaceId,
        slot: usize,
        payload: &[u8],
    ) -> Result<PayloadKind, TransportError> {
        if payload.is_empty() {
            return Err(TransportError::violation("a packet without frames"));
        }
        let mut all = PayloadKind { eliciting: false, probing: true };
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            let (kind, frame) = Frame::decode(&mut reader)
                .map_err(|_| TransportError::new(code::FRAME_ENCODING, "a frame cannot be read"))?;
            let in_handshake = !matches!(space, SpaceId::Path(_));
            if in_handshake && !frame.is_allowed_in_handshake() {
                return Err(TransportError::violation(&format!("frame {kind:#x} in a handshake packet")));
            }
            if frame.is_multipath() && !self.paths.is_multipath() {
                return Err(TransportError::violation("a multipath frame without the extension"));
            }
            all.eliciting |= frame.is_ack_eliciting();
            all.probing &= frame.is_probing();
            self.on_frame(arrival, space, slot, frame)?;
            if self.is_over() {
                break;
            }
        }
        Ok(all)
    }

    fn on_frame(
        &mut self,
        arrival: &Arrival,
        space: SpaceId,
        slot: usize,
        frame: Frame<'_>,
    ) -> Result<(), TransportError> {
        let now = arrival.now;
        match frame {
            Frame::Padding | Frame::Ping => {}
            Frame::Ack { path: None, ack } => {
                let space =
                    if matches!(space, SpaceId::Path(_)) { self.space_of_path(0) } else { Some(space) };
                if let Some(space) = space {
                    self.on_ack(now, space, &ack)?;
                }
            }
            Frame::Ack { path: Some(path), ack } => {
                self.paths.check(path)?;
                if let Some(space) = self.space_of_path(path) {
                    self.on_ack(now, space, &ack)?;
                }
            }
            Frame::Crypto { offset, data } => self.on_crypto(now, space, offset, data)?,
            Frame::Stream(frame) => {
                if let StreamFrame::Data { data, .. } = frame {
                    self.paths[slot].payload_in += data.len() as u64;
                    self.paths[slot].inflow.on_payload(now);
                }
                self.streams.on_frame(frame)?;
            }
            Frame::Datagram(data) => {
                self.paths[slot].inflow.on_payload(now);
                self.on_datagram(data)?;
            }
            Frame::NewToken(token) => self.on_new_token(token)?,
            Frame::HandshakeDone => self.on_handshake_done()?,
            Frame::Close { application, code, reason } => self.on_close(now, application, code, reason),
            Frame::PathChallenge(data) => self.on_challenge(arrival, slot, data),
            Frame::PathResponse(data) => self.on_response(now, slot, data),
            _ => self.on_path_frame(arrival, frame)?,
        }
        Ok(())
    }

    /// Frames about paths and their connection ids.
    fn on_path_frame(&mut self, arrival: &Arrival, frame: Frame<'_>) -> Result<(), TransportError> {
        match frame {
            Frame::NewConnectionId { new, .. } => self.on_new_cid(new),
            Frame::RetireConnectionId { path, seq } => self.on_retire_cid(path.unwrap_or(0), seq),
            Frame::PathAbandon { path, code } => self.on_path_abandon(arrival.now, path, code),
            Frame::PathStatus { path, seq, available } => {
                self.paths.check(path)?;
                self.paths.on_status(path, seq, available);
                Ok(())
            }
            Frame::MaxPathId(max) => {
                self.on_max_path_id(max);
                Ok(())
            }
            Frame::PathsBlocked(max) => self.on_paths_blocked(max),
            Frame::PathCidsBlocked { path } => self.paths.check(path),
            _ => Ok(()),
        }
    }

    fn space_of_path(&self, path: PathId) -> Option<SpaceId> {
        self.paths.slot_of(path).map(SpaceId::Path)
    }

    fn on_handshake_done(&mut self) -> Result<(), TransportError> {
        if !self.handshake.is_client() {
            return Err(TransportError::violation("HANDSHAKE_DONE of a client"));
        }
        self.confirm();
        Ok(())
    }

    fn on_new_token(&mut self, token: &[u8]) -> Result<(), TransportError> {
        if !self.handshake.is_client() {
            return Err(TransportError::violation("NEW_TOKEN of a client"));
        }
        self.handshake.tokens.received = Some(token.to_vec());
        Ok(())
    }

    fn on_datagram(&mut self, data: &[u8]) -> Result<(), TransportError> {
        if data.len() as u64 + 1 > self.handshake.local().max_datagram_frame {
            return Err(TransportError::violation("a datagram larger than what is taken"));
        }
        if self.datagrams.on_received(data) {
            self.events.push_back(Event::DatagramReceived);
        }
        Ok(())
    }
}
