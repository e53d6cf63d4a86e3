//! Packet-level simulator: deterministic, and fast enough for thousands of hosts.
//!
//! [`net`] holds links, queues and routes, [`engine`] the event loop and the contract with hosts,
//! [`lower`] turns a network's description into these, [`run_case`] runs a case of a scenario. Same scenario, seed and version give
//! byte-identical results on any machine
//! and with any number of threads.

#![forbid(unsafe_code)]

pub mod bench;
pub mod engine;
pub mod host;
pub mod lower;
pub mod net;
pub mod packet;
pub mod rng;
pub mod run;
mod simulator;
pub mod time;
mod traffic;

pub use run::{Options, SimError, run_case};
pub use simulator::Simulator;
