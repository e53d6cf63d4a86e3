//! TCP and multipath TCP, and the applications that use them.
//!
//! [`World`] takes connections and turns into the hosts of each shard of the engine; after the run [`Directory`] finds both halves
//! of each connection again.
//!
//! | module | holds |
//! |---|---|
//! | `scoreboard` | what is in flight; estimation, reduction and schedulers are in `vmcc_multipath` |
//! | `adaptation`, `undo` | how far RACK lets segments be late, and recoveries that are taken back |
//! | `subflow`, `conn`, `tx` | the sending half |
//! | `limits` | what limited a connection, and for how long |
//! | `reorder`, `window`, `rx`, `ack_path` | the receiving half |
//! | `pool` | connections that detect shared bottlenecks together |
//! | `app` | what drives connections |
//! | `carrier` | connections as byte pipes of a session |
//! | `shard`, `timers`, `world`, `record` | tables, set-up, results |
//! | `scenario` | the connections of a scenario |
//!
//! The two halves share nothing: they may run in different threads.

mod ack_path;
mod adaptation;
mod app;
mod carrier;
mod config;
mod conn;
mod limits;
mod membership;
mod pool;
mod record;
mod reorder;
mod rx;
mod scenario;
mod scoreboard;
mod shard;
mod subflow;
#[cfg(test)]
mod testing;
mod timers;
mod tx;
mod undo;
mod window;
mod world;

pub use crate::rtts::RttGroups;
pub use crate::traffic::{App, Object};
pub(crate) use carrier::Half;
pub use config::{
    AlgorithmId, ConfigId, ConnId, ConnSpec, EcnMode, LossDetection, ReceiveBuffer, SubflowSpec, TcpConfig,
};
pub use limits::LimitTimes;
pub use record::{Closing, ConnRecord, ReceiverCounters, Response, Sample, SubflowCounters, SubflowRecord};
pub(crate) use scenario::{
    Algorithms, endless, framings, make, observed_sample, observed_subflow, tcp_config,
};
pub use shard::Connections;
pub(crate) use timers::runs_in_softirq;
pub use vmcc_multipath::{AckPath, Scheduler};
pub use world::{Directory, World};
