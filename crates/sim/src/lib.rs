//! Packet-level simulator: deterministic, and fast enough for thousands of hosts.
//!
//! [`net`] holds links, queues and routes, [`engine`] the event loop and the contract with hosts,
//! [`topo`] the topology builders. Same network, seed and hosts give byte-identical results on any machine
//! and with any number of threads.

#![forbid(unsafe_code)]

pub mod bench;
pub mod engine;
pub mod net;
pub mod packet;
pub mod rng;
pub mod time;
pub mod topo;
