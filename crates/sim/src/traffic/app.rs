//! Applications of connections.

use std::sync::Arc;

use crate::time::{Span, Time};

/// Object that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Earliest time of the request. Objects are requested one at a time: later if earlier ones have not arrived.
    pub at: Time,
    /// Size in bytes; at least 1.
    pub bytes: u64,
}

/// Sending application.
#[derive(Clone, Debug, PartialEq)]
pub enum App {
    /// Always has data.
    Bulk,
    /// Sends this many bytes, once.
    Sized {
        /// Size in bytes; at least 1.
        bytes: u64,
    },
    /// Client and server: the connection carries requests, a mirror connection the responses.
    RequestResponse {
        /// Request size in bytes; at least 1.
        request_bytes: u64,
        /// Response size in bytes; at least 1.
        response_bytes: u64,
        /// Requests before the end; 0 is without end.
        count: u32,
        /// Pause between a response and the next request.
        think: Span,
    },
    /// A client that asks for one object at a time: the connection carries requests, a mirror connection the objects.
    Fetches {
        /// Request size in bytes; at least 1.
        request_bytes: u64,
        /// Requested objects, ordered by time.
        objects: Arc<[Object]>,
    },
    /// Writes chunks at a rate, and makes up for what it could not write in time (iperf3's `--bitrate`).
    Paced {
        /// Bits of payload per second.
        rate_bps: u64,
        /// Bytes of each write; at least 1.
        chunk_bytes: u64,
        /// Bytes in all; [`None`] is without end.
        bytes: Option<u64>,
    },
    /// Writes at a constant rate while on.
    OnOff {
        /// Rate while on, in bits of payload per second.
        rate_bps: u64,
        /// Length of an on period.
        on: Span,
        /// Length of an off period; zero never pauses.
        off: Span,
    },
    /// Writes what a session above the connection hands over, in both directions: a mirror connection has the other.
    Carrier,
}
