//! Receive path: removes header and packet protection, dispatches by packet type, keeps the counters.

use super::keys::Opened;
use super::*;
use crate::crypto::{self, HeaderProtectionKey};
use crate::error::{TransportError, code};
use crate::paths::mtu;
use crate::recovery::received::Ecn;
use crate::wire::header::{self, Header, Kind};

/// Answers to the peer's frames that may wait to be sent: a peer that asks for more than it acknowledges wants memory.
const MAX_REQUESTED: usize = 1024;

/// Bytes of the tag at the end of a handshake packet.
const TAG: usize = 16;

/// Combined properties of a packet's frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct PayloadKind {
    pub(super) eliciting: bool,
    /// Nothing but frames that probe a path.
    pub(super) probing: bool,
}

/// A packet whose header is readable.
struct Unprotected {
    pn: u64,
    /// Bytes of the header, the packet number included.
    header: usize,
    first: u8,
}

fn unprotect(
    key: &dyn HeaderProtectionKey,
    packet: &mut [u8],
    pn_offset: usize,
    expected: u64,
) -> Option<Unprotected> {
    let sample = header::sample(pn_offset, key.sample_len());
    if packet.len() < sample.end {
        return None;
    }
    let (head, tail) = packet.split_at_mut(sample.start);
    let (first, rest) = head.split_first_mut()?;
    let number = &mut rest[pn_offset - 1..];
    key.decrypt_in_place(&tail[..sample.len()], first, number).ok()?;
    let len = usize::from(*first & 3) + 1;
    let truncated = number[..len].iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
    let pn = header::expand_pn(truncated, len, expected);
    Some(Unprotected { pn, header: pn_offset + len, first: *first })
}

impl Connection {
    /// A UDP datagram came that leads here by its connection id.
    pub(crate) fn handle_datagram(&mut self, now: Time, route: Route, ecn: Ecn, data: &mut [u8]) {
        if self.state == State::Closed {
            return;
        }
        self.stats.datagrams_in += 1;
        self.stats.bytes_in += data.len() as u64;
        self.arriving = data.len() as u64;
        if let Some(path) = self.paths.iter_mut().find(|path| path.route == route && path.is_live()) {
            path.bytes_in += data.len() as u64;
        }
        let total = data.len();
        let mut rest = data;
        let mut known = false;
        while !rest.is_empty() {
            let Ok(header) = header::decode(rest, LOCAL_CID_LEN) else { break };
            let (packet, next) = rest.split_at_mut(header.end);
            rest = next;
            // RFC 9000 section 14.1: a server discards Initial packets in small datagrams.
            if header.kind == Kind::Initial && self.side == Side::Server && total < usize::from(mtu::BASE) {
                continue;
            }
            match self.on_packet(now, route, ecn, packet, &header) {
                Ok(readable) => known |= readable,
                Err(error) => self.fail(now, error),
            }
        }
        if self.pending.requested() > MAX_REQUESTED {
            self.fail(
                now,
                TransportError::new(code::INTERNAL, "too much is asked without an acknowledgment"),
            );
        }
        if known && self.state == State::Closing {
            self.close.on_packet();
        }
    }

    /// One packet; whether it was this connection's.
    fn on_packet(
        &mut self,
        now: Time,
        route: Route,
        ecn: Ecn,
        packet: &mut [u8],
        header: &Header,
    ) -> Result<bool, TransportError> {
        match header.kind {
            Kind::Initial => self.on_long(now, route, ecn, packet, header, SpaceId::Initial),
            Kind::Handshake => self.on_long(now, route, ecn, packet, header, SpaceId::Handshake),
            Kind::Short => self.on_short(now, route, ecn, packet, header),
            Kind::Retry => {
                self.on_retry_packet(packet, header);
                Ok(false)
            }
            Kind::VersionNegotiation => {
                if header.scid == self.original_dcid && self.retry_scid.is_none() {
                    self.on_version_negotiation(now, &packet[header.pn_offset..]);
                }
                Ok(false)
            }
            Kind::ZeroRtt => Ok(false),
        }
    }

    fn is_untouched_client(&self) -> bool {
        self.side == Side::Client && self.peer_cid.is_none() && self.state == State::Handshaking
    }

    fn on_retry_packet(&mut self, packet: &[u8], header: &Header) {
        let token = &packet[header.token.clone()];
        let whole = packet.split_at(header.token.end);
        let tag = crypto::retry_tag(self.original_dcid.as_slice(), whole.0);
        let fresh = self.is_untouched_client()
            && self.retry_scid.is_none()
            && !token.is_empty()
            && header.scid != self.original_dcid;
        if fresh && header.dcid == self.own_cid && crypto::is_same(&tag, whole.1) {
            let keys = self.initial_keys_of(&header.scid);
            self.on_retry(header.scid, token, keys);
        }
    }

    fn on_version_negotiation(&mut self, now: Time, versions: &[u8]) {
        let has_ours = versions.chunks(4).any(|version| version == header::VERSION_1.to_be_bytes());
        if self.is_untouched_client() && !has_ours && versions.len() >= 4 {
            self.end(now, ConnectionError::VersionMismatch);
        }
    }

