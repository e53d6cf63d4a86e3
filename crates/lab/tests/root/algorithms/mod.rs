//! Tests that load algorithms or measure what the kernel carries: one at a time.

mod against_sim;
mod apps;
mod bench;
mod detectors;
mod engine;
mod lives;
mod marking;
mod metrics;
mod platforms;
mod receiving;
mod reductions;
mod throttle;
mod topologies;
mod transfer;
mod workloads;
