//! Receive path: removes header and packet protection, dispatches by packet type, keeps the counters.

use super::cids::LOCAL_CID_LEN;
use super::keys::Opened;
use super::state::Connection;
use crate::crypto;
use crate::error::{ConnectionError, TransportError, code};
use crate::event::PathId;
use crate::paths::{Route, mtu};
use crate::qlog;
use crate::recovery::received::Ecn;
use crate::recovery::space::SpaceId;
use crate::wire::header::{self, Header, Kind};
use vmcc_units::time::{Span, Time};

/// Answers to the peer's frames that may wait to be sent: a peer that asks for more than it acknowledges wants memory.
const MAX_REQUESTED: usize = 1024;

/// Bytes of the tag at the end of a handshake packet.
const TAG: usize = 16;

/// Circumstances of a UDP datagram that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) now: Time,
    pub(crate) route: Route,
    pub(crate) ecn: Ecn,
    /// Path that the connection id was issued for; none for ids of the handshake that name no path.
    pub(crate) path: Option<PathId>,
    /// Bytes of the datagram.
    pub(crate) len: usize,
}

impl Connection {
    /// A UDP datagram came that leads here by the connection id of its first packet, whose header this is.
    pub(crate) fn handle_datagram(&mut self, arrival: Arrival, first: Header, data: &mut [u8]) {
        if self.lifecycle.is_closed() {
            return;
        }
        let now = arrival.now;
        self.stats.datagrams_in += 1;
        self.stats.bytes_in += arrival.len as u64;
        if let Some(slot) = self.paths.slot_on(arrival.route) {
            self.paths[slot].validation.on_received(arrival.len as u64);
        }
        let dcid = first.dcid;
        let (mut rest, mut next, mut known) = (data, Some(first), false);
        while let Some(header) = next {
            let (packet, behind) = rest.split_at_mut(header.end);
            rest = behind;
            match self.on_packet(&arrival, packet, &header) {
                Ok(readable) => known |= readable,
                Err(error) => self.fail(now, error),
            }
            // Packets to another id than the first are ignored (RFC 9000 section 12.2).
            next = header::decode(rest, LOCAL_CID_LEN).ok().filter(|header| header.dcid == dcid);
        }
        if self.pending.requested() > MAX_REQUESTED {
            let error = TransportError::new(code::INTERNAL, "too much is asked without an acknowledgment");
            self.fail(now, error);
        }
        if known && self.lifecycle.is_closing() {
            self.lifecycle.on_packet();
        }
    }

    /// Processes one packet; returns true if it was this connection's.
    fn on_packet(
        &mut self,
        arrival: &Arrival,
        packet: &mut [u8],
        header: &Header,
    ) -> Result<bool, TransportError> {
        match header.kind {
            // RFC 9000 section 14.1: a server discards Initial packets in small datagrams.
            Kind::Initial if !self.handshake.is_client() && arrival.len < usize::from(mtu::BASE) => Ok(false),
            Kind::Initial => self.on_long(arrival, packet, header, SpaceId::Initial),
            Kind::Handshake => self.on_long(arrival, packet, header, SpaceId::Handshake),
            Kind::Short => self.on_short(arrival, packet, header),
            Kind::Retry => {
                self.on_retry(packet, header);
                Ok(false)
            }
            Kind::VersionNegotiation => {
                self.on_version_negotiation(arrival.now, packet, header);
                Ok(false)
            }
            Kind::ZeroRtt => Ok(false),
        }
    }

    fn on_long(
        &mut self,
        arrival: &Arrival,
        packet: &mut [u8],
        header: &Header,
        space: SpaceId,
    ) -> Result<bool, TransportError> {
        let now = arrival.now;
        let Some(level) = self.handshake.level(space) else { return Ok(false) };
        let Some((open, len)) = level.open(packet, header) else { return Ok(false) };
        if !self.cids.accept_source(header.scid) {
            return Ok(false);
        }
        if open.first & header::RESERVED_LONG != 0 {
            return Err(TransportError::violation("reserved bits are set"));
        }
        let payload = &packet[open.header..open.header + len];
        if self.is_over() {
            self.process_closing_payload(now, payload);
            return Ok(true);
        }
        if space == SpaceId::Handshake && !self.handshake.is_client() {
            // Only who received the Initial has the keys (RFC 9000 section 8.1).
            self.paths[0].validation.set_validated();
            self.discard(SpaceId::Initial);
        }
        self.log_received(arrival, space, open.pn, open.header + len + TAG, payload);
        let kind = self.on_payload(arrival, space, 0, payload)?;
        if let Some(space) = self.space_mut(space) {
            // What is asked in the handshake is answered without delay.
            space.received.record(now, open.pn, kind.eliciting, arrival.ecn, Span::ZERO);
        }
        self.on_authenticated(now, 0);
        Ok(true)
    }

