//! The transport over real sockets, with relays, and against picoquic.

mod loopback;
mod picoquic;
mod relay;
