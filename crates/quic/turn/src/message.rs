//! STUN messages (RFC 8489 section 5): bytes to meaning and back, bounded.

use hmac::{Hmac, Mac};
use sha1::Sha1;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

pub(crate) const BINDING: u16 = 1;
pub(crate) const ALLOCATE: u16 = 3;
pub(crate) const REFRESH: u16 = 4;
pub(crate) const DATA_INDICATION: u16 = 7;
pub(crate) const CHANNEL_BIND: u16 = 9;

pub(crate) const USERNAME: u16 = 0x0006;
const MESSAGE_INTEGRITY: u16 = 0x0008;
pub(crate) const ERROR_CODE: u16 = 0x0009;
pub(crate) const CHANNEL_NUMBER: u16 = 0x000c;
pub(crate) const LIFETIME: u16 = 0x000d;
pub(crate) const XOR_PEER_ADDRESS: u16 = 0x0012;
pub(crate) const DATA: u16 = 0x0013;
pub(crate) const REALM: u16 = 0x0014;
pub(crate) const NONCE: u16 = 0x0015;
pub(crate) const XOR_RELAYED_ADDRESS: u16 = 0x0016;
pub(crate) const REQUESTED_ADDRESS_FAMILY: u16 = 0x0017;
pub(crate) const REQUESTED_TRANSPORT: u16 = 0x0019;

const HEADER: usize = 20;
const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const HMAC_BYTES: usize = 20;

pub(crate) type Id = [u8; 12];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Request,
    Indication,
    Success,
    Error,
}

/// A message that has come; its attributes lie one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) method: u16,
    pub(crate) class: Class,
    pub(crate) id: Id,
    bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// Of a whole datagram; nothing if it is no message.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Message<'a>> {
        let kind = u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]);
        let len = usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]));
        let whole = bytes.len() == HEADER + len && len.is_multiple_of(4);
        if kind >= 0x4000 || !whole || bytes[4..8] != COOKIE {
            return None;
        }
        let method = kind & 0x0f | kind >> 1 & 0x70 | kind >> 2 & 0xf80;
        let class = match kind >> 4 & 1 | kind >> 7 & 2 {
            0 => Class::Request,
            1 => Class::Indication,
            2 => Class::Success,
            _ => Class::Error,
        };
        let id = bytes[8..HEADER].try_into().ok()?;
        let message = Message { method, class, id, bytes };
        // What does not end where the message does is none.
        (message.attributes().map(|(_, value)| value.end.next_multiple_of(4)).last().unwrap_or(HEADER)
            == bytes.len())
        .then_some(message)
    }

    /// Types, and where their values are.
    fn attributes(self) -> impl Iterator<Item = (u16, Range<usize>)> + 'a {
        let mut at = HEADER;
        let bytes = self.bytes;
        std::iter::from_fn(move || {
            let head = bytes.get(at..at + 4)?;
            let kind = u16::from_be_bytes([head[0], head[1]]);
            let begin = at + 4;
            let end = begin + usize::from(u16::from_be_bytes([head[2], head[3]]));
            bytes.get(begin..end)?;
            at = end.next_multiple_of(4);
            Some((kind, begin..end))
        })
    }

    /// Place of the value of the first attribute of a type. Bytes after a signature are not signed, and do not count.
    pub(crate) fn place(self, kind: u16) -> Option<Range<usize>> {
        let first = self.attributes().find(|(other, _)| *other == kind || *other == MESSAGE_INTEGRITY);
        first.filter(|(other, _)| *other == kind).map(|(_, place)| place)
    }

    pub(crate) fn value(self, kind: u16) -> Option<&'a [u8]> {
        self.bytes.get(self.place(kind)?)
    }

    pub(crate) fn number(self, kind: u16) -> Option<u32> {
        Some(u32::from_be_bytes(self.value(kind)?.try_into().ok()?))
    }

    /// An address that is mixed with the cookie and the id (RFC 8489 section 14.2).
    pub(crate) fn address(self, kind: u16) -> Option<SocketAddr> {
        let (head, rest) = self.value(kind)?.split_first_chunk::<4>()?;
        let port = u16::from_be_bytes([head[2], head[3]]) ^ 0x2112;
        let mask = mask(self.id);
        let ip = match head[1] {
            1 => IpAddr::from(mixed::<4>(rest.try_into().ok()?, &mask)),
            2 => IpAddr::from(mixed::<16>(rest.try_into().ok()?, &mask)),
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    }

    /// The code of an error, and its words.
    pub(crate) fn error(self) -> Option<(u16, &'a [u8])> {
        let (head, words) = self.value(ERROR_CODE)?.split_first_chunk::<4>()?;
        Some((u16::from(head[2] & 7) * 100 + u16::from(head[3]).min(99), words))
    }

    /// Returns true if the signature was made with the key.
    pub(crate) fn is_signed(self, key: &[u8]) -> bool {
        let Some(place) = self.place(MESSAGE_INTEGRITY).filter(|place| place.len() == HMAC_BYTES) else {
            return false;
        };
        let signed = &self.bytes[..place.start - 4];
        let mut mac = mac(key);
        mac.update(&signed[..2]);
        // As if the signature were the last attribute.
        mac.update(&((place.end - HEADER) as u16).to_be_bytes());
        mac.update(&signed[4..]);
        mac.verify_slice(&self.bytes[place]).is_ok()
    }
}

fn mask(id: Id) -> [u8; 16] {
    let mut mask = [0; 16];
    mask[..4].copy_from_slice(&COOKIE);
    mask[4..].copy_from_slice(&id);
    mask
}

fn mixed<const N: usize>(mut bytes: [u8; N], mask: &[u8; 16]) -> [u8; N] {
    bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    bytes
}

