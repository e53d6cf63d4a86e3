//! Programs over the multipath transport: `vmcc cp`, `vmcc proxy`, `vmcc keys` and `vmcc paths` without their command line.
//!
//! | module | does |
//! |---|---|
//! | `keys` | who one is: a self-signed certificate, pinned by its SHA-256 |
//! | `trust` | TLS that knows peers by that, in both directions |
//! | `copy` | files from host to host, the far end started through ssh |
//! | `proxy` | connections of other programs through one connection of ours |
//! | `place` | HOST:PORT as people write it |
//! | `relays` | TURN servers, and the secrets that belong to them |
//! | `live` | what programs carry now, told to who looks |
//! | `load` | endless streams and what is seen of them, for labs |
//! | `ways` | which pairs of addresses carry packets, and how fast |
//!
//! Everything that is called from outside blocks and brings its own runtime; `stop` flags end it.

pub mod copy;
pub mod keys;
pub mod live;
pub mod load;
pub mod place;
pub mod proxy;
pub mod relays;
mod run;
mod trust;
pub mod ways;
mod wire;

pub use vmcc_udp::Qlog;
