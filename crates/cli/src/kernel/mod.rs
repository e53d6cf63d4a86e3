//! What needs a kernel: guests, and the speed of the kernel programs.

pub(crate) mod bench;
pub(crate) mod bench_port;
mod flood;
pub(crate) mod guest;
pub(crate) mod matrix;
mod veth;