fn mac(key: &[u8]) -> Hmac<Sha1> {
    Hmac::new_from_slice(key).expect("a key may have any length")
}

/// Pseudo-random bytes that only who has the seed can foresee.
pub(crate) fn id_of(seed: &[u8; 32], count: u64) -> Id {
    let mut mac = mac(seed);
    mac.update(&count.to_be_bytes());
    let bytes = mac.finalize().into_bytes();
    std::array::from_fn(|i| bytes[i])
}

/// A message that is being written.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(method: u16, class: Class, id: Id) -> Writer {
        let class = match class {
            Class::Request => 0,
            Class::Indication => 0x010,
            Class::Success => 0x100,
            Class::Error => 0x110,
        };
        let kind: u16 = method & 0x0f | (method & 0x70) << 1 | (method & 0xf80) << 2 | class;
        let mut bytes = kind.to_be_bytes().to_vec();
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&COOKIE);
        bytes.extend_from_slice(&id);
        Writer(bytes)
    }

    pub(crate) fn put(mut self, kind: u16, value: &[u8]) -> Writer {
        self.0.extend_from_slice(&kind.to_be_bytes());
        self.0.extend_from_slice(&(value.len() as u16).to_be_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.set_len(0);
        self
    }

    pub(crate) fn put_address(self, kind: u16, address: SocketAddr) -> Writer {
        let id = self.0[8..HEADER].try_into().expect("the header is there");
        let port = (address.port() ^ 0x2112).to_be_bytes();
        let (family, ip) = match address.ip() {
            IpAddr::V4(ip) => (1, mixed(ip.octets(), &mask(id)).to_vec()),
            IpAddr::V6(ip) => (2, mixed(ip.octets(), &mask(id)).to_vec()),
        };
        self.put(kind, &[&[0, family, port[0], port[1]][..], &ip].concat())
    }

    /// Signs all that is there.
    pub(crate) fn sign(mut self, key: &[u8]) -> Writer {
        self.set_len(4 + HMAC_BYTES);
        let mut mac = mac(key);
        mac.update(&self.0);
        self.put(MESSAGE_INTEGRITY, &mac.finalize().into_bytes())
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn set_len(&mut self, more: usize) {
        let len = (self.0.len() - HEADER + more) as u16;
        self.0[2..4].copy_from_slice(&len.to_be_bytes());
    }
}

/// A request without effect that every STUN and TURN server answers for any client.
pub fn binding_request(id: [u8; 12]) -> Vec<u8> {
    Writer::new(BINDING, Class::Request, id).finish()
}

/// Which of those requests a datagram answers.
pub fn binding_answered(datagram: &[u8]) -> Option<[u8; 12]> {
    let message = Message::read(datagram)?;
    let answer = matches!(message.class, Class::Success | Class::Error);
    (message.method == BINDING && answer).then_some(message.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5769 section 2.2: a response with an address, signed with a short-term password.
    const SAMPLE: &[u8] = b"\x01\x01\x00\x3c\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae\
        \x80\x22\x00\x0b\x74\x65\x73\x74\x20\x76\x65\x63\x74\x6f\x72\x20\x00\x20\x00\x08\x00\x01\xa1\x47\xe1\x12\xa6\x43\
        \x00\x08\x00\x14\x2b\x91\xf5\x99\xfd\x9e\x90\xc3\x8c\x74\x89\xf9\x2a\xf9\xba\x53\xf0\x6b\xe7\xd7\
        \x80\x28\x00\x04\xc0\x7d\x4c\x96";

    #[test]
    fn rfc_5769_sample_is_parsed() {
        let message = Message::read(SAMPLE).unwrap();
        assert_eq!((message.method, message.class), (BINDING, Class::Success));
        assert_eq!(message.address(0x0020), Some("192.0.2.1:32853".parse().unwrap()));
        assert!(message.is_signed(b"VOkJxbRl1RmTxUk/WvJxBt"));
        assert!(!message.is_signed(b"VOkJxbRl1RmTxUk/WvJxBs"));
    }

    #[test]
    fn message_round_trips() {
        for peer in ["192.0.2.7:9", "[2001:db8::7]:65535"] {
            let peer: SocketAddr = peer.parse().unwrap();
            let writer = Writer::new(CHANNEL_BIND, Class::Error, [7; 12]).put(DATA, b"odd");
            let writer = writer.put(LIFETIME, &[0, 0, 1, 0]).put_address(XOR_PEER_ADDRESS, peer).sign(b"key");
            let bytes = writer.put(NONCE, b"added").finish();
            let message = Message::read(&bytes).unwrap();
            assert_eq!((message.method, message.class, message.id), (CHANNEL_BIND, Class::Error, [7; 12]));
            assert_eq!(message.value(DATA), Some(&b"odd"[..]));
            assert_eq!(
                (message.address(XOR_PEER_ADDRESS), message.number(LIFETIME)),
                (Some(peer), Some(256))
            );
            assert!(message.is_signed(b"key") && !message.is_signed(b"kez"));
            assert_eq!(message.value(NONCE), None, "it is not signed");
        }
    }

    #[test]
    fn truncated_or_altered_messages_are_rejected() {
        for len in 0..SAMPLE.len() {
            assert!(Message::read(&SAMPLE[..len]).is_none(), "{len}");
        }
        for at in 0..SAMPLE.len() - 8 {
            let mut changed = SAMPLE.to_vec();
            changed[at] ^= 0x10;
            let signed = Message::read(&changed).is_some_and(|m| m.is_signed(b"VOkJxbRl1RmTxUk/WvJxBt"));
            assert!(!signed, "byte {at}");
        }
    }
}
