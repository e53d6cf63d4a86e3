//! Packet-level simulator: deterministic, and fast enough for thousands of hosts.
//!
//! What programs use is [`run_case`] with its [`Options`] and [`SimError`], and [`Simulator`], the same as an engine beside
//! others. Modules are for who extends it, and change with it: [`net`] holds links, queues and routes, [`engine`] the event loop
//! and the contract with hosts, [`build`] turns a network's description into these.
//!
//! Same scenario, seed and version give byte-identical results on any machine and with any number of threads.
//!
//! ```
//! use vmcc_scenario::{Document, Overrides};
//!
//! let text = r#"
//!     title = "two paths, one connection"
//!     duration = "200ms"
//!     [topology]
//!     kind = "parallel-paths"
//!     paths = 2
//!     rate = "100mbit"
//!     delay = "50us"
//!     buffer = "100pkt"
//!     [[traffic]]
//!     kind = "bulk"
//!     cc = "lia"
//! "#;
//! let plan = Document::parse("example", text)?.plan(&Overrides::default())?;
//! let options = vmcc_sim::Options { threads: 1, cancel: None, progress: None };
//! let output = vmcc_sim::run_case(&plan.cases[0], plan.seed, &options)?;
//! let again = vmcc_sim::run_case(&plan.cases[0], plan.seed, &options)?;
//! assert_eq!((&output.metrics, &output.flows), (&again.metrics, &again.flows));
//! assert!(output.metrics.goodput_bps > Some(100e6), "it uses both paths: {:?}", output.metrics);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod bench;
pub mod build;
mod datagram;
mod endpoint;
pub mod engine;
mod error;
pub mod hosts;
pub mod net;
pub mod packet;
mod plmt;
mod probe;
mod quic;
pub mod rng;
mod rtts;
pub mod run;
mod simulator;
pub mod tcp;
mod traffic;
mod transport;
mod wheel;

pub use error::{HostError, SimError};
pub use run::{Options, observe_case, run_case};
pub use simulator::Simulator;
pub use vmcc_units::time;
