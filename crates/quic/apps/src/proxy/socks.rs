//! SOCKS5 (RFC 1928), the server's half: no authentication, CONNECT and UDP ASSOCIATE.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, sink};
use tokio::time::timeout;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const ASSOCIATE: u8 = 3;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

pub(super) const SUCCEEDED: u8 = 0;
pub(super) const FAILED: u8 = 1;
pub(super) const NETWORK_UNREACHABLE: u8 = 3;
pub(super) const HOST_UNREACHABLE: u8 = 4;
pub(super) const REFUSED: u8 = 5;
pub(super) const TIMED_OUT: u8 = 6;
pub(super) const NO_SUCH_COMMAND: u8 = 7;
const NO_SUCH_ADDRESS: u8 = 8;

/// Time for a refused program to read the reply and close.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// A program's request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Connect {
        host: String,
        port: u16,
    },
    /// Datagrams, which come from this port; `None`: the program does not know it yet.
    Associate(Option<NonZeroU16>),
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Greets a program and reads its request; refuses impossible ones.
pub(super) async fn read_request(io: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Request> {
    if io.read_u8().await? != VERSION {
        return Err(invalid("no SOCKS5"));
    }
    let mut methods = vec![0; io.read_u8().await?.into()];
    io.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        end_with(io, &[VERSION, NO_METHOD]).await?;
        return Err(invalid("no method in common"));
    }
    io.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let mut head = [0; 4];
    io.read_exact(&mut head).await?;
    let [version, command, _, kind] = head;
    if version != VERSION {
        return Err(invalid("no SOCKS5"));
    }
    let host = match read_host(io, kind).await {
        Ok(host) => host,
        Err(error) => {
            refuse(io, NO_SUCH_ADDRESS).await?;
            return Err(error);
        }
    };
    let port = io.read_u16().await?;
    match command {
        CONNECT => Ok(Request::Connect { host, port }),
        // The address says nothing: this side listens on the loopback, and names its own.
        ASSOCIATE => Ok(Request::Associate(NonZeroU16::new(port))),
        _ => {
            refuse(io, NO_SUCH_COMMAND).await?;
            Err(invalid("no such command"))
        }
    }
}

async fn read_host(io: &mut (impl AsyncRead + Unpin), kind: u8) -> io::Result<String> {
    match kind {
        IPV4 => Ok(Ipv4Addr::from(io.read_u32().await?).to_string()),
        IPV6 => Ok(Ipv6Addr::from(io.read_u128().await?).to_string()),
        NAME => {
            let mut name = vec![0; io.read_u8().await?.into()];
            io.read_exact(&mut name).await?;
            String::from_utf8(name).map_err(|_| invalid("a name that is no text"))
        }
        _ => Err(invalid("no such kind of address")),
    }
}

/// Grants a request; `bound` is where UDP is to be sent.
pub(super) async fn grant(io: &mut (impl AsyncWrite + Unpin), bound: Option<SocketAddr>) -> io::Result<()> {
    io.write_all(&reply(SUCCEEDED, bound)).await
}

/// Refuses a request, and ends the connection.
pub(super) async fn refuse(io: &mut (impl AsyncRead + AsyncWrite + Unpin), code: u8) -> io::Result<()> {
    end_with(io, &reply(code, None)).await
}

fn reply(code: u8, bound: Option<SocketAddr>) -> Vec<u8> {
    let mut reply = vec![VERSION, code, 0];
    put_address(&mut reply, bound.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))));
    reply
}

/// Writes the last words to a program, and reads until it closes as well: a socket that is closed with unread data sends a reset, which
/// may destroy the words before they are read (RFC 1122 section 4.2.2.13). Programs may send data right behind their request.
async fn end_with(io: &mut (impl AsyncRead + AsyncWrite + Unpin), words: &[u8]) -> io::Result<()> {
    io.write_all(words).await?;
    io.shutdown().await?;
    // A program that goes on sending is reset after all.
    let _ = timeout(REFUSAL_TIMEOUT, copy(io, &mut sink())).await;
    Ok(())
}

