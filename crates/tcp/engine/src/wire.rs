//! Frames of records: those of streams are RFC 9000's, the others are defined here.

use crate::error::Refusal;
use crate::keys::{Mac, Nonce, Token};
use crate::record::{MAX_BODY, RecordBuilder};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use vmcc_multipath::MAX_PATHS;
use vmcc_streams::frame::put;
use vmcc_streams::varint::{self, Malformed, Reader};
use vmcc_streams::{Frame as StreamFrame, PeerLimits};

/// Frame types beside those of streams.
pub(crate) mod ty {
    /// Carries nothing; acknowledged like any other record.
    pub(crate) const PING: u64 = 0x01;
    /// Records received, by carrier.
    pub(crate) const ACK: u64 = 0x02;
    /// The session is over.
    pub(crate) const CLOSE: u64 = 0x1c;
    /// First record of a client's first carrier.
    pub(crate) const HELLO: u64 = 0x20;
    /// Its answer.
    pub(crate) const WELCOME: u64 = 0x21;
    /// First record of a client's further carriers.
    pub(crate) const JOIN: u64 = 0x22;
    /// Its answer.
    pub(crate) const JOINED: u64 = 0x23;
    /// The answer to a HELLO or JOIN that is not accepted.
    pub(crate) const REFUSED: u64 = 0x24;
    pub(crate) const ADD_ADDRESS: u64 = 0x25;
    pub(crate) const REMOVE_ADDRESS: u64 = 0x26;
    /// A carrier is given up.
    pub(crate) const ABANDON: u64 = 0x27;
}

/// First bytes of a greeting: protocol and version.
const MAGIC: [u8; 4] = *b"vmT1";
/// Carriers that an ACK names at most: those that live, and as many that have just ended.
pub(crate) const MAX_ACKS: usize = 2 * MAX_PATHS;
/// Bytes of the reason phrase in CLOSE at most.
pub(crate) const MAX_REASON: usize = 256;

/// A client's wish for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub(crate) nonce: Nonce,
    pub(crate) limits: PeerLimits,
}

/// The server's answer to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    pub(crate) nonce: Nonce,
    pub(crate) token: Token,
    pub(crate) limits: PeerLimits,
}

/// A carrier that is to join a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// The session.
    pub token: Token,
    pub(crate) number: u64,
    pub(crate) mac: Mac,
}

/// Records received on carriers, as (number, count).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack<'a>(&'a [u8]);

impl Ack<'_> {
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut reader = Reader::new(self.0);
        std::iter::from_fn(move || Some((reader.var().ok()?, reader.var().ok()?)))
    }
}

