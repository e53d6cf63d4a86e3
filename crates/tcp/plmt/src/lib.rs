//! Multipath sessions of `vmcc_tcp` on real sockets: no root, no TCP option, no UDP.
//!
//! A client [`connect`]s along several [`Route`]s; the first that answers makes the session, the others join it, and each is dialled
//! again when it ends. A server [`Listener`] accepts sessions and gives further connections to the session that they name. Streams
//! are `AsyncRead` and `AsyncWrite`; one task per session moves the bytes.

#![deny(unsafe_code)]

mod connection;
mod dial;
mod driver;
mod handle;
mod info;
mod listen;
mod security;
mod shared;
mod socket;
mod stream;

pub use connection::Connection;
pub use dial::{ConnectError, Route, connect};
pub use listen::Listener;
pub use security::{ClientSecurity, ServerSecurity};
pub use stream::Stream;
pub use vmcc_tcp::{CarrierStats, Config, Dir, SessionError, Stats};
