//! The handshake (RFC 9001 section 4): TLS messages in CRYPTO frames, keys as they come, transport parameters, tokens.

use super::cids::HandshakeCids;
use super::keys::OneRtt;
use super::level::Level;
use crate::crypto::{Keys, NewKeys, Session, Side, Tls, TlsError};
use crate::error::{TransportError, code};
use crate::recovery::space::{Space, SpaceId};
use crate::wire::params::Params;
use std::sync::Arc;
use vmcc_streams::{RecvBuffer, SendBuffer};
use vmcc_units::time::{Span, Time};

/// Bytes of handshake messages that may come before those in front of them (RFC 9000 section 7.5 asks for at least 4096).
const CRYPTO_AHEAD: u64 = 16 << 10;

/// Level at which TLS messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteLevel {
    Long(usize),
    /// In packets with short headers.
    OneRtt,
}

/// Address validation tokens (RFC 9000 section 8.1).
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens {
    /// A client's, for its Initial packets.
    pub(super) initial: Vec<u8>,
    /// A client's, for its next connection to the same server.
    pub(super) received: Option<Vec<u8>>,
    /// A server's, for its client's next connection.
    pub(super) issued: Vec<u8>,
}

/// Keys of all levels, and the state of TLS.
pub(super) struct Handshake {
    side: Side,
    tls: Arc<dyn Tls>,
    session: Box<dyn Session>,
    /// Initial and Handshake, as long as there are keys.
    levels: [Option<Level>; 2],
    one_rtt: Option<OneRtt>,
    /// TLS messages in packets with short headers: to send, and received.
    app_crypto: (SendBuffer, RecvBuffer),
    write_level: WriteLevel,
    confirmed: bool,
    /// A server's: the client has shown that it receives. A client's: the server knows that of it.
    peer_validated: bool,
    local: Params,
    /// Those of RFC 9000 for absent parameters until the peer's are known.
    peer: Params,
    peer_known: bool,
    pub(super) tokens: Tokens,
}

/// Index of a level; none for packets with short headers.
fn index(space: SpaceId) -> Option<usize> {
    match space {
        SpaceId::Initial => Some(0),
        SpaceId::Handshake => Some(1),
        SpaceId::Path(_) => None,
    }
}

impl Handshake {
    /// Begins a handshake; the keys of Initial packets follow from `initial_dcid`.
    pub(super) fn new(
        side: Side,
        tls: Arc<dyn Tls>,
        server_name: &str,
        local: Params,
        initial_dcid: &[u8],
        tokens: Tokens,
    ) -> Result<Handshake, TlsError> {
        let session = tls.start(server_name, local.encode())?;
        let keys = tls.initial_keys(initial_dcid, side);
        let mut handshake = Handshake {
            side,
            tls,
            session,
            levels: [Some(Level::new(keys)), None],
            one_rtt: None,
            app_crypto: Default::default(),
            write_level: WriteLevel::Long(0),
            confirmed: false,
            peer_validated: side == Side::Server,
            local,
            peer: Params::default(),
            peer_known: false,
            tokens,
        };
        if side == Side::Client {
            handshake.write();
        }
        Ok(handshake)
    }

    pub(super) fn side(&self) -> Side {
        self.side
    }

    pub(super) fn is_client(&self) -> bool {
        self.side == Side::Client
    }

    pub(super) fn session(&self) -> &dyn Session {
        &*self.session
    }

    /// Transport parameters of this end.
    pub(super) fn local(&self) -> &Params {
        &self.local
    }

    /// Transport parameters of the peer; defaults until they are known.
    pub(super) fn peer(&self) -> &Params {
        &self.peer
    }

    pub(super) fn is_peer_known(&self) -> bool {
        self.peer_known
    }

    /// Longest delay of the peer's acknowledgments.
    pub(super) fn peer_ack_delay(&self) -> Span {
        Span::from_ms(self.peer.max_ack_delay_ms)
    }

    /// Keys of Initial packets to this id.
    pub(super) fn initial_keys(&self, dcid: &[u8]) -> Keys {
        self.tls.initial_keys(dcid, self.side)
    }

    pub(super) fn level(&self, space: SpaceId) -> Option<&Level> {
        self.levels[index(space)?].as_ref()
    }

    fn level_mut(&mut self, space: SpaceId) -> Option<&mut Level> {
        self.levels[index(space)?].as_mut()
    }

    /// Number spaces of the levels that have keys.
    pub(super) fn spaces(&self) -> impl Iterator<Item = (SpaceId, &Space)> {
        let levels = SpaceId::LONG.into_iter().zip(&self.levels);
        levels.filter_map(|(space, level)| Some((space, &level.as_ref()?.space)))
    }

