//! Guarding the paths of connections: closing those that algorithms find to share a bottleneck, and, as a [`Policy`] says,
//! those that have failed or are of no use; trying them again.
//!
//! Whoever closes a path looks again, at that moment, whether the connection has another one that is alive: one always stays.

mod debts;
mod deed;
mod journal;
mod memory;
mod policy;
mod resting;
#[cfg(test)]
mod tests;
mod topology;
mod visit;
mod warden;
mod watched;

pub use deed::{Action, Deed};
pub use memory::Memory;
pub use policy::{CHI, OMEGA, Policy};

use crate::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vmcc_host::guard::{CloseRequest, Guard};
use vmcc_host::{ControlError, Loaded};
use warden::Warden;

/// Interval at which [`Guards::watch`] checks whether to stop.
const WAIT: Duration = Duration::from_millis(200);

/// Event of the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Did {
    /// It closed a path that an algorithm asked to close.
    Closed(CloseRequest),
    /// Anything else.
    Deed(Deed),
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
        memory: &mut Memory,
        stop: &AtomicBool,
        saw: &mut dyn FnMut(Result<Did, ControlError>),
    ) -> Vec<CloseRequest> {
        let share = WAIT / u32::try_from(self.0.len().max(1)).unwrap_or(1);
        let mut closed = Vec::new();
        let mut say = |did: Result<Did, ControlError>| {
            if let Ok(Did::Closed(request)) = &did {
                closed.push(*request);
            }
            saw(did);
        };
        debts::pay_left(&mut say);
        let mut warden = Warden::new(policy, memory);
        while !stop.load(Ordering::SeqCst) {
            if self.0.is_empty() {
                std::thread::sleep(WAIT);
            }
            for guard in &self.0 {
                match guard.requests(share) {
                    Ok(requests) => warden.asked(requests, guard.kernel_name()),
                    Err(error) => say(Err(error)),
                }
            }
            warden.turn(&self.0, &mut say);
        }
        warden.end(&mut say);
        closed
    }
}

/// Takes back what guards did only for a time, and were killed before they could: backups, endpoints that are made anew.
pub fn take_back(saw: &mut dyn FnMut(Result<Did, ControlError>)) {
    debts::pay_left(saw);
}
