//! Programs over the multipath transport: `vmcc cp`, `vmcc proxy`, `vmcc keys` and `vmcc paths` without their command line.
//!
//! | module | does |
//! |---|---|
//! | `keys` | who one is: a self-signed certificate, pinned by its SHA-256 |
//! | `trust` | TLS that knows peers by that, in both directions |
//! | `copy` | files from host to host, the far end started through ssh |
//! | `proxy` | connections of other programs through one connection of ours |
//! | `session` | streams between two hosts, whatever carries them: QUIC, TCP, or what works |
//! | `endpoint_addr` | parsing of HOST:PORT, name resolution |
//! | `relays` | TURN servers, and the secrets that belong to them |
//! | `status` | connections of running programs, served on a Unix socket |
//! | `probe` | RTT, loss and hops of each pair of addresses to a QUIC server |
//!
//! Everything that is called from outside blocks and brings its own runtime; `stop` flags end it.

pub mod copy;
pub mod endpoint_addr;
pub mod keys;
pub mod probe;
pub mod proxy;
pub mod relays;
mod run;
pub mod session;
pub mod status;
pub mod trust;
mod wire;

pub use vmcc_udp::Qlog;
