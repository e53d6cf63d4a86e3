//! What needs a kernel: marking, guests, and the speed of the kernel programs.

pub(crate) mod agent;
pub(crate) mod bench;
pub(crate) mod bench_port;
pub(crate) mod clean;
mod flood;
pub(crate) mod guest;
pub(crate) mod mark;
pub(crate) mod matrix;
mod veth;
