//! Datagrams of no connection: admission of clients, Retry, stateless reset, version negotiation (RFC 9000 sections 5.2 and 8.1).

use super::demux::{Endpoint, Entry, Retry, Server};
use super::token::Token;
use crate::connection::{Arrival, Connection, ConnectionInit};
use crate::crypto::{self, Side};
use crate::paths::{Route, mtu};
use crate::recovery::received::Ecn;
use crate::wire::cid::ConnectionId;
use crate::wire::header::{self, Header};
use vmcc_units::time::Time;

/// The shortest stateless reset, and the length that ours have if they may (RFC 9000 section 10.3).
const MIN_RESET_LEN: usize = 21;
const RESET_LEN: usize = 42;
/// Stateless replies that are queued at most; further ones are not made.
const MAX_REPLIES: usize = 64;

impl Endpoint {
    pub(super) fn reply(&mut self, route: Route, reply: Vec<u8>) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back((route, reply));
        }
    }

    /// Replies to a packet of an unknown version with Version Negotiation (server).
    pub(super) fn on_unknown_version(&mut self, route: Route, data: &[u8]) {
        if self.server.is_none() || data.len() < usize::from(mtu::BASE) {
            return;
        }
        if let Some((dcid, scid)) = header::of_another_version(data) {
            let random = self.random.bytes()[0];
            self.reply(route, header::version_negotiation(scid, dcid, random));
        }
    }

    /// Handles a short header with an unknown connection id: a stateless reset of a peer's, or a packet that gets one in reply.
    pub(super) fn on_unknown_cid(&mut self, now: Time, route: Route, header: &Header, data: &[u8]) {
        let Some(tail) = data.last_chunk::<16>() else { return };
        if let Some(&handle) = self.reset_tokens.get(tail) {
            if let Some(entry) = self.entries.get_mut(&handle) {
                entry.connection.handle_reset(now, tail);
                self.settle(handle);
            }
            return;
        }
        // Always shorter than what it answers, so that two ends do not go on forever.
        let len = RESET_LEN.min(data.len().saturating_sub(1));
        if len < MIN_RESET_LEN {
            return;
        }
        let mut reply = Vec::with_capacity(len);
        while reply.len() < len - 16 {
            reply.extend_from_slice(&self.random.bytes());
        }
        reply.truncate(len - 16);
        reply[0] = 0x40 | reply[0] & 0x3f;
        reply.extend_from_slice(&self.reset_secret.tag(header.dcid.as_slice()));
        self.reply(route, reply);
    }

    pub(super) fn on_initial(&mut self, now: Time, route: Route, ecn: Ecn, header: Header, data: &mut [u8]) {
        // RFC 9000 section 7.2: a client chooses at least eight bytes.
        let Some(server) = self.server.as_ref().filter(|_| header.dcid.as_slice().len() >= 8) else { return };
        let token = &data[header.token.clone()];
        let proof = Token::read(&self.token_secret, now, route.remote, &header.dcid, token);
        let wanted = match server.retry {
            Retry::Always => true,
            Retry::Above(handshakes) => self.handshakes >= handshakes,
        };
        if proof.is_none() && wanted {
            // A client takes no second Retry (RFC 9000 section 8.1.2).
            if !Token::is_of_retry(token) {
                self.send_retry(now, route, &header);
            }
        } else if self.entries.len() < server.max_connections || self.evict_oldest_handshake() {
            self.accept(now, route, ecn, header, proof, data);
        }
    }

    /// Evicts the oldest incomplete handshake for a new one: clients that never complete them cannot lock others out.
    fn evict_oldest_handshake(&mut self) -> bool {
        let unfinished = |entry: &Entry| entry.handshaking && entry.connection.side() == Side::Server;
        let oldest = self.entries.iter().find(|(_, entry)| unfinished(entry)).map(|(handle, _)| *handle);
        if let Some(handle) = oldest {
            self.handshakes -= 1;
            self.forget(handle);
        }
        oldest.is_some()
    }

    fn send_retry(&mut self, now: Time, route: Route, header: &Header) {
        let scid = self.new_id();
        let token = Token::Retry(header.dcid).write(&self.token_secret, now, route.remote, &scid);
        let mut reply = header::retry(&header.scid, &scid, &token, self.random.bytes()[0]);
        let tag = crypto::retry_tag(header.dcid.as_slice(), &reply);
        reply.extend_from_slice(&tag);
        self.reply(route, reply);
    }

    fn accept(
        &mut self,
        now: Time,
        route: Route,
        ecn: Ecn,
        header: Header,
        proof: Option<Token>,
        data: &mut [u8],
    ) {
        let Some(Server { tls, config, .. }) = self.server.clone() else { return };
        let own_cid = self.new_id();
        let (original_dcid, retry_scid) = match proof {
            Some(Token::Retry(original)) => (original, Some(header.dcid)),
            _ => (header.dcid, None),
        };
        let begin = ConnectionInit {
            side: Side::Server,
            config,
            random: self.random.split(),
            route,
            now,
            own_cid,
            original_dcid,
            retry_scid,
            initial_dcid: header.dcid,
            peer_cid: Some(header.scid),
            token: Vec::new(),
            token_to_give: Token::Later.write(&self.token_secret, now, route.remote, &ConnectionId::EMPTY),
            validated: proof.is_some(),
            reset_secret: self.reset_secret.clone(),
        };
        let Ok(mut connection) = Connection::new(begin, tls, "") else { return };
        let dcid = header.dcid;
        connection.handle_datagram(Arrival { now, route, ecn, path: None, len: data.len() }, header, data);
        // What could not be read keeps nothing here.
        if connection.is_begun() {
            self.insert(connection, &[(own_cid, Some(0)), (dcid, None)]);
        }
    }
}
