//! One MPTCP connection that sends as fast as it goes, seen at both ends.

use crate::Error;
use sha2::{Digest, Sha256};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Nothing on one machine may take longer between two bytes.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
const BLOCK_BYTES: usize = 1 << 20;

/// A transfer whose figures are worth nothing.
pub(super) fn damaged(cause: impl Into<String>) -> Error {
    Error::Measurement {
        what: "a transfer".to_owned(),
        cause: cause.into(),
        remedy: "`dmesg` may say what the kernel thinks of it".to_owned(),
    }
}

/// Sees all data at one end.
pub(super) trait Observer: Send + 'static {
    fn see(&mut self, data: &[u8]);
}

impl Observer for () {
    fn see(&mut self, _: &[u8]) {}
}

impl Observer for (Sha256, u64) {
    fn see(&mut self, data: &[u8]) {
        self.0.update(data);
        self.1 += data.len() as u64;
    }
}

/// Counts what arrives from a moment on.
pub(super) struct Meter {
    from: Instant,
    /// The first and the last arrival that counted.
    first: Option<Instant>,
    last: Option<Instant>,
    /// After the first.
    bytes: u64,
}

impl From<Instant> for Meter {
    fn from(from: Instant) -> Self {
        Self { from, first: None, last: None, bytes: 0 }
    }
}

impl Observer for Meter {
    fn see(&mut self, data: &[u8]) {
        let now = Instant::now();
        if now < self.from {
            return;
        }
        match self.first {
            None => self.first = Some(now),
            Some(_) => self.bytes += data.len() as u64,
        }
        self.last = Some(now);
    }
}

impl Meter {
    pub(super) fn bits_per_second(&self) -> Result<f64, Error> {
        match (self.first, self.last) {
            (Some(first), Some(last)) if last > first => {
                Ok(self.bytes as f64 * 8.0 / (last - first).as_secs_f64())
            }
            _ => Err(damaged("nothing arrived after the warm-up")),
        }
    }
}

fn socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP))
}

pub(super) fn listen(port: u16) -> io::Result<Socket> {
    let listener = socket()?;
    listener.set_reuse_address(true)?;
    listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
    listener.listen(8)?;
    listener.set_read_timeout(Some(TIMEOUT))?;
    Ok(listener)
}

/// Reads the first connection to its end; the moment of that.
pub(super) fn receive<R: Observer>(listener: &Socket, mut observer: R) -> io::Result<(R, Instant)> {
    let (socket, _) = listener.accept()?;
    let mut stream = TcpStream::from(OwnedFd::from(socket));
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut buffer = vec![0; 1 << 18];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok((observer, Instant::now())),
            n => observer.see(&buffer[..n]),
        }
    }
}

pub(super) fn send<S: Observer>(to: SocketAddr, duration: Duration, mut observer: S) -> io::Result<S> {
    let socket = socket()?;
    socket.connect_timeout(&to.into(), TIMEOUT)?;
    let mut stream = TcpStream::from(OwnedFd::from(socket));
    stream.set_write_timeout(Some(TIMEOUT))?;
    let block = pattern();
    let until = Instant::now() + duration;
    while Instant::now() < until {
        stream.write_all(&block)?;
        observer.see(&block);
    }
    Ok(observer)
}

/// Bytes of a xorshift generator: no period that a transport could mistake.
pub(super) fn pattern() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    while bytes.len() < BLOCK_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}
