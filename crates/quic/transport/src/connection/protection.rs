//! Header protection of received packets (RFC 9001 section 5.4).

use crate::crypto::HeaderProtectionKey;
use crate::wire::header;

/// A packet whose header is readable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unprotected {
    pub(super) pn: u64,
    /// Bytes of the header, the packet number included.
    pub(super) header: usize,
    pub(super) first: u8,
}

/// Removes header protection in place; `expected` is the packet number that is expected next. None if the packet is too short.
pub(super) fn unprotect(
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

/// Offsets of a packet in a buffer, of its packet number, and of its frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) pn_offset: usize,
    pub(super) payload: usize,
}

/// Adds header protection in place to a packet that is encrypted otherwise.
pub(super) fn protect(key: &dyn HeaderProtectionKey, out: &mut [u8], place: Place) {
    let packet = &mut out[place.start..];
    let pn_offset = place.pn_offset - place.start;
    let sample = header::sample(pn_offset, key.sample_len());
    let (head, tail) = packet.split_at_mut(sample.start);
    if let Some((first, rest)) = head.split_first_mut() {
        let number = &mut rest[pn_offset - 1..place.payload - place.start - 1];
        key.encrypt_in_place(&tail[..sample.len()], first, number).expect("a sample of the right length");
    }
}
