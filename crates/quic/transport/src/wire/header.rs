//! Packet headers (RFC 8999, RFC 9000 section 17): what can be read before header protection is removed, and what is written.

use super::cid::ConnectionId;
use super::varint::{self, Malformed, Reader};
use std::ops::Range;

/// QUIC version 1.
pub(crate) const VERSION_1: u32 = 1;
/// First byte: a long header.
const LONG: u8 = 0x80;
/// First byte: the fixed bit.
const FIXED: u8 = 0x40;
/// First byte of a short header: key phase.
pub(crate) const KEY_PHASE: u8 = 0x04;
/// Reserved bits below protection.
pub(crate) const RESERVED_LONG: u8 = 0x0c;
pub(crate) const RESERVED_SHORT: u8 = 0x18;
/// The header protection sample begins that far behind the beginning of the packet number.
pub(crate) const SAMPLE_OFFSET: usize = 4;
/// Long headers say their length in a field of two bytes.
pub(crate) const LENGTH_LEN: usize = 2;

/// Type of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Initial,
    ZeroRtt,
    Handshake,
    Retry,
    Short,
    VersionNegotiation,
}

/// A header as it is readable under its protection. Ranges and offsets are within the datagram's rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) version: u32,
    pub(crate) dcid: ConnectionId,
    pub(crate) scid: ConnectionId,
    /// Token of an Initial or Retry.
    pub(crate) token: Range<usize>,
    /// Offset of the packet number; of packets without one, end of the header.
    pub(crate) pn_offset: usize,
    /// End of the packet.
    pub(crate) end: usize,
}

/// Reads the header of the first packet in `bytes`; short headers carry ids of `local_cid_len` bytes.
pub(crate) fn decode(bytes: &[u8], local_cid_len: usize) -> Result<Header, Malformed> {
    let mut reader = Reader::new(bytes);
    let first = reader.u8()?;
    if first & LONG == 0 {
        let dcid = ConnectionId::new(reader.take(local_cid_len)?).ok_or(Malformed)?;
        return Ok(Header {
            kind: if first & FIXED == 0 { return Err(Malformed) } else { Kind::Short },
            version: VERSION_1,
            dcid,
            scid: ConnectionId::EMPTY,
            token: 0..0,
            pn_offset: bytes.len() - reader.left(),
            end: bytes.len(),
        });
    }
    decode_long(first, bytes, reader)
}

fn decode_long(first: u8, bytes: &[u8], mut reader: Reader<'_>) -> Result<Header, Malformed> {
    let version = u32::from_be_bytes(reader.array()?);
    let id = |reader: &mut Reader<'_>| {
        let len = usize::from(reader.u8()?);
        ConnectionId::new(reader.take(len)?).ok_or(Malformed)
    };
    let (dcid, scid) = (id(&mut reader)?, id(&mut reader)?);
    let here = |reader: &Reader<'_>| bytes.len() - reader.left();
    let whole = |kind, reader: &Reader<'_>| Header {
        kind,
        version,
        dcid,
        scid,
        token: 0..0,
        pn_offset: here(reader),
        end: bytes.len(),
    };
    match version {
        0 => return Ok(whole(Kind::VersionNegotiation, &reader)),
        VERSION_1 if first & FIXED != 0 => {}
        VERSION_1 => return Err(Malformed),
        _ => return Err(Malformed),
    }
    let kind = match first >> 4 & 3 {
        0 => Kind::Initial,
        1 => Kind::ZeroRtt,
        2 => Kind::Handshake,
        _ => {
            let tag = bytes.len().checked_sub(16).filter(|&tag| tag >= here(&reader)).ok_or(Malformed)?;
            return Ok(Header { token: here(&reader)..tag, ..whole(Kind::Retry, &reader) });
        }
    };
    let mut token = 0..0;
    if kind == Kind::Initial {
        let len = reader.prefixed()?.len();
        token = here(&reader) - len..here(&reader);
    }
    let length = usize::try_from(reader.var()?).map_err(|_| Malformed)?;
    let pn_offset = here(&reader);
    reader.take(length)?;
    Ok(Header { token, end: pn_offset + length, ..whole(kind, &Reader::new(&bytes[pn_offset..])) })
}

/// Destination and source id of a long header of a version that is not ours; such ids may have up to 255 bytes (RFC 8999 section 5.1).
pub(crate) fn of_another_version(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = Reader::new(bytes);
    let long = reader.u8().ok()? & LONG != 0;
    let version = u32::from_be_bytes(reader.array().ok()?);
    let mut id = || {
        let len = usize::from(reader.u8().ok()?);
        reader.take(len).ok()
    };
    let ids = (id()?, id()?);
    (long && !matches!(version, 0 | VERSION_1)).then_some(ids)
}

/// Appends a long header up to its packet number; the length is filled in when the packet is complete.
pub(crate) fn put_long(
    out: &mut Vec<u8>,
    kind: Kind,
    dcid: &ConnectionId,
    scid: &ConnectionId,
    token: &[u8],
    pn_len: usize,
) {
    let bits = if kind == Kind::Initial { 0 } else { 2 };
    out.push(LONG | FIXED | bits << 4 | (pn_len - 1) as u8);
    put_ids(out, VERSION_1, dcid.as_slice(), scid.as_slice());
    if kind == Kind::Initial {
        varint::put(out, token.len() as u64);
        out.extend_from_slice(token);
    }
    out.extend_from_slice(&[0; LENGTH_LEN]);
}

fn put_ids(out: &mut Vec<u8>, version: u32, dcid: &[u8], scid: &[u8]) {
    out.extend_from_slice(&version.to_be_bytes());
    for id in [dcid, scid] {
        out.push(id.len() as u8);
        out.extend_from_slice(id);
    }
}

