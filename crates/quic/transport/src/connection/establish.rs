//! The handshake's effects on the other parts of a connection, Retry and Version Negotiation.

use super::state::Connection;
use crate::crypto;
use crate::error::{ConnectionError, TransportError};
use crate::event::Event;
use crate::recovery::sent::Control;
use crate::recovery::space::SpaceId;
use crate::wire::header::{self, Header};
use vmcc_units::time::Time;

impl Connection {
    /// CRYPTO data of a space came.
    pub(super) fn on_crypto(
        &mut self,
        now: Time,
        space: SpaceId,
        offset: u64,
        data: &[u8],
    ) -> Result<(), TransportError> {
        let established = !self.lifecycle.is_handshaking();
        if self.handshake.on_crypto(space, offset, data, established)? {
            if self.handshake.take_peer_params(self.cids.handshake())? {
                self.adopt_peer_params();
            }
            self.complete(now)?;
        }
        Ok(())
    }

    /// The peer's parameters hold from now on.
    fn adopt_peer_params(&mut self) {
        let params = self.handshake.peer();
        self.streams.set_peer(&params.stream_limits());
        self.idle.limit(params.max_idle_timeout_ms);
        if let Some(token) = params.reset_token {
            self.cids.set_first_token(token);
        }
        self.paths[0].mtu.limit(params.max_udp_payload);
        if let (Some(_), Some(max)) = (self.handshake.local().initial_max_path_id, params.initial_max_path_id)
        {
            self.paths.negotiate(max);
        }
        self.on_mtu(0);
    }

    /// Completes the handshake if nothing is missing.
    fn complete(&mut self, now: Time) -> Result<(), TransportError> {
        if !self.lifecycle.is_handshaking() || !self.handshake.is_complete()? {
            return Ok(());
        }
        self.lifecycle.establish();
        if let Some(log) = &mut self.log {
            log.state(now, "handshake_complete");
        }
        self.idle.restart(now, self.longest_pto());
        self.windows.set_multipath(self.paths.is_multipath());
        if !self.handshake.is_client() {
            self.queue(Control::HandshakeDone);
            if !self.handshake.tokens.issued.is_empty() {
                self.queue(Control::NewToken);
            }
            self.confirm();
        }
        self.issue_cids();
        self.events.push_back(Event::Connected);
        Ok(())
    }

    /// Both ends have the keys (RFC 9001 section 4.1.2): discards those of the handshake.
    pub(super) fn confirm(&mut self) {
        if self.handshake.confirm() {
            self.discard(SpaceId::Handshake);
        }
    }

    /// Discards a level's keys, and what was in flight with them.
    pub(super) fn discard(&mut self, space: SpaceId) {
        let in_flight = self.handshake.discard(space);
        self.free_handshake(in_flight);
    }

    /// Frees the window of discarded handshake packets, and ends probing for them.
    fn free_handshake(&mut self, in_flight: Option<(u64, u64)>) {
        if let Some((packets, bytes)) = in_flight {
            self.windows.free(0, packets, bytes);
            let path = &mut self.paths[0];
            (path.pto_count, path.probes) = (0, 0);
        }
    }

    fn is_untouched_client(&self) -> bool {
        self.handshake.is_client() && self.cids.handshake().peer.is_none() && self.lifecycle.is_handshaking()
    }

    /// Retry: the server asks its client to prove its address (RFC 9000 section 17.2.5).
    pub(super) fn on_retry(&mut self, packet: &[u8], header: &Header) {
        let ids = *self.cids.handshake();
        let token = &packet[header.token.clone()];
        let whole = packet.split_at(header.token.end);
        let tag = crypto::retry_tag(ids.original.as_slice(), whole.0);
        let fresh = self.is_untouched_client()
            && ids.retry.is_none()
            && !token.is_empty()
            && header.scid != ids.original;
        if fresh && header.dcid == ids.own && crypto::is_same(&tag, whole.1) {
            let keys = self.handshake.initial_keys(header.scid.as_slice());
            self.cids.on_retry(header.scid);
            let in_flight = self.handshake.on_retry(token, keys);
            self.free_handshake(in_flight);
        }
    }

    pub(super) fn on_version_negotiation(&mut self, now: Time, packet: &[u8], header: &Header) {
        let ids = self.cids.handshake();
        let versions = &packet[header.pn_offset..];
        let is_answer = header.scid == ids.original && ids.retry.is_none() && self.is_untouched_client();
        let has_ours = versions.chunks(4).any(|version| version == header::VERSION_1.to_be_bytes());
        if is_answer && !has_ours && versions.len() >= 4 {
            self.end(now, ConnectionError::VersionMismatch);
        }
    }
}
