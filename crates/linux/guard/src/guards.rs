//! Loop of the guard: reads requests, lets the scheduler act.

use crate::action::PathAction;
use crate::policy::Policy;
use crate::rollback;
use crate::scheduler::Scheduler;
use crate::state::GuardState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vmcc_host::close_requests::{CloseRequest, CloseRequests};
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
pub struct Guards(Vec<CloseRequests>);

impl Guards {
    /// Guards the connections of loaded algorithms; those that never request to close a path are passed over.
    ///
    /// # Errors
    /// The requests of one cannot be read.
    pub fn open<'a>(loaded: impl Iterator<Item = &'a Loaded>) -> Result<Self, ControlError> {
        loaded.filter_map(|one| CloseRequests::open(one).transpose()).collect::<Result<_, _>>().map(Self)
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
            for requests in &self.0 {
                match requests.poll(share) {
                    Ok(read) => scheduler.enqueue(read, requests.kernel_name()),
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
