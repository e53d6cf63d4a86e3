//! Transport-independent parts of a multipath sender: round-trip estimation, proportional rate reduction, packet scheduling, and the
//! choice of paths that are retained although they share a bottleneck.
//!
//! Plain types and functions: no clock, no sockets, no allocation. A sender keeps its own paths and lends them as [`PathView`];
//! time comes in as an argument. The simulator's MPTCP uses them; congestion control itself is `vmcc_cc`.

#![forbid(unsafe_code)]

mod choice;
mod late;
mod path;
pub mod prr;
pub mod rtt;
pub mod sched;
mod suppress;

pub use choice::{AckPath, Coupling};
pub use late::{Lateness, Oldest, ReinjectionBudget, late_at, on_time_limit, overdue_age};
pub use path::{MAX_PATHS, PathView, Paths};
pub use prr::Prr;
pub use rtt::{RtoLimits, Rtt};
pub use sched::{Demand, Scheduler, Selector};
pub use suppress::{MIN_PATHS, may_suppress};