/// Appends a short header up to its packet number.
pub(crate) fn put_short(out: &mut Vec<u8>, dcid: &ConnectionId, key_phase: bool, pn_len: usize) {
    out.push(FIXED | if key_phase { KEY_PHASE } else { 0 } | (pn_len - 1) as u8);
    out.extend_from_slice(dcid.as_slice());
}

/// A Retry without its integrity tag.
pub(crate) fn retry(dcid: &ConnectionId, scid: &ConnectionId, token: &[u8], unused: u8) -> Vec<u8> {
    let mut out = vec![LONG | FIXED | 3 << 4 | unused & 0xf];
    put_ids(&mut out, VERSION_1, dcid.as_slice(), scid.as_slice());
    out.extend_from_slice(token);
    out
}

/// A Version Negotiation packet that offers version 1 and a reserved one (RFC 9000 section 17.2.1).
pub(crate) fn version_negotiation(dcid: &[u8], scid: &[u8], random: u8) -> Vec<u8> {
    let mut out = vec![LONG | FIXED | random];
    put_ids(&mut out, 0, dcid, scid);
    out.extend_from_slice(&VERSION_1.to_be_bytes());
    let greased = [0x0a, 0x1a, 0x2a, 0x3a].map(|byte: u8| byte | (random & 0xf) << 4);
    out.extend_from_slice(&greased);
    out
}

/// Bytes that tell `pn` apart from all that may be under way beyond `largest_acked` (RFC 9000 appendix A.2).
#[inline]
pub(crate) fn pn_len(pn: u64, largest_acked: Option<u64>) -> usize {
    let range = largest_acked.map_or(pn + 1, |acked| pn - acked) * 2;
    match range {
        0..0x100 => 1,
        0x100..0x1_0000 => 2,
        0x1_0000..0x100_0000 => 3,
        _ => 4,
    }
}

/// The packet number nearest to `expected` that ends in `truncated` (RFC 9000 appendix A.3).
#[inline]
pub(crate) fn expand_pn(truncated: u64, len: usize, expected: u64) -> u64 {
    let window = 1 << (8 * len);
    let candidate = expected & !(window - 1) | truncated;
    if candidate + window / 2 <= expected && candidate + window < 1 << 62 {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

/// Range of the sample for header protection.
#[inline]
pub(crate) fn sample(pn_offset: usize, len: usize) -> Range<usize> {
    pn_offset + SAMPLE_OFFSET..pn_offset + SAMPLE_OFFSET + len
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn packet_number_examples_of_rfc_9000() {
        assert_eq!(expand_pn(0x9b32, 2, 0xa82f_30ea + 1), 0xa82f_9b32);
        assert_eq!(pn_len(0xac_5c02, Some(0xab_e8b3)), 2);
        assert_eq!(pn_len(0xac_e8fe, Some(0xab_e8b3)), 3);
    }

    #[test]
    fn unknown_version_is_detected_by_its_invariants() {
        let bytes = [0xc0, 0xff, 0, 0, 0x1d, 1, 7, 2, 8, 9, 1, 2, 3];
        assert_eq!(of_another_version(&bytes), Some((&[7][..], &[8, 9][..])));
        assert!(decode(&bytes, 8).is_err());
        let long = [&[0x80, 0, 0, 0, 2, 255][..], &[7; 255], &[21], &[8; 21]].concat();
        assert_eq!(of_another_version(&long), Some((&[7; 255][..], &[8; 21][..])));
        let ours = [&[0xc0, 0, 0, 0, 1, 0, 0][..]].concat();
        for no in [&long[..200], &long[..270], &ours, &[0x40, 0, 0, 0, 2, 0, 0], &[]] {
            assert_eq!(of_another_version(no), None);
        }
    }

    fn cid() -> impl Strategy<Value = ConnectionId> {
        prop::collection::vec(any::<u8>(), 0..=20).prop_map(|bytes| ConnectionId::new(&bytes).unwrap())
    }

    proptest! {
        #[test]
        fn truncated_packet_numbers_round_trip(acked in 0..1u64 << 60, ahead in 1..1u64 << 30) {
            let pn = acked + ahead;
            let len = pn_len(pn, Some(acked));
            let truncated = pn & ((1 << (8 * len)) - 1);
            prop_assert_eq!(expand_pn(truncated, len, acked + 1), pn);
        }

        #[test]
        fn long_headers_round_trip(dcid in cid(), scid in cid(), token: Vec<u8>, rest in 20..200usize) {
            let mut out = Vec::new();
            put_long(&mut out, Kind::Initial, &dcid, &scid, &token, 2);
            let pn_offset = out.len();
            let length = (rest as u16 | 0x4000).to_be_bytes();
            out[pn_offset - 2..].copy_from_slice(&length);
            out.resize(pn_offset + rest + 5, 0);
            let header = decode(&out, 8).unwrap();
            prop_assert_eq!((header.kind, header.dcid, header.scid), (Kind::Initial, dcid, scid));
            prop_assert_eq!(&out[header.token.clone()], &token[..]);
            prop_assert_eq!((header.pn_offset, header.end), (pn_offset, pn_offset + rest));
        }

        #[test]
        fn any_header_bytes_are_parsed_or_refused(bytes: Vec<u8>, len in 0..=20usize) {
            of_another_version(&bytes);
            if let Ok(header) = decode(&bytes, len) {
                prop_assert!(header.pn_offset <= header.end && header.end <= bytes.len());
                prop_assert!(header.token.end <= bytes.len());
            }
        }
    }
}
