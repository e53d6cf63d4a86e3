//! Frames that come, and who they are for.

use super::receive::PayloadKind;
use super::*;
use crate::error::{TransportError, code};
use crate::wire::frame::Frame;
use crate::wire::varint::Reader;
use vmcc_streams::Frame as StreamFrame;

/// Bytes that a datagram takes beside its own: empty ones are not free.
pub(super) const DATAGRAM_COST: usize = 64;

impl Connection {
    /// The frames of a packet that came in `space`, on the path at `slot`, from where `route` says.
    pub(super) fn on_payload(
        &mut self,
        now: Time,
        space: SpaceId,
        slot: usize,
        route: Route,
        payload: &[u8],
    ) -> Result<PayloadKind, TransportError> {
        if payload.is_empty() {
            return Err(TransportError::violation("a packet without frames"));
        }
        let mut nature = PayloadKind { eliciting: false, probing: true };
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            let (kind, frame) = Frame::decode(&mut reader)
                .map_err(|_| TransportError::new(code::FRAME_ENCODING, "a frame cannot be read"))?;
            let in_handshake = !matches!(space, SpaceId::Path(_));
            if in_handshake && !frame.is_allowed_in_handshake() {
                return Err(TransportError::violation(&format!("frame {kind:#x} in a handshake packet")));
            }
            if frame.is_multipath() && !self.multipath {
                return Err(TransportError::violation("a multipath frame without the extension"));
            }
            nature.eliciting |= frame.is_ack_eliciting();
            nature.probing &= frame.is_probing();
            self.on_frame(now, space, slot, route, frame)?;
            if self.is_over() {
                break;
            }
        }
        Ok(nature)
    }

    fn on_frame(
        &mut self,
        now: Time,
        space: SpaceId,
        slot: usize,
        route: Route,
        frame: Frame<'_>,
    ) -> Result<(), TransportError> {
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
                self.check_path(path)?;
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
            Frame::PathChallenge(data) => self.on_challenge(slot, route, data),
            Frame::PathResponse(data) => self.on_response(now, slot, data),
            _ => self.on_path_frame(now, frame)?,
        }
        Ok(())
    }

    /// Frames about paths and their connection ids.
    fn on_path_frame(&mut self, now: Time, frame: Frame<'_>) -> Result<(), TransportError> {
        match frame {
            Frame::NewConnectionId { new, .. } => self.on_new_cid(new),
            Frame::RetireConnectionId { path, seq } => self.on_retire_cid(path.unwrap_or(0), seq),
            Frame::PathAbandon { path, code } => self.on_path_abandon(now, path, code),
            Frame::PathStatus { path, seq, available } => self.on_path_status(path, seq, available),
            Frame::MaxPathId(max) => self.on_max_path_id(max),
            Frame::PathsBlocked(max) => self.on_paths_blocked(max),
            Frame::PathCidsBlocked { path } => self.check_path(path),
            _ => Ok(()),
        }
    }

    fn space_of_path(&self, path: PathId) -> Option<SpaceId> {
        self.slot_of(path).map(SpaceId::Path)
    }

    fn on_handshake_done(&mut self) -> Result<(), TransportError> {
        if self.side == Side::Server {
            return Err(TransportError::violation("HANDSHAKE_DONE of a client"));
        }
        self.confirm();
        Ok(())
    }

    fn on_new_token(&mut self, token: &[u8]) -> Result<(), TransportError> {
        if self.side == Side::Server {
            return Err(TransportError::violation("NEW_TOKEN of a client"));
        }
        self.new_token = Some(token.to_vec());
        Ok(())
    }

    fn on_datagram(&mut self, data: &[u8]) -> Result<(), TransportError> {
        if data.len() as u64 + 1 > self.local.max_datagram_frame {
            return Err(TransportError::violation("a datagram larger than what is taken"));
        }
        // The oldest go where nobody reads them.
        self.datagram_bytes_in += data.len() + DATAGRAM_COST;
        while self.datagram_bytes_in > self.config.datagram_buffer {
            let Some(oldest) = self.datagrams_in.pop_front() else { break };
            self.datagram_bytes_in -= oldest.len() + DATAGRAM_COST;
            self.stats.datagrams_dropped += 1;
        }
        if self.datagrams_in.is_empty() {
            self.events.push_back(Event::DatagramReceived);
        }
        self.datagrams_in.push_back(data.to_vec());
        Ok(())
    }
}
