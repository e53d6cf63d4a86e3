//! Errors.

use std::fmt;

/// Transport error codes (RFC 9000 section 20.1, draft-ietf-quic-multipath-21 section 6).
pub(crate) mod code {
    pub(crate) use vmcc_streams::code::*;

    pub(crate) const NO_ERROR: u64 = 0x00;
    pub(crate) const REFUSED: u64 = 0x02;
    pub(crate) const FRAME_ENCODING: u64 = 0x07;
    pub(crate) const TRANSPORT_PARAMETER: u64 = 0x08;
    pub(crate) const CONNECTION_ID_LIMIT: u64 = 0x09;
    pub(crate) const PROTOCOL_VIOLATION: u64 = 0x0a;
    pub(crate) const INVALID_TOKEN: u64 = 0x0b;
    pub(crate) const APPLICATION: u64 = 0x0c;
    pub(crate) const CRYPTO_BUFFER: u64 = 0x0d;
    pub(crate) const KEY_UPDATE: u64 = 0x0e;
    pub(crate) const AEAD_LIMIT: u64 = 0x0f;
    /// The first of 256, each a TLS alert.
    pub(crate) const CRYPTO: u64 = 0x100;
    /// Paths are abandoned with these.
    pub(crate) const PATH_APPLICATION: u64 = 0x3e;
    pub(crate) const PATH_RESOURCES: u64 = 0x3e75;
    pub(crate) const PATH_UNSTABLE: u64 = 0x3e76;
}

/// Violation of the protocol by the peer, or internal error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportError {
    /// The code on the wire (RFC 9000 section 20.1).
    pub code: u64,
    /// For people.
    pub reason: String,
}

impl TransportError {
    pub(crate) fn new(code: u64, reason: impl Into<String>) -> TransportError {
        TransportError { code, reason: reason.into() }
    }

    pub(crate) fn violation(reason: &str) -> TransportError {
        TransportError::new(code::PROTOCOL_VIOLATION, reason)
    }
}

impl From<vmcc_streams::Violation> for TransportError {
    fn from(violation: vmcc_streams::Violation) -> TransportError {
        TransportError::new(violation.code, violation.reason)
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.code {
            code::NO_ERROR => "no error",
            code::INTERNAL => "internal error",
            code::REFUSED => "connection refused",
            code::FLOW_CONTROL => "flow control limit exceeded",
            code::STREAM_LIMIT => "stream limit exceeded",
            code::STREAM_STATE => "frame for a stream in the wrong state",
            code::FINAL_SIZE => "final size of a stream changed",
            code::FRAME_ENCODING => "malformed frame",
            code::TRANSPORT_PARAMETER => "unacceptable transport parameters",
            code::CONNECTION_ID_LIMIT => "too many connection ids",
            code::PROTOCOL_VIOLATION => "protocol violation",
            code::INVALID_TOKEN => "invalid token",
            code::APPLICATION => "closed by the application during the handshake",
            code::CRYPTO_BUFFER => "too much handshake data",
            code::KEY_UPDATE => "key update error",
            code::AEAD_LIMIT => "limit of the cipher reached",
            code::CRYPTO..0x200 => return write!(f, "TLS alert {}: {}", self.code & 0xff, self.reason),
            _ => return write!(f, "error {:#x}: {}", self.code, self.reason),
        };
        if self.reason.is_empty() { f.write_str(name) } else { write!(f, "{name}: {}", self.reason) }
    }
}

/// Reason of a connection's end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// This end closed it.
    #[error("closed by this end")]
    LocallyClosed,
    /// The peer's application closed it.
    #[error("closed by the peer with code {code}{}", format_reason(reason))]
    ApplicationClosed {
        /// The application's code.
        code: u64,
        /// Its reason phrase.
        reason: String,
    },
    /// The peer's transport closed it.
    #[error("closed by the peer: {0}")]
    PeerClosed(TransportError),
    /// The peer broke a rule, or something here did.
    #[error("{0}")]
    Transport(TransportError),
    /// The peer has forgotten the connection.
    #[error("the peer has lost the connection's state (stateless reset); connect again")]
    Reset,
    /// Nothing came for the idle timeout.
    #[error(
        "nothing came from the peer for the idle timeout; check the network and that the peer still runs"
    )]
    TimedOut,
    /// Packets on every path come back.
    #[error("nobody listens at the peer's port any more (ICMP port unreachable); check that it still runs")]
    PortUnreachable,
    /// The peer speaks no version in common.
    #[error("the peer does not speak QUIC version 1")]
    VersionMismatch,
}

fn format_reason(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}