    fn on_long(
        &mut self,
        now: Time,
        route: Route,
        ecn: Ecn,
        packet: &mut [u8],
        header: &Header,
        space: SpaceId,
    ) -> Result<bool, TransportError> {
        let Some(level) = self.level_mut(space) else { return Ok(false) };
        let expected = level.space.received.expected();
        let key = &*level.keys.remote.header;
        let Some(open) = unprotect(key, packet, header.pn_offset, expected) else { return Ok(false) };
        if level.space.received.is_duplicate(open.pn) {
            return Ok(false);
        }
        let (head, payload) = packet.split_at_mut(open.header);
        let Ok(payload) = level.keys.remote.packet.decrypt_in_place(open.pn, head, payload) else {
            return Ok(false);
        };
        if !self.check_peer_cid(header) {
            return Ok(false);
        }
        if open.first & header::RESERVED_LONG != 0 {
            return Err(TransportError::violation("reserved bits are set"));
        }
        if self.is_over() {
            self.process_closing_payload(now, payload);
            return Ok(true);
        }
        if space == SpaceId::Handshake && self.side == Side::Server {
            // Only who received the Initial has the keys (RFC 9000 section 8.1).
            self.paths[0].validated = true;
            self.discard(SpaceId::Initial);
        }
        self.log_received(now, space, 0, ecn, open.pn, open.header + payload.len() + TAG, payload);
        let nature = self.on_payload(now, space, 0, route, payload)?;
        if let Some(space) = self.space_mut(space) {
            // What is asked in the handshake is answered without delay.
            space.received.record(now, open.pn, nature.eliciting, ecn, vmcc_units::time::Span::ZERO);
        }
        self.on_authenticated(now, 0);
        Ok(true)
    }

    /// The first packet of the server says which id it wants; later ones must keep to it. Whether this one does.
    fn check_peer_cid(&mut self, header: &Header) -> bool {
        match self.peer_cid {
            Some(id) => id == header.scid,
            None => {
                self.peer_cid = Some(header.scid);
                if let Some(cids) = self.remote_cids.get_mut(&0) {
                    cids.set_first(header.scid, None);
                }
                true
            }
        }
    }

    fn on_short(
        &mut self,
        now: Time,
        route: Route,
        ecn: Ecn,
        packet: &mut [u8],
        header: &Header,
    ) -> Result<bool, TransportError> {
        let found = self.local_cids.iter().find(|(_, cids)| cids.contains(&header.dcid));
        let Some((&path, _)) = found else { return self.on_undecryptable(now, packet) };
        let slot = self.slot_of(path);
        let Some(keys) = self.one_rtt.as_mut().filter(|_| self.state != State::Handshaking) else {
            return Ok(false);
        };
        let received = slot.map(|slot| &self.paths[slot].space.received);
        let expected = received.map_or(0, |received| received.expected());
        let open = unprotect(&*keys.header_remote, packet, header.pn_offset, expected);
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
                self.check_stateless_reset(now, &tail);
                return Ok(false);
            }
        };
        if open.first & header::RESERVED_SHORT != 0 {
            return Err(TransportError::violation("reserved bits are set"));
        }
        if self.is_over() {
            // There it is told again.
            if let Some(slot) = slot {
                self.paths[slot].last_received_at = now;
            }
            self.process_closing_payload(now, &payload[..len]);
            return Ok(true);
        }
        let Some(slot) = slot.or_else(|| self.accept_path(now, path, route, packet.len())) else {
            return Ok(true);
        };
        let (head, payload) = packet.split_at(open.header);
        debug_assert!(!head.is_empty());
        self.log_received(now, SpaceId::Path(slot), slot, ecn, open.pn, packet.len(), &payload[..len]);
        let nature = self.on_payload(now, SpaceId::Path(slot), slot, route, &payload[..len])?;
        let delay = self.config.max_ack_delay;
        let received = &mut self.paths[slot].space.received;
        let newest = open.pn >= received.expected();
        received.record(now, open.pn, nature.eliciting, ecn, delay);
        self.on_authenticated(now, slot);
        if newest && route != self.paths[slot].route {
            self.on_peer_migration(now, slot, route, nature, packet.len());
        }
        Ok(true)
    }

    fn log_received(
        &mut self,
        now: Time,
        space: SpaceId,
        slot: usize,
        ecn: Ecn,
        number: u64,
        len: usize,
        payload: &[u8],
    ) {
        if let Some(log) = &mut self.log {
            let (path, ack_exponent) = (self.paths[slot].id, self.peer.ack_delay_exponent);
            let packet = qlog::Packet { space, path, number, len, payload, ack_exponent };
            log.received(now, &packet, ecn);
        }
    }

    fn on_undecryptable(&mut self, now: Time, packet: &[u8]) -> Result<bool, TransportError> {
        if let Some(tail) = packet.last_chunk::<16>() {
            self.check_stateless_reset(now, &tail.clone());
        }
        Ok(false)
    }

    /// A packet that cannot be read may end with a token by which the peer says that it has lost the connection.
    pub(super) fn check_stateless_reset(&mut self, now: Time, tail: &[u8; 16]) {
        if self.reset_tokens().any(|token| crypto::is_same(token, tail)) {
            self.end(now, ConnectionError::Reset);
        }
    }

    /// A stray packet may be a stateless reset.
    pub(crate) fn handle_reset(&mut self, now: Time, tail: &[u8; 16]) {
        self.check_stateless_reset(now, tail);
    }

    /// An authenticated packet of the peer has arrived on a path.
    fn on_authenticated(&mut self, now: Time, slot: usize) {
        self.paths[slot].last_received_at = now;
        self.paths[slot].refused_since = None;
        self.idle_touched = false;
        self.touch_idle(now);
    }
}
