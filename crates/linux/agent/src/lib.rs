//! Desired state of a host: algorithms as its congestion controls, and ports of its virtual switches.
//!
//! Every call does one thing to this host, once, and returns its findings and actions as data. Errors are types that know
//! whether the request or the host is at fault, and the remedy. Nothing here prints or knows a command line.
//!
//! | | |
//! |---|---|
//! | [`up`], [`down`], [`status`] | algorithms that stay until they are taken down |
//! | [`Observer`] | the same and their connections, repeatedly |
//! | [`Guard`] | closing paths that share a bottleneck, have failed or are useless, by a [`Policy`] |
//! | [`ports`] | serving a port, changing and repairing it, its counters, its end |
//! | [`daemon`] | reconciling all of it with a file ([`config`]); rollback at its end |
//! | [`Follower`] | live events |
//! | [`clean`] | removing the leftovers of killed processes |

mod algorithms;
mod clean;
mod closed;
pub mod config;
mod connections;
pub mod daemon;
mod error;
mod events;
pub mod ports;
mod status;

pub use algorithms::{Down, Request, down, lingering_after_down, up};
pub use clean::{Cleaned, clean};
pub use closed::ClosedPath;
pub use connections::{Connection, Observer, Path, Program, Sibling};
pub use error::{Error, VERIFIER_RULES, needs_root};
pub use events::Follower;
pub use status::{HostStatus, status};
pub use vmcc_bpf::Lingering;
pub use vmcc_bpf::sharing::{Finding, Verdict};
pub use vmcc_guard::{
    Action, CHI, Guard, GuardEvent, GuardState, OMEGA, PathAction, Policy, RequestReaders, undo_orphaned,
};
pub use vmcc_system::cpu_steal::{CpuSteal, Throttled, Timeouts};
pub use vmcc_system::diag::EcnFeedback;
pub use vmcc_system::mptcp::Fallbacks;
