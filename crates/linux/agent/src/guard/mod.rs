//! Guarding the paths of connections: closing those that algorithms find to share a bottleneck, and, as a [`Policy`] says,
//! those that have failed or are of no use; trying them again.
//!
//! Whoever closes a path looks again, at that moment, whether the connection has another one that is alive: one always stays.

mod action;
mod apply;
mod backoff;
mod health;
mod journal;
mod policy;
mod rollback;
mod scheduler;
mod state;
#[cfg(test)]
mod tests;
mod topology;

pub use action::{Action, PathAction};
pub use policy::{CHI, OMEGA, Policy};
pub use state::GuardState;

use crate::Error;
use scheduler::Scheduler;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vmcc_host::guard::{CloseRequest, Guard};
use vmcc_host::{ControlError, Loaded};

/// Interval at which [`Guards::watch`] checks whether to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Event of the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardEvent {
    /// It closed a path that an algorithm asked to close.
    Closed(CloseRequest),
    /// Any other action.
    Action(PathAction),
}

/// A guard of each algorithm that can ask to close a path.
#[derive(Default)]
pub struct Guards(Vec<Guard>);

impl Guards {
    pub(crate) fn of(loaded: &[Option<Loaded>]) -> Result<Self, Error> {
        let guards = loaded.iter().flatten().filter_map(|one| Guard::new(one).transpose());
        Ok(Self(guards.collect::<Result<_, _>>()?))
    }

    /// Guards paths until `stop` is set. Calls `saw` with each thing that was done and with each error: one path that
    /// cannot be closed is no reason to leave the others unguarded. Returns what algorithms asked to close, and was.
    pub fn watch(
        &self,
        policy: Policy,
        state: &mut GuardState,
        stop: &AtomicBool,
        saw: &mut dyn FnMut(Result<GuardEvent, ControlError>),
    ) -> Vec<CloseRequest> {
        let share = STOP_POLL_INTERVAL / u32::try_from(self.0.len().max(1)).unwrap_or(1);
        let mut closed = Vec::new();
        let mut say = |did: Result<GuardEvent, ControlError>| {
            if let Ok(GuardEvent::Closed(request)) = &did {
                closed.push(*request);
            }
            saw(did);
        };
        rollback::undo_orphaned(&mut say);
        let mut scheduler = Scheduler::new(policy, state);
        while !stop.load(Ordering::SeqCst) {
            if self.0.is_empty() {
                std::thread::sleep(STOP_POLL_INTERVAL);
            }
            for guard in &self.0 {
                match guard.requests(share) {
                    Ok(requests) => scheduler.enqueue(requests, guard.kernel_name()),
                    Err(error) => say(Err(error)),
                }
            }
            scheduler.run_due(&self.0, &mut say);
        }
        scheduler.end(&mut say);
        closed
    }
}

/// Undoes temporary changes of killed guards: backup flags, and endpoints that were removed to be added again.
pub fn undo_orphaned(saw: &mut dyn FnMut(Result<GuardEvent, ControlError>)) {
    rollback::undo_orphaned(saw);
}
