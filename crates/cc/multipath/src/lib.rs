//! What every multipath sender needs, whatever carries its packets: round-trip estimation, the gradual reduction of a window, and
//! which path takes the next packet, and which are spared from suppression.
//!
//! Plain types and functions: no clock, no sockets, no allocation. A sender keeps its own paths and lends them as [`PathView`];
//! time comes in as an argument. The simulator's MPTCP uses them; congestion control itself is `vmcc_cc`.

#![forbid(unsafe_code)]

mod path;
pub mod prr;
pub mod rtt;
pub mod sched;
mod suppress;

pub use path::{MAX_PATHS, PathView, Paths};
pub use prr::Prr;
pub use rtt::{RtoLimits, Rtt};
pub use sched::{Demand, Scheduler, Selector};
pub use suppress::{MIN_PATHS, may_suppress};
