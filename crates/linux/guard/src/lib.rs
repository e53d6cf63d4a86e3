//! Guard of the paths of MPTCP connections: closes those that algorithms find to share a bottleneck, and, by a [`Policy`], those
//! that have failed or are useless; tries them again.
//!
//! Before a path is closed, the connection is listed again: another path that is alive always stays.
//!
//! | | |
//! |---|---|
//! | [`Guards`] | guards the connections of loaded algorithms by a policy |
//! | [`judge`] | decision on a request, given the subflows that there are |
//! | [`close`] | the same, performed at once |
//! | [`undo_orphaned`] | rollback of what killed guards left |

mod action;
mod apply;
mod backoff;
mod close;
mod guards;
mod health;
mod journal;
mod judge;
mod policy;
mod rollback;
mod scheduler;
mod state;
mod subflow;
#[cfg(test)]
mod tests;
mod topology;

pub use action::{Action, PathAction};
pub use close::{Verdict, close};
pub use guards::{GuardEvent, Guards, undo_orphaned};
pub use judge::{Judged, judge};
pub use policy::{CHI, OMEGA, Policy};
pub use state::GuardState;