/// A frame that was received.
#[derive(Clone, Debug)]
pub(crate) enum Frame<'a> {
    Ping,
    Ack(Ack<'a>),
    Close {
        code: u64,
        reason: &'a [u8],
    },
    Hello(Hello),
    Welcome(Welcome),
    Join(Join),
    Joined(Mac),
    /// None where this version does not know the code.
    Refused(Option<Refusal>),
    Address {
        added: bool,
        address: SocketAddr,
    },
    Abandon(u64),
    Stream(StreamFrame<'a>),
}

impl<'a> Frame<'a> {
    /// Reads the frame at the front.
    pub(crate) fn decode(r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
        Ok(match r.var()? {
            ty::PING => Frame::Ping,
            ty::ACK => Frame::Ack(decode_ack(r)?),
            ty::CLOSE => Frame::Close { code: r.var()?, reason: bounded(r.prefixed()?, MAX_REASON)? },
            ty::HELLO => {
                check_magic(r)?;
                Frame::Hello(Hello { nonce: r.array()?, limits: decode_limits(r)? })
            }
            ty::WELCOME => {
                check_magic(r)?;
                Frame::Welcome(Welcome { nonce: r.array()?, token: r.array()?, limits: decode_limits(r)? })
            }
            ty::JOIN => {
                check_magic(r)?;
                Frame::Join(Join { token: r.array()?, number: r.var()?, mac: r.array()? })
            }
            ty::JOINED => Frame::Joined(r.array()?),
            ty::REFUSED => Frame::Refused(Refusal::by_code(r.var()?)),
            ty::ADD_ADDRESS => Frame::Address { added: true, address: decode_address(r)? },
            ty::REMOVE_ADDRESS => Frame::Address { added: false, address: decode_address(r)? },
            ty::ABANDON => Frame::Abandon(r.var()?),
            kind => Frame::Stream(StreamFrame::decode(kind, r)?),
        })
    }

    /// Returns true if its record counts and is acknowledged.
    pub(crate) fn is_counted(&self) -> bool {
        !matches!(self, Frame::Ack(_) | Frame::Close { .. })
    }
}

fn bounded(bytes: &[u8], max: usize) -> Result<&[u8], Malformed> {
    if bytes.len() <= max { Ok(bytes) } else { Err(Malformed) }
}

fn check_magic(r: &mut Reader<'_>) -> Result<(), Malformed> {
    if r.array()? == MAGIC { Ok(()) } else { Err(Malformed) }
}

fn decode_ack<'a>(r: &mut Reader<'a>) -> Result<Ack<'a>, Malformed> {
    let count = r.var()?;
    if count > MAX_ACKS as u64 {
        return Err(Malformed);
    }
    let before = *r;
    for _ in 0..2 * count {
        r.var()?;
    }
    let mut body = before;
    Ok(Ack(body.take(before.left() - r.left())?))
}

fn decode_limits(r: &mut Reader<'_>) -> Result<PeerLimits, Malformed> {
    let (max_data, stream) = (r.var()?, r.var()?);
    let (max_streams_bidi, max_streams_uni) = (r.var()?, r.var()?);
    if max_streams_bidi.max(max_streams_uni) > 1 << 60 {
        return Err(Malformed);
    }
    Ok(PeerLimits {
        max_data,
        bidi_remote: stream,
        bidi_local: stream,
        uni: stream,
        max_streams_bidi,
        max_streams_uni,
    })
}

fn decode_address(r: &mut Reader<'_>) -> Result<SocketAddr, Malformed> {
    let ip = match r.u8()? {
        4 => IpAddr::V4(Ipv4Addr::from(r.array::<4>()?)),
        6 => IpAddr::V6(Ipv6Addr::from(r.array::<16>()?)),
        _ => return Err(Malformed),
    };
    Ok(SocketAddr::new(ip, u16::from_be_bytes(r.array()?)))
}

