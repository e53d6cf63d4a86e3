//! Tests that load algorithms and measure what the kernel carries: one at a time.

mod bench;
mod control;
mod group;
mod load;
mod recovery;
