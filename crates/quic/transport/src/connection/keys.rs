//! Keys of packets with short headers, and their update (RFC 9001 section 6; multipath section 2.4 for the nonce).

use super::protection::{Place, Unprotected, protect, unprotect};
use crate::crypto::{HeaderProtectionKey, KeyUpdate, Keys, PacketKey, PacketKeySet};
use crate::error::{TransportError, code};
use vmcc_units::time::Time;

/// A key is updated long before its limit (RFC 9001 section 6.6).
const CONFIDENTIALITY_MARGIN: u64 = 1 << 16;

/// Keys after the handshake.
pub(super) struct OneRtt {
    header_local: Box<dyn HeaderProtectionKey>,
    header_remote: Box<dyn HeaderProtectionKey>,
    now: PacketKeySet,
    next: PacketKeySet,
    /// Of the phase before, for packets that are late, until then.
    before: Option<(Box<dyn PacketKey>, Time)>,
    update: Box<dyn KeyUpdate>,
    /// The bit in the header.
    phase: bool,
    /// Packets of this phase that were encrypted, and of all phases that could not be decrypted.
    encrypted: u64,
    failed: u64,
    /// Begin of this phase.
    since: Time,
    /// A packet of this phase was acknowledged: the next update is allowed.
    confirmed: bool,
    updates: u64,
}

/// Result of opening a packet.
pub(super) enum Opened {
    /// This many bytes of it are frames.
    Payload(usize),
    /// It is no packet of this connection.
    Unreadable,
}

fn open(
    key: &dyn PacketKey,
    path: u32,
    pn: u64,
    header: &[u8],
    payload: &mut [u8],
) -> Result<usize, rustls::Error> {
    match path {
        0 => key.decrypt_in_place(pn, header, payload),
        _ => key.decrypt_in_place_for_path(path, pn, header, payload),
    }
    .map(<[u8]>::len)
}

impl OneRtt {
    pub(super) fn new(keys: Keys, mut update: Box<dyn KeyUpdate>) -> OneRtt {
        let next = update.next_keys();
        OneRtt {
            header_local: keys.local.header,
            header_remote: keys.remote.header,
            now: PacketKeySet { local: keys.local.packet, remote: keys.remote.packet },
            next,
            before: None,
            update,
            phase: false,
            encrypted: 0,
            failed: 0,
            since: Time::ZERO,
            confirmed: false,
            updates: 0,
        }
    }

    pub(super) fn tag_len(&self) -> usize {
        self.now.local.tag_len()
    }

    /// The key phase bit of packets that are sent now.
    pub(super) fn phase(&self) -> bool {
        self.phase
    }

    /// Times that the keys were updated, by either end.
    pub(super) fn updates(&self) -> u64 {
        self.updates
    }

    /// Encrypts frames and header of the packet that begins at `start` of `out`.
    pub(super) fn seal(&mut self, out: &mut Vec<u8>, place: Place, path: u32, pn: u64) {
        self.encrypted += 1;
        let key = &self.now.local;
        let (header, payload) = out[place.start..].split_at_mut(place.payload - place.start);
        let tag = match path {
            0 => key.encrypt_in_place(pn, header, payload),
            _ => key.encrypt_in_place_for_path(path, pn, header, payload),
        }
        .expect("a packet is shorter than the cipher's limit");
        out.extend_from_slice(tag.as_ref());
        protect(&*self.header_local, out, place);
    }

    /// Removes header protection in place; `expected` is the packet number that is expected next.
    pub(super) fn unprotect(
        &self,
        packet: &mut [u8],
        pn_offset: usize,
        expected: u64,
    ) -> Option<Unprotected> {
        unprotect(&*self.header_remote, packet, pn_offset, expected)
    }

    /// Decrypts in place, with the keys that the phase bit asks for.
    pub(super) fn open(
        &mut self,
        path: u32,
        pn: u64,
        phase: bool,
        header: &[u8],
        payload: &mut [u8],
        now: Time,
    ) -> Result<Opened, TransportError> {
        if phase == self.phase {
            return self.count(open(&*self.now.remote, path, pn, header, payload));
        }
        if let Some((key, until)) = &self.before
            && now < *until
        {
            // A late packet and the next update have the same bit: the wrong key leaves the payload unusable, so the copy.
            let mut copy = payload.to_vec();
            if let Ok(len) = open(&**key, path, pn, header, &mut copy) {
                payload[..len].copy_from_slice(&copy[..len]);
                return Ok(Opened::Payload(len));
            }
        }
        match open(&*self.next.remote, path, pn, header, payload) {
            Ok(len) => {
                // The peer cannot have heard that its last one arrived (RFC 9001 section 6.2).
                if self.encrypted == 0 && self.updates > 0 {
                    return Err(TransportError::new(code::KEY_UPDATE, "twice without an acknowledgment"));
                }
                self.advance(now);
                Ok(Opened::Payload(len))
            }
            Err(error) => self.count(Err(error)),
        }
    }

    fn count(&mut self, result: Result<usize, rustls::Error>) -> Result<Opened, TransportError> {
        match result {
            Ok(len) => Ok(Opened::Payload(len)),
            Err(_) => {
                self.failed += 1;
                if self.failed >= self.now.remote.integrity_limit() {
                    return Err(TransportError::new(code::AEAD_LIMIT, "too many forged packets"));
                }
                Ok(Opened::Unreadable)
            }
        }
    }

    fn advance(&mut self, now: Time) {
        let next = std::mem::replace(&mut self.next, self.update.next_keys());
        let old = std::mem::replace(&mut self.now, next);
        // Kept for as long as the caller says, see `forget_before`.
        self.before = Some((old.remote, Time::NEVER));
        (self.phase, self.encrypted, self.confirmed) = (!self.phase, 0, false);
        (self.since, self.updates) = (now, self.updates + 1);
    }

    /// Begins a key update, unless one is under way; whether it did.
    pub(super) fn initiate(&mut self, now: Time) -> bool {
        let may = self.confirmed;
        if may {
            self.advance(now);
        }
        may
    }

    /// Returns true if the key must not encrypt anything more.
    pub(super) fn is_exhausted(&self) -> bool {
        self.encrypted + 2 >= self.now.local.confidentiality_limit()
    }

    /// Returns true if the key has encrypted nearly as much as it may.
    pub(super) fn needs_update(&self) -> bool {
        self.encrypted + CONFIDENTIALITY_MARGIN >= self.now.local.confidentiality_limit()
    }

    /// A packet that was sent then is acknowledged: of the present phase, it allows the next update, and old keys are kept until `until`.
    /// One of the very moment of the update may be of either phase.
    pub(super) fn on_acked(&mut self, sent: Time, until: Time) {
        if sent <= self.since || self.confirmed {
            return;
        }
        self.confirmed = true;
        if let Some((_, keep)) = &mut self.before {
            *keep = until;
        }
    }
}
