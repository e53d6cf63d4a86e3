//! Closing paths that algorithms find to share a bottleneck.

use crate::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vmcc_host::guard::{CloseRequest, Guard};
use vmcc_host::{ControlError, Loaded};

/// How soon [`Guards::watch`] notices that it is to stop.
const WAIT: Duration = Duration::from_millis(200);

/// A guard of each algorithm that can ask to close a path.
#[derive(Default)]
pub struct Guards(Vec<Guard>);

impl Guards {
    pub(crate) fn of(loaded: &[Option<Loaded>]) -> Result<Self, Error> {
        let guards = loaded.iter().flatten().filter_map(|one| Guard::new(one).transpose());
        Ok(Self(guards.collect::<Result<_, _>>()?))
    }

    /// Closes paths until `stop` is set. Calls `saw` with each path that was closed and with each error: one path that
    /// cannot be closed is no reason to leave the others unguarded. Returns what was closed.
    pub fn watch(
        &self,
        stop: &AtomicBool,
        saw: &mut dyn FnMut(Result<&CloseRequest, ControlError>),
    ) -> Vec<CloseRequest> {
        let share = WAIT / u32::try_from(self.0.len().max(1)).unwrap_or(1);
        let mut closed = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            if self.0.is_empty() {
                std::thread::sleep(WAIT);
            }
            for guard in &self.0 {
                match guard.step(share) {
                    Ok(requests) => {
                        requests.iter().for_each(|request| saw(Ok(request)));
                        closed.extend(requests);
                    }
                    Err(error) => saw(Err(error)),
                }
            }
        }
        closed
    }
}
