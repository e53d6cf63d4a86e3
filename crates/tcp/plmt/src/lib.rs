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
mod http;
mod info;
mod listen;
mod pipe;
mod security;
mod shared;
mod socket;
mod stream;

pub use connection::{CarrierReport, Connection, WeakConnection};
pub use dial::{ConnectError, Dialer, HttpProxy, Route, connect};
pub use listen::{Listener, PipeAcceptor};
pub use pipe::{NewPipe, Pipe, PipeDialer};
pub use security::{ClientSecurity, ServerSecurity, random_secret};
pub use stream::{RecvStream, SendStream, Stream};
pub use vmcc_tcp::{Binding, CarrierInfo, CarrierStats, Config, Dir, SessionError, Stats};
