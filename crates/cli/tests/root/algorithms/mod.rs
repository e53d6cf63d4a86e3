//! Tests that load algorithms or measure what the kernel carries: one at a time.

mod flood;
mod kernel;
mod own;
mod paths;
