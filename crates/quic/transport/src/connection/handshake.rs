//! The handshake: TLS messages in CRYPTO frames, keys as they come, transport parameters (RFC 9001 section 4).

use super::*;
use crate::crypto::NewKeys;
use crate::error::{TransportError, code};

/// Bytes of handshake messages that may come before those in front of them (RFC 9000 section 7.5 asks for at least 4096).
const CRYPTO_AHEAD: u64 = 16 << 10;

impl Connection {
    /// CRYPTO data of a space came.
    pub(super) fn on_crypto(
        &mut self,
        now: Time,
        space: SpaceId,
        offset: u64,
        data: &[u8],
    ) -> Result<(), TransportError> {
        // What comes at a level that is done with is late, or not the peer's: anyone has the keys of Initial packets.
        let done = match space {
            SpaceId::Initial => self.levels[1].is_some(),
            SpaceId::Handshake => self.state != State::Handshaking,
            SpaceId::Path(_) => false,
        };
        if done {
            return Ok(());
        }
        let buffer = match space {
            SpaceId::Path(_) => &mut self.crypto.1,
            _ => match self.level_mut(space) {
                Some(level) => &mut level.recv,
                None => return Ok(()),
            },
        };
        if offset + data.len() as u64 > buffer.offset() + CRYPTO_AHEAD {
            return Err(TransportError::new(code::CRYPTO_BUFFER, "handshake data too far ahead"));
        }
        buffer.write(offset, data);
        let mut message = vec![0; buffer.readable() as usize];
        let len = buffer.read(&mut message);
        if len == 0 {
            return Ok(());
        }
        let failed = self.session.read(&message[..len]).err();
        if let Some(error) = failed {
            return Err(TransportError::new(code::CRYPTO + u64::from(error.alert), error.reason));
        }
        self.write_handshake();
        self.take_peer_params()?;
        self.complete(now)
    }

    /// Moves what TLS has to say into CRYPTO frames, and takes keys into use.
    pub(super) fn write_handshake(&mut self) {
        loop {
            let mut out = Vec::new();
            let keys = self.session.write(&mut out);
            let buffer = match self.write_level {
                2 => Some(&mut self.crypto.0),
                level => self.levels[level].as_mut().map(|level| &mut level.send),
            };
            if let Some(buffer) = buffer {
                buffer.write(&out);
            }
            match keys {
                Some(NewKeys::Handshake(keys)) => {
                    self.levels[1] = Some(Level::new(keys));
                    self.write_level = 1;
                }
                Some(NewKeys::OneRtt(keys, update)) => {
                    self.one_rtt = Some(OneRtt::new(keys, update));
                    self.write_level = 2;
                }
                None if out.is_empty() => return,
                None => {}
            }
        }
    }

    fn take_peer_params(&mut self) -> Result<(), TransportError> {
        // Before the handshake has brought the server's, a client that resumes a session may be shown those of the session before.
        let brought = self.side == Side::Server || self.one_rtt.is_some();
        if self.peer_known || !brought {
            return Ok(());
        }
        let Some(bytes) = self.session.peer_params() else { return Ok(()) };
        let refuse = |reason: &str| TransportError::new(code::TRANSPORT_PARAMETER, reason);
        let params = Params::decode(bytes, self.side == Side::Client)
            .map_err(|_| refuse("malformed or out of range"))?;
        if params.initial_scid != self.peer_cid {
            return Err(refuse("the source connection id is not that of the packets"));
        }
        let (original, retry) = match self.side {
            Side::Client => (Some(self.original_dcid), self.retry_scid),
            Side::Server => (None, None),
        };
        if params.original_dcid != original || params.retry_scid != retry {
            return Err(refuse("the connection ids are not those of the handshake"));
        }
        // Packets of several paths could not be told apart (draft-ietf-quic-multipath-21 section 2.1).
        if params.initial_max_path_id.is_some() && self.peer_cid_is_empty() {
            return Err(TransportError::violation(
                "several paths are offered with a connection id of no bytes",
            ));
        }
        self.adopt(params);
        Ok(())
    }

    /// The peer's parameters hold from now on.
    fn adopt(&mut self, params: Params) {
        self.streams.set_peer(&params.stream_limits());
        if let Some(first) = self.remote_cids.get_mut(&0)
            && let Some(token) = params.reset_token
            && let Some(id) = first.active().map(|own| own.id)
        {
            first.set_first(id, Some(token));
            self.endpoint_events.push_back(EndpointEvent::ResetToken(token));
        }
        self.paths[0].mtu.limit(params.max_udp_payload);
        self.on_mtu(0);
        if let (Some(_), Some(max)) = (self.local.initial_max_path_id, params.initial_max_path_id) {
            self.multipath = true;
            self.peer_max_path = max;
        }
        (self.peer, self.peer_known) = (params, true);
    }

    /// Completes the handshake if nothing is missing.
    fn complete(&mut self, now: Time) -> Result<(), TransportError> {
        if self.state != State::Handshaking || self.session.is_handshaking() || self.one_rtt.is_none() {
            return Ok(());
        }
        if !self.peer_known {
            return Err(TransportError::new(code::CRYPTO + 109, "no transport parameters came"));
        }
        self.state = State::Established;
        if let Some(log) = &mut self.log {
            log.state(now, "handshake_complete");
        }
        self.touch_idle(now);
        self.controller.grouped = self.multipath && !self.windows.is_combined();
        if self.side == Side::Server {
            self.queue(Control::HandshakeDone);
            if !self.token_to_give.is_empty() {
                self.queue(Control::NewToken);
            }
            self.confirm();
        }
        self.issue_cids();
        self.events.push_back(Event::Connected);
        Ok(())
    }

    /// Both ends have the keys (RFC 9001 section 4.1.2): the handshake's go.
    pub(super) fn confirm(&mut self) {
        if !self.confirmed {
            self.confirmed = true;
            self.peer_validated = true;
            self.discard(SpaceId::Handshake);
        }
    }

    /// Lets go of a level's keys and of what was in flight with them (RFC 9001 section 4.9).
    pub(super) fn discard(&mut self, space: SpaceId) {
        let index = usize::from(space == SpaceId::Handshake);
        if let Some(mut level) = self.levels[index].take() {
            let (packets, bytes) = windows::in_flight(level.space.sent.drain());
            self.windows.free(0, packets, bytes);
            let path = &mut self.paths[0];
            (path.pto_count, path.probes) = (0, 0);
        }
    }

    /// A client was asked to prove its address (RFC 9000 section 17.2.5).
    pub(super) fn on_retry(&mut self, scid: ConnectionId, token: &[u8], keys: Keys) {
        self.retry_scid = Some(scid);
        self.token = token.to_vec();
        if let Some(cids) = self.remote_cids.get_mut(&0) {
            cids.set_first(scid, None);
        }
        let Some(old) = self.levels[0].take() else { return };
        let mut level = Level::new(keys);
        // Numbers go on, so that none is used twice.
        level.space = old.space;
        let (packets, bytes) = windows::in_flight(level.space.sent.drain());
        self.windows.free(0, packets, bytes);
        level.send = old.send;
        level.send.on_lost(0..level.send.unsent());
        self.levels[0] = Some(level);
        let path = &mut self.paths[0];
        (path.pto_count, path.probes) = (0, 0);
    }
}
