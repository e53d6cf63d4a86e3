//! Ports that are served. Each module has a `/run` and a BPF file system of its own.

mod devices;
mod lifetime;
mod port;
mod shares;
mod sparse;
mod thresholds;
mod tunnels;