    pub(super) fn space_mut(&mut self, space: SpaceId) -> Option<&mut Space> {
        self.level_mut(space).map(|level| &mut level.space)
    }

    /// Send buffer of a space's TLS messages.
    pub(super) fn crypto_mut(&mut self, space: SpaceId) -> Option<&mut SendBuffer> {
        match space {
            SpaceId::Path(_) => Some(&mut self.app_crypto.0),
            _ => self.level_mut(space).map(|level| &mut level.send),
        }
    }

    /// Returns true if TLS messages wait for packets with short headers.
    pub(super) fn has_app_crypto(&self) -> bool {
        self.app_crypto.0.has_work(u64::MAX)
    }

    /// Keys of packets with short headers.
    pub(super) fn one_rtt(&self) -> Option<&OneRtt> {
        self.one_rtt.as_ref()
    }

    pub(super) fn one_rtt_mut(&mut self) -> Option<&mut OneRtt> {
        self.one_rtt.as_mut()
    }

    /// Updates keys that have encrypted nearly as much as they may.
    ///
    /// # Errors
    /// They are exhausted, because the peer has not acknowledged the update before.
    pub(super) fn refresh_keys(&mut self, now: Time) -> Result<(), TransportError> {
        if let Some(keys) = self.one_rtt.as_mut().filter(|keys| self.confirmed && keys.needs_update()) {
            keys.initiate(now);
            if keys.is_exhausted() {
                return Err(TransportError::new(code::AEAD_LIMIT, "no new keys were agreed in time"));
            }
        }
        Ok(())
    }

    /// Both ends have the keys (RFC 9001 section 4.1.2).
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Confirms the handshake; returns false if it was before.
    pub(super) fn confirm(&mut self) -> bool {
        self.peer_validated |= !self.confirmed;
        !std::mem::replace(&mut self.confirmed, true)
    }

    /// A packet beyond the Initial level was acknowledged: the server knows that its client receives.
    pub(super) fn on_acked(&mut self, space: SpaceId) {
        self.peer_validated |= self.is_client() && space != SpaceId::Initial;
    }

    /// The server receives what this client sends, or this end is the server.
    pub(super) fn is_peer_validated(&self) -> bool {
        self.peer_validated
    }

    /// Level of the packets by which a client keeps a server able to send that may not know its address (RFC 9002 section 6.2.2.1).
    pub(super) fn anti_deadlock_space(&self) -> Option<SpaceId> {
        let lonely = self.is_client() && !self.peer_validated && !self.confirmed;
        let space = if self.levels[1].is_some() { SpaceId::Handshake } else { SpaceId::Initial };
        lonely.then_some(space)
    }

    /// Returns true if a packet of any level has come that could be read.
    pub(super) fn is_begun(&self) -> bool {
        self.levels.iter().flatten().any(|level| level.space.received.expected() > 0)
    }

    /// Returns true if Initial or Handshake packets have to leave now; `has_room` says that a window allows data.
    pub(super) fn is_urgent(&self, now: Time, has_room: bool) -> bool {
        self.levels
            .iter()
            .flatten()
            .any(|level| level.space.received.is_due(now) || (level.send.has_work(u64::MAX) && has_room))
    }

    /// Returns true if a level has something to send; `may_data` says that a window allows data, `probing` that a probe is due.
    pub(super) fn has_work(&self, now: Time, space: SpaceId, may_data: bool, probing: bool) -> bool {
        let Some(level) = self.level(space) else { return false };
        // A probe goes to the lowest level that is not done.
        let lowest =
            space == SpaceId::Handshake || self.levels[1].is_none() || level.space.sent.eliciting() > 0;
        level.space.received.is_due(now)
            || (may_data && level.send.has_work(u64::MAX))
            || (probing && lowest && !self.confirmed)
    }

