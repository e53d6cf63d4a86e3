//! Paths of a connection: addresses, RTT, MTU, ECN validation, pacing, address validation.
//!
//! | module | owns |
//! |---|---|
//! | `path` | one path, between its first packet and its last |
//! | `set` | all paths of a connection: slots, numbers, limits, and which one carries acknowledgments |
//! | `validation` | PATH_CHALLENGE, the anti-amplification limit, the route before a migration |
//! | `status` | backup or available, as either end says |
//! | `mtu`, `ecn`, `pacer`, `inflow` | a path's packet size, marks, pacing, and end of inflow |

pub(crate) mod ecn;
pub(crate) mod inflow;
pub(crate) mod mtu;
pub(crate) mod pacer;
mod path;
mod route;
mod set;
mod status;
mod validation;

pub(crate) use path::{Path, PathResponse, PathState, SchedulerView};
pub use route::Route;
pub(crate) use set::PathSet;
pub(crate) use validation::AMPLIFICATION;
