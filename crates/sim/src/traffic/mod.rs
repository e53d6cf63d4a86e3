//! A scenario's traffic as connections and datagram senders.
//!
//! Every random draw comes from a stream named after the traffic entry, the two hosts and the number of the
//! connection between them: adding an entry or a connection changes no other's draws. An entry without a name is
//! called after what it is, not after its place in the file.

mod datagrams;
mod pairs;
mod plan;

use rand_xoshiro::rand_core::Rng;

pub(crate) use datagrams::{PlannedDatagrams, plan_datagrams};
pub(crate) use pairs::{Sender, senders};
pub(crate) use plan::{Planned, plan_flows};

use crate::rng::Stream;

/// The most connections or busy periods of one entry.
pub(crate) const MAX_FLOWS: usize = 1_000_000;

/// Uniform in [0, 1).
pub(crate) fn uniform(stream: &mut Stream) -> f64 {
    (stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Exponential with this mean. The logarithm is the same on every machine.
pub(crate) fn exponential(stream: &mut Stream, mean: f64) -> f64 {
    -libm::log(1.0 - uniform(stream)) * mean
}

/// Uniform below `n`, which must not be 0; the bias is below n / 2^64.
pub(crate) fn below(stream: &mut Stream, n: usize) -> usize {
    ((u128::from(stream.next_u64()) * n as u128) >> 64) as usize
}
