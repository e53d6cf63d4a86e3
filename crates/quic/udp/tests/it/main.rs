//! The transport over real sockets, with relays, and against aioquic and picoquic.

mod aioquic;
mod forward;
mod hq;
mod loopback;
mod pem;
mod picoquic;
mod relay;
