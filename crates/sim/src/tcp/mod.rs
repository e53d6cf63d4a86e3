//! Hosts: TCP and multipath TCP, applications, datagram sources, descheduled virtual machines.
//!
//! [`World`] takes connections and turns into one [`Hosts`] per shard of the engine; after the run
//! [`Directory`] finds both halves of each connection again.
//!
//! | module | holds |
//! |---|---|
//! | `scoreboard` | what is in flight; estimation, reduction and schedulers are in `vmcc_multipath` |
//! | `subflow`, `conn`, `tx` | the sending half |
//! | `reorder`, `rx` | the receiving half |
//! | `app`, `datagram`, `pause` | what drives connections |
//! | `shard`, `world`, `record` | tables, set-up, results |
//!
//! The two halves share nothing: they may run in different threads.

mod app;
mod config;
mod conn;
mod datagram;
mod pause;
mod record;
mod reorder;
mod rx;
mod scoreboard;
mod shard;
mod subflow;
#[cfg(test)]
mod testing;
mod tx;
mod wire;
mod world;

pub use config::{
    AlgorithmId, App, ConfigId, ConnSpec, Ecn, LossDetection, ReceiveBuffer, SubflowSpec, TcpConfig,
};
pub use datagram::{DatagramRecord, DatagramSpec};
pub(crate) use pause::OffTimes;
pub use record::{FlowRecord, ReceiverCounters, Response, RttGroups, Sample, SubflowCounters, SubflowRecord};
pub use shard::Hosts;
pub use vmcc_multipath::Scheduler;
pub use world::{ConnId, DatagramId, Directory, HostError, World};