    /// CRYPTO data came; `established` says that the handshake is complete. Returns true if TLS has taken something.
    pub(super) fn on_crypto(
        &mut self,
        space: SpaceId,
        offset: u64,
        data: &[u8],
        established: bool,
    ) -> Result<bool, TransportError> {
        // What comes at a level that is done with is late, or not the peer's: anyone has the keys of Initial packets.
        let done = match space {
            SpaceId::Initial => self.levels[1].is_some(),
            SpaceId::Handshake => established,
            SpaceId::Path(_) => false,
        };
        if done {
            return Ok(false);
        }
        let buffer = match space {
            SpaceId::Path(_) => &mut self.app_crypto.1,
            _ => match self.level_mut(space) {
                Some(level) => &mut level.recv,
                None => return Ok(false),
            },
        };
        if offset + data.len() as u64 > buffer.offset() + CRYPTO_AHEAD {
            return Err(TransportError::new(code::CRYPTO_BUFFER, "handshake data too far ahead"));
        }
        buffer.write(offset, data);
        let mut message = vec![0; buffer.readable() as usize];
        let len = buffer.read(&mut message);
        if len == 0 {
            return Ok(false);
        }
        let alert =
            |error: TlsError| TransportError::new(code::CRYPTO + u64::from(error.alert), error.reason);
        self.session.read(&message[..len]).map_err(alert)?;
        self.write();
        Ok(true)
    }

    /// Moves pending TLS messages into CRYPTO frames, and takes new keys into use.
    fn write(&mut self) {
        loop {
            let mut out = Vec::new();
            let keys = self.session.write(&mut out);
            let buffer = match self.write_level {
                WriteLevel::OneRtt => Some(&mut self.app_crypto.0),
                WriteLevel::Long(level) => self.levels[level].as_mut().map(|level| &mut level.send),
            };
            if let Some(buffer) = buffer {
                buffer.write(&out);
            }
            match keys {
                Some(NewKeys::Handshake(keys)) => {
                    self.levels[1] = Some(Level::new(keys));
                    self.write_level = WriteLevel::Long(1);
                }
                Some(NewKeys::OneRtt(keys, update)) => {
                    self.one_rtt = Some(OneRtt::new(keys, update));
                    self.write_level = WriteLevel::OneRtt;
                }
                None if out.is_empty() => return,
                None => {}
            }
        }
    }

    /// Reads the peer's transport parameters once they have come, and checks them against the ids of the handshake. Returns true if they
    /// hold from now on.
    pub(super) fn take_peer_params(&mut self, cids: &HandshakeCids) -> Result<bool, TransportError> {
        // Before the handshake has brought the server's, a client that resumes a session may be shown those of the session before.
        let brought = self.side == Side::Server || self.one_rtt.is_some();
        if self.peer_known || !brought {
            return Ok(false);
        }
        let Some(bytes) = self.session.peer_params() else { return Ok(false) };
        let refuse = |reason: &str| TransportError::new(code::TRANSPORT_PARAMETER, reason);
        let params =
            Params::decode(bytes, self.is_client()).map_err(|_| refuse("malformed or out of range"))?;
        if params.initial_scid != cids.peer {
            return Err(refuse("the source connection id is not that of the packets"));
        }
        let (original, retry) = match self.side {
            Side::Client => (Some(cids.original), cids.retry),
            Side::Server => (None, None),
        };
        if params.original_dcid != original || params.retry_scid != retry {
            return Err(refuse("the connection ids are not those of the handshake"));
        }
        // Packets of several paths could not be told apart (draft-ietf-quic-multipath-21 section 2.1).
        if params.initial_max_path_id.is_some() && cids.peer.is_some_and(|id| id.as_slice().is_empty()) {
            return Err(TransportError::violation(
                "several paths are offered with a connection id of no bytes",
            ));
        }
        (self.peer, self.peer_known) = (params, true);
        Ok(true)
    }

    /// Returns true if TLS is done and packets with short headers can be exchanged.
    ///
    /// # Errors
    /// The peer has sent no transport parameters.
    pub(super) fn is_complete(&self) -> Result<bool, TransportError> {
        if self.session.is_handshaking() || self.one_rtt.is_none() {
            return Ok(false);
        }
        if !self.peer_known {
            return Err(TransportError::new(code::CRYPTO + 109, "no transport parameters came"));
        }
        Ok(true)
    }

    /// Discards the keys of a level, and its number space (RFC 9001 section 4.9). Returns packets and bytes that were in flight, or none if it was
    /// discarded before.
    pub(super) fn discard(&mut self, space: SpaceId) -> Option<(u64, u64)> {
        let mut level = self.levels[index(space)?].take()?;
        Some(level.space.sent.discard())
    }

    /// Starts Initial packets again with the token and the keys of a Retry (RFC 9000 section 17.2.5). Returns packets and bytes that
    /// were in flight.
    pub(super) fn on_retry(&mut self, token: &[u8], keys: Keys) -> Option<(u64, u64)> {
        self.tokens.initial = token.to_vec();
        let level = self.levels[0].as_mut()?;
        level.restart(keys);
        Some(level.space.sent.discard())
    }
}