/// SOCKS code for an error of the system.
pub(super) fn code_of(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => REFUSED,
        io::ErrorKind::NetworkUnreachable => NETWORK_UNREACHABLE,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NotFound => HOST_UNREACHABLE,
        io::ErrorKind::TimedOut => TIMED_OUT,
        _ => FAILED,
    }
}

/// An address as SOCKS5 writes it.
pub(super) fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(IPV4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(IPV6);
            out.extend_from_slice(&ip.octets());
        }
    }
    out.extend_from_slice(&address.port().to_be_bytes());
}

/// The address at the beginning of a datagram, and what follows it.
pub(super) fn take_address(data: &[u8]) -> Option<(String, u16, &[u8])> {
    let (&kind, rest) = data.split_first()?;
    let (host, rest) = match kind {
        IPV4 => {
            let (ip, rest) = rest.split_first_chunk::<4>()?;
            (Ipv4Addr::from(*ip).to_string(), rest)
        }
        IPV6 => {
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            (Ipv6Addr::from(*ip).to_string(), rest)
        }
        NAME => {
            let (&len, rest) = rest.split_first()?;
            let (name, rest) = rest.split_at_checked(len.into())?;
            (std::str::from_utf8(name).ok()?.to_owned(), rest)
        }
        _ => return None,
    };
    let (port, rest) = rest.split_first_chunk::<2>()?;
    Some((host, u16::from_be_bytes(*port), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::block_on;

    /// Answer to a program that sends `words`, and the request that is understood.
    fn ask(words: &[u8]) -> (Vec<u8>, io::Result<Request>) {
        block_on(async {
            let (mut program, mut side) = tokio::io::duplex(1024);
            program.write_all(words).await.unwrap();
            program.shutdown().await.unwrap();
            let request = read_request(&mut side).await;
            drop(side);
            let mut answer = Vec::new();
            program.read_to_end(&mut answer).await.unwrap();
            (answer, request)
        })
        .unwrap()
    }

    #[test]
    fn requests_are_parsed() {
        let name = [&[5, 2, 1, 0, 5, 1, 0, 3, 7][..], b"db.test", &[0x15, 0x38]].concat();
        let (answer, request) = ask(&name);
        assert_eq!(answer, [5, 0]);
        assert_eq!(request.unwrap(), Request::Connect { host: "db.test".into(), port: 5432 });
        let (_, request) = ask(&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 80]);
        assert_eq!(request.unwrap(), Request::Connect { host: "127.0.0.1".into(), port: 80 });
        assert_eq!(ask(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).1.unwrap(), Request::Associate(None));
        let named = ask(&[5, 1, 0, 5, 3, 0, 1, 127, 0, 0, 1, 1, 2]).1.unwrap();
        assert_eq!(named, Request::Associate(NonZeroU16::new(0x102)));
    }

    #[test]
    fn other_input_is_refused() {
        for (words, answer) in [
            (&b"GET / HTTP/1.1\r\n"[..], &[][..]),
            (&[4, 1, 0, 80, 1, 2, 3, 4, 0], &[]),
            (&[5, 1, 2], &[5, 0xff]),
            (&[5, 1, 0, 5, 2, 0, 1, 1, 2, 3, 4, 0, 80], &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
            (&[5, 1, 0, 5, 1, 0, 9, 1, 2, 3, 4, 0, 80], &[5, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0, 0]),
            (&[5, 1, 0, 5, 1, 0, 3, 2, 0xff, 0xfe, 0, 80], &[5, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0, 0]),
            (&[5, 200, 0], &[]),
            (&[], &[]),
        ] {
            let (got, request) = ask(words);
            assert!(request.is_err(), "{words:?}");
            assert_eq!(got, answer, "{words:?}");
        }
    }

    #[test]
    fn udp_header_addresses_round_trip() {
        for text in ["192.0.2.1:53", "[2001:db8::1]:65535"] {
            let (mut data, address): (Vec<u8>, SocketAddr) = (Vec::new(), text.parse().unwrap());
            put_address(&mut data, address);
            data.extend_from_slice(b"rest");
            let (host, port, rest) = take_address(&data).unwrap();
            assert_eq!((host.parse(), port, rest), (Ok(address.ip()), address.port(), &b"rest"[..]));
            for len in 0..data.len() - 4 {
                assert!(take_address(&data[..len]).is_none());
            }
        }
    }
}
