//! Guard of the paths of MPTCP connections: closes those that algorithms find to share a bottleneck, and, by a [`Policy`], those
//! that have failed or are useless; tries them again.
//!
//! Before a path is closed, the connection is listed again: another path that is alive always stays.
//!
//! | | |
//! |---|---|
//! | `machine` | all decisions, without I/O: requests, subflows, time in; commands and events out |
//! | [`Guard`] | performs the commands of a machine on this host, and lists what it needs |
//! | `subflow`, `topology` | operations on subflows and endpoints; hash of a namespace's addresses, interfaces and routes |
//! | `rollback`, `journal` | temporary changes: recorded before, rolled back at the end or by the next guard ([`undo_orphaned`]) |
//!
//! The agent, `vmcc up --guard` and the lab run it.

mod action;
mod guard;
mod journal;
mod machine;
mod policy;
mod rollback;
mod state;
mod subflow;
mod topology;

pub use action::{Action, GuardEvent, PathAction};
pub use guard::{Guard, RequestReaders};
pub use machine::RequestCounts;
pub use policy::{CHI, OMEGA, Policy};
pub use rollback::{ReportFn, undo_orphaned};
pub use state::GuardState;