fn put_greeting(out: &mut Vec<u8>, kind: u64, parts: &[&[u8]]) {
    varint::put(out, kind);
    out.extend_from_slice(&MAGIC);
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

fn put_limits(out: &mut Vec<u8>, limits: &PeerLimits) {
    for n in [limits.max_data, limits.uni, limits.max_streams_bidi, limits.max_streams_uni] {
        varint::put(out, n.min(varint::MAX));
    }
}

pub(crate) fn put_hello(out: &mut Vec<u8>, hello: &Hello) {
    put_greeting(out, ty::HELLO, &[&hello.nonce]);
    put_limits(out, &hello.limits);
}

pub(crate) fn put_welcome(out: &mut Vec<u8>, welcome: &Welcome) {
    put_greeting(out, ty::WELCOME, &[&welcome.nonce, &welcome.token]);
    put_limits(out, &welcome.limits);
}

pub(crate) fn put_join(out: &mut Vec<u8>, join: &Join) {
    put_greeting(out, ty::JOIN, &[&join.token]);
    varint::put(out, join.number);
    out.extend_from_slice(&join.mac);
}

pub(crate) fn put_joined(out: &mut Vec<u8>, mac: &Mac) {
    varint::put(out, ty::JOINED);
    out.extend_from_slice(mac);
}

pub(crate) fn put_ack(out: &mut Vec<u8>, counts: &[(u64, u64)]) {
    put(out, ty::ACK, &[counts.len() as u64]);
    counts.iter().for_each(|&(carrier, count)| {
        varint::put(out, carrier);
        varint::put(out, count);
    });
}

pub(crate) fn put_close(out: &mut Vec<u8>, code: u64, reason: &str) {
    let reason = &reason.as_bytes()[..reason.floor_char_boundary(MAX_REASON)];
    put(out, ty::CLOSE, &[code.min(varint::MAX), reason.len() as u64]);
    out.extend_from_slice(reason);
}

pub(crate) fn put_address(out: &mut Vec<u8>, added: bool, address: SocketAddr) {
    varint::put(out, if added { ty::ADD_ADDRESS } else { ty::REMOVE_ADDRESS });
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
    out.extend_from_slice(&address.port().to_be_bytes());
}

/// One record of the frames that `write` appends.
pub(crate) fn record(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let builder = RecordBuilder::begin(&mut out, MAX_BODY);
    write(&mut out);
    builder.finish(&mut out);
    out
}

/// The record that refuses a greeting. The caller closes the connection after it.
pub fn refusal(refusal: Refusal) -> Vec<u8> {
    record(|out| put(out, ty::REFUSED, &[refusal.code()]))
}

/// Bytes of a STREAM frame's header at most: type, id, offset, length.
pub(crate) const MAX_STREAM_HEADER: usize = 1 + 8 + 8 + 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(bytes: &[u8]) -> Frame<'_> {
        let mut reader = Reader::new(bytes);
        let frame = Frame::decode(&mut reader).unwrap();
        assert!(reader.is_empty(), "{frame:?}");
        frame
    }

    #[test]
    fn greetings_round_trip() {
        let limits = PeerLimits {
            max_data: 5,
            bidi_remote: 6,
            bidi_local: 6,
            uni: 6,
            max_streams_bidi: 7,
            max_streams_uni: 8,
        };
        let hello = Hello { nonce: [1; 16], limits };
        let welcome = Welcome { nonce: [2; 16], token: [3; 16], limits };
        let join = Join { token: [4; 16], number: 1 << 40, mac: [5; 16] };
        let mut out = Vec::new();
        put_hello(&mut out, &hello);
        assert!(matches!(decode(&out), Frame::Hello(read) if read == hello));
        out.clear();
        put_welcome(&mut out, &welcome);
        assert!(matches!(decode(&out), Frame::Welcome(read) if read == welcome));
        out.clear();
        put_join(&mut out, &join);
        assert!(matches!(decode(&out), Frame::Join(read) if read == join));
        out[1] ^= 1;
        assert!(Frame::decode(&mut Reader::new(&out)).is_err(), "another version");
    }

    #[test]
    fn addresses_and_acknowledgments_round_trip() {
        for address in ["10.1.2.3:443", "[2001:db8::1]:65535"] {
            let address: SocketAddr = address.parse().unwrap();
            let mut out = Vec::new();
            put_address(&mut out, true, address);
            assert!(matches!(decode(&out), Frame::Address { added: true, address: read } if read == address));
        }
        let counts = [(0, 7), (1 << 30, 1 << 50)];
        let mut out = Vec::new();
        put_ack(&mut out, &counts);
        let Frame::Ack(ack) = decode(&out) else { panic!("{out:?}") };
        assert_eq!(ack.counts().collect::<Vec<_>>(), counts);
        out.clear();
        put_ack(&mut out, &[(1, 1); MAX_ACKS + 1]);
        assert!(Frame::decode(&mut Reader::new(&out)).is_err(), "more carriers than there can be");
    }

    #[test]
    fn long_reasons_are_truncated_at_a_character() {
        let mut out = Vec::new();
        put_close(&mut out, 9, &"ä".repeat(200));
        let Frame::Close { code: 9, reason } = decode(&out) else { panic!("{out:?}") };
        assert_eq!(std::str::from_utf8(reason).unwrap().chars().count(), 128);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while !reader.is_empty() {
                let left = reader.left();
                if Frame::decode(&mut reader).is_err() {
                    break;
                }
                prop_assert!(reader.left() < left);
            }
        }
    }
}
