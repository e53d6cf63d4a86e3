//! An encryption level of the handshake: keys, number space, and TLS messages of Initial or Handshake packets.

use super::protection::{Place, Unprotected, protect, unprotect};
use crate::crypto::Keys;
use crate::recovery::space::Space;
use crate::wire::header::Header;
use vmcc_streams::{RecvBuffer, SendBuffer};

/// State of one encryption level.
pub(super) struct Level {
    keys: Keys,
    pub(super) space: Space,
    /// TLS messages to send, and received ones.
    pub(super) send: SendBuffer,
    pub(super) recv: RecvBuffer,
}

impl Level {
    pub(super) fn new(keys: Keys) -> Level {
        Level { keys, space: Space::default(), send: SendBuffer::default(), recv: RecvBuffer::default() }
    }

    /// Changes the keys after a Retry. Packet numbers go on, so that none is used twice; everything is sent again.
    pub(super) fn restart(&mut self, keys: Keys) {
        (self.keys, self.recv) = (keys, RecvBuffer::default());
        self.send.on_lost(0..self.send.unsent());
    }

    /// Removes the protection of a packet in place, and returns its header with the length of its frames. None for a duplicate, and for a packet
    /// that is not of this connection.
    pub(super) fn open(&self, packet: &mut [u8], header: &Header) -> Option<(Unprotected, usize)> {
        let received = &self.space.received;
        let open = unprotect(&*self.keys.remote.header, packet, header.pn_offset, received.expected())?;
        if received.is_duplicate(open.pn) {
            return None;
        }
        let (head, payload) = packet.split_at_mut(open.header);
        let payload = self.keys.remote.packet.decrypt_in_place(open.pn, head, payload).ok()?;
        Some((open, payload.len()))
    }

    /// Encrypts frames and header of a packet at the end of `out`.
    pub(super) fn seal(&self, out: &mut Vec<u8>, place: Place, pn: u64) {
        let (head, frames) = out[place.start..].split_at_mut(place.payload - place.start);
        let tag = self.keys.local.packet.encrypt_in_place(pn, head, frames).expect("a packet is short");
        out.extend_from_slice(tag.as_ref());
        protect(&*self.keys.local.header, out, place);
    }
}
