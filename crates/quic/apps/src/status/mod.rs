//! Connections of running programs, for `vmcc status`, `vmcc top` and Prometheus.
//!
//! A program listens at a socket in a folder that only its user can enter; each client gets one JSON document. So
//! nobody needs root, and no agent has to run. What a program that was killed has left is removed by the next one of its user.

mod client;
mod dir;
pub(crate) mod metrics;
mod registry;
pub(crate) mod server;

pub use client::programs;
pub(crate) use dir::create as private_dir;
pub(crate) use registry::{PipeGuard, Registry};

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Connections in the report.
const MAX_CONNECTIONS: usize = 1000;

/// A program and what it carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Its kind: `proxy`, `cp`, `serve`.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// The network namespace that it is in, as `/proc` names it.
    pub namespace: String,
    /// Its connections.
    pub connections: Vec<Connection>,
    /// More of them, which are too many to tell of.
    pub more: u64,
}

/// A connection of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// No other one of the program has this number.
    pub number: u64,
    /// Its congestion control.
    pub algorithm: String,
    /// Its paths.
    pub paths: Vec<Path>,
}

/// A path of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// Its number on the wire.
    pub number: u32,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The interface that has its address.
    pub device: Option<String>,
    /// Backup: it carries data only when no other path can.
    pub backup: bool,
    /// Silent although it should answer.
    pub silent: bool,
    /// Congestion window.
    pub cwnd_pkt: u32,
    /// Smoothed round-trip time; 0 before the first sample.
    pub srtt_us: u32,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Packets acknowledged.
    pub acked_pkt: u64,
    /// Those of them that the other end saw marked.
    pub marked_pkt: u64,
    /// Packets lost.
    pub lost_pkt: u64,
    /// Bytes of streams acknowledged.
    pub acked_bytes: u64,
    /// Bytes of streams received.
    pub received_bytes: u64,
}

impl Program {
    fn now(name: &str, registry: &Registry) -> Program {
        let (connections, count) = registry.connections(MAX_CONNECTIONS);
        Program {
            name: name.to_owned(),
            pid: std::process::id(),
            namespace: namespace(),
            more: (count - connections.len().min(count)) as u64,
            connections,
        }
    }
}

/// The network namespace of this process, or nothing where there are none.
fn namespace() -> String {
    std::fs::read_link("/proc/self/ns/net").map_or(String::new(), |link| link.display().to_string())
}
