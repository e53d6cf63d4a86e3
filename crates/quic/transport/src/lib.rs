//! A transport for several paths: QUIC version 1 (RFC 9000 to 9002, 9221) with draft-ietf-quic-multipath-21, whose paths share one
//! congestion control.
//!
//! Nothing here reads a clock, opens a socket or asks for randomness. The caller of an [`Endpoint`] provides datagrams and the time, and
//! takes what is to leave:
//!
//! ```
//! # use std::sync::Arc;
//! # use vmcc_transport::{Config, Endpoint, Ecn, Route};
//! # use vmcc_units::time::Time;
//! # let (now, mut endpoint) = (Time::ZERO, Endpoint::new(None, [7; 32]));
//! # let route = Route { local: "127.0.0.1:1".parse()?, remote: "127.0.0.1:2".parse()? };
//! # let mut received = [0u8; 30];
//! endpoint.handle_datagram(now, route, Ecn::NotEct, &mut received);
//! let mut datagrams = Vec::new();
//! while let Some(transmit) = endpoint.poll_transmit(now, &mut datagrams) {
//!     // Send `datagrams` along `transmit.route`, in pieces of `transmit.segment` bytes.
//! }
//! while let Some((connection, event)) = endpoint.poll_event() {
//!     // Read and write streams of `endpoint.connection(connection)`.
//! }
//! let wake_up = endpoint.poll_timeout(); // then: endpoint.handle_timeout(now)
//! # Ok::<(), std::net::AddrParseError>(())
//! ```
//!
//! A path is a [`Route`], from one address here to one there. A client opens more of them with [`Connection::open_path`]; what is lost
//! on one leaves on any other, which the scheduler of `vmcc_multipath` chooses.
//!
//! Not here: 0-RTT, version 2, preferred addresses, acknowledgment frequency.

#![forbid(unsafe_code)]

mod config;
mod congestion;
mod connection;
pub mod crypto;
mod datagrams;
mod endpoint;
mod error;
mod event;
pub mod null_crypto;
mod paths;
pub mod qlog;
mod recovery;
mod wire;

pub use config::Config;
pub use connection::{Connection, PathError, PathReport, Stats, Transmit};
pub use endpoint::{Endpoint, Handle, Retry, Server};
pub use error::{ConnectionError, TransportError};
pub use event::{Event, PathClose, PathId};
pub use paths::Route;
pub use recovery::received::Ecn;
pub use vmcc_streams::{Dir, StreamError};
pub use wire::cid::ConnectionId;
