//! Tokens that show that a client receives at its address (RFC 9000 section 8.1).

use crate::crypto::Secret;
use crate::wire::cid::ConnectionId;
use crate::wire::varint::Reader;
use std::net::{IpAddr, SocketAddr};
use vmcc_units::time::{Span, Time};

/// Lifetime of a token of a Retry, and of one for the next connection.
const RETRY_AGE: Span = Span::from_secs(15);
const TOKEN_AGE: Span = Span::from_secs(24 * 3600);

/// First byte of a token.
const RETRY: u8 = 0;
const LATER: u8 = 1;

/// Contents of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Of a Retry: where the first Initial went to.
    Retry(ConnectionId),
    /// Of an earlier connection.
    Later,
}

impl Token {
    /// A token for a client at `remote`; that of a Retry holds for packets to the id `scid` only.
    pub(super) fn write(
        self,
        secret: &Secret,
        now: Time,
        remote: SocketAddr,
        scid: &ConnectionId,
    ) -> Vec<u8> {
        let (kind, original) = match self {
            Token::Retry(original) => (RETRY, original),
            Token::Later => (LATER, ConnectionId::EMPTY),
        };
        let mut token = vec![kind];
        token.extend_from_slice(&now.us().to_be_bytes());
        token.extend_from_slice(original.as_slice());
        let tag = secret.tag(&context(&token, kind, remote, scid));
        token.extend_from_slice(&tag);
        token
    }

    /// Returns true if it looks like one of a Retry, ours or not.
    pub(super) fn is_of_retry(token: &[u8]) -> bool {
        token.first() == Some(&RETRY)
    }

    /// Reads a token that came from `remote` in a packet to `dcid`; none if it is not ours or too old.
    pub(super) fn read(
        secret: &Secret,
        now: Time,
        remote: SocketAddr,
        dcid: &ConnectionId,
        token: &[u8],
    ) -> Option<Token> {
        let (body, tag) = token.split_at_checked(token.len().checked_sub(16)?)?;
        let mut reader = Reader::new(body);
        let kind = reader.u8().ok()?;
        // One byte says how long it is.
        u8::try_from(body.len()).ok()?;
        if !secret.is_tag(&context(body, kind, remote, dcid), tag) {
            return None;
        }
        let issued = Time::from_ps(u64::from_be_bytes(reader.array().ok()?).saturating_mul(1_000_000));
        let age = if kind == RETRY { RETRY_AGE } else { TOKEN_AGE };
        if now.since(issued) > age {
            return None;
        }
        match kind {
            RETRY => Some(Token::Retry(ConnectionId::new(reader.take_rest())?)),
            LATER if reader.is_empty() => Some(Token::Later),
            _ => None,
        }
    }
}

/// Data under the tag. A Retry holds for a port and an id, others for a host.
///
/// Every part has a fixed length or says its own, or the bytes of one could be read as those of another.
fn context(body: &[u8], kind: u8, remote: SocketAddr, id: &ConnectionId) -> Vec<u8> {
    let (family, ip) = match remote.ip() {
        IpAddr::V4(ip) => (4, ip.to_ipv6_mapped()),
        IpAddr::V6(ip) => (6, ip),
    };
    let (port, id) = if kind == RETRY { (remote.port(), id.as_slice()) } else { (0, &[][..]) };
    let mut context = vec![body.len() as u8, family, id.len() as u8];
    context.extend_from_slice(&ip.octets());
    context.extend_from_slice(&port.to_be_bytes());
    context.extend_from_slice(id);
    context.extend_from_slice(body);
    context
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmcc_units::time::Span;

    #[test]
    fn token_is_valid_for_its_client_and_lifetime() {
        let (secret, now) = (Secret::new(b"key"), Time::ZERO + Span::from_secs(9));
        let [a, b]: [SocketAddr; 2] = ["10.0.0.1:5", "10.0.0.1:6"].map(|text| text.parse().unwrap());
        let [id, other] = [&[1, 2][..], &[3]].map(|bytes| ConnectionId::new(bytes).unwrap());
        let retry = Token::Retry(other).write(&secret, now, a, &id);
        let read = |at, from, id, token: &[u8]| Token::read(&secret, at, from, id, token);
        assert_eq!(read(now, a, &id, &retry), Some(Token::Retry(other)));
        assert_eq!(read(now, b, &id, &retry), None);
        assert_eq!(read(now, a, &other, &retry), None);
        assert_eq!(read(now + Span::from_secs(16), a, &id, &retry), None);
        let later = Token::Later.write(&secret, now, a, &ConnectionId::EMPTY);
        assert_eq!(read(now + Span::from_secs(3600), b, &id, &later), Some(Token::Later));
        // Bytes of the id and of the address do not stand for each other.
        let long = ConnectionId::new(&[9, 9, 9, 9, 9, 9, 9, 9, 10, 0, 0, 2, 0, 5, 1, 2, 3, 4, 5, 6]).unwrap();
        let token = Token::Retry(long).write(&secret, now, a, &id);
        let shorter = [&token[..17], &token[29..]].concat();
        let moved = [&[1, 2, 3, 4, 5, 6][..], &[10, 0, 0, 1, 0, 5], id.as_slice()].concat();
        let victim = "10.0.0.2:5".parse().unwrap();
        let moved = ConnectionId::new(&moved).unwrap();
        assert_eq!(read(now, victim, &moved, &shorter), None);
        for i in 0..later.len() {
            let mut forged = later.clone();
            forged[i] ^= 1;
            assert_eq!(read(now, a, &id, &forged), None, "{i}");
            assert_eq!(read(now, a, &id, &later[..i]), None);
        }
    }
}