    fn on_short(
        &mut self,
        arrival: &Arrival,
        packet: &mut [u8],
        header: &Header,
    ) -> Result<bool, TransportError> {
        let now = arrival.now;
        let Some(path) = arrival.path.filter(|&path| self.cids.is_issued(path, &header.dcid)) else {
            return self.on_undecryptable(now, packet);
        };
        let slot = self.paths.slot_of(path);
        let established = !self.lifecycle.is_handshaking();
        let Some(keys) = self.handshake.one_rtt_mut().filter(|_| established) else {
            return Ok(false);
        };
        let received = slot.map(|slot| &self.paths[slot].space.received);
        let expected = received.map_or(0, |received| received.expected());
        let open = keys.unprotect(packet, header.pn_offset, expected);
        let Some(open) = open else { return self.on_undecryptable(now, packet) };
        if received.is_some_and(|received| received.is_duplicate(open.pn)) {
            return Ok(false);
        }
        let phase = open.first & header::KEY_PHASE != 0;
        let tail = *packet.last_chunk::<16>().unwrap_or(&[0; 16]);
        let (head, payload) = packet.split_at_mut(open.header);
        let len = match keys.open(path, open.pn, phase, head, payload, now)? {
            Opened::Payload(len) => len,
            Opened::Unreadable => {
                self.handle_reset(now, &tail);
                return Ok(false);
            }
        };
        if open.first & header::RESERVED_SHORT != 0 {
            return Err(TransportError::violation("reserved bits are set"));
        }
        let payload = &payload[..len];
        if self.is_over() {
            // The error is reported again there.
            if let Some(slot) = slot {
                self.paths[slot].last_received_at = now;
            }
            self.process_closing_payload(now, payload);
            return Ok(true);
        }
        let Some(slot) = slot.or_else(|| self.accept_path(now, path, arrival.route, packet.len())) else {
            return Ok(true);
        };
        let (space, payload) = (SpaceId::Path(slot), &packet[open.header..open.header + len]);
        self.log_received(arrival, space, open.pn, packet.len(), payload);
        let kind = self.on_payload(arrival, space, slot, payload)?;
        let delay = self.config.max_ack_delay;
        let received = &mut self.paths[slot].space.received;
        let newest = open.pn >= received.expected();
        received.record(now, open.pn, kind.eliciting, arrival.ecn, delay);
        self.on_authenticated(now, slot);
        if newest && arrival.route != self.paths[slot].route && !kind.probing {
            self.on_peer_migration(now, slot, arrival.route, packet.len());
        }
        Ok(true)
    }

    fn log_received(&mut self, arrival: &Arrival, space: SpaceId, number: u64, len: usize, payload: &[u8]) {
        if let Some(log) = &mut self.log {
            let path = self.paths[space.slot()].id;
            let ack_exponent = self.handshake.peer().ack_delay_exponent;
            let packet = qlog::Packet { space, path, number, len, payload, ack_exponent };
            log.received(arrival.now, &packet, arrival.ecn);
        }
    }

    fn on_undecryptable(&mut self, now: Time, packet: &[u8]) -> Result<bool, TransportError> {
        if let Some(tail) = packet.last_chunk::<16>() {
            self.handle_reset(now, tail);
        }
        Ok(false)
    }

    /// Ends the connection if a packet that cannot be read ends with a stateless reset token of the peer's.
    pub(crate) fn handle_reset(&mut self, now: Time, tail: &[u8; 16]) {
        if self.reset_tokens().any(|token| crypto::is_same(token, tail)) {
            self.end(now, ConnectionError::Reset);
        }
    }

    /// An authenticated packet of the peer has arrived on a path.
    fn on_authenticated(&mut self, now: Time, slot: usize) {
        self.paths[slot].last_received_at = now;
        self.paths[slot].refused_since = None;
        self.idle.on_received(now, self.longest_pto());
    }
}
