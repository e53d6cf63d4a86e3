//! Limit of programs served at a time, with eviction of the one that is idle for longest.

use super::relay::Progress;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Interval between attempts to evict an idle program.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between reports that no slot is free.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Slots for programs.
pub(super) struct Slots {
    permits: Arc<Semaphore>,
    size: usize,
    idle_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Programs that may be evicted: they have not said what they want, or one direction has ended.
    idle: HashMap<u64, Idle>,
    reported: Option<Instant>,
}

struct Idle {
    since: Instant,
    leave: Arc<Notify>,
}

impl Slots {
    /// `size` slots; a program may be evicted after `idle_timeout` without activity.
    pub(super) fn new(size: usize, idle_timeout: Duration) -> Arc<Slots> {
        Arc::new(Slots {
            permits: Arc::new(Semaphore::new(size)),
            size,
            idle_timeout,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot, once one is free. If all are taken, the program that is idle for longest is evicted; `full` is called with the number of
    /// slots, once a minute at most.
    pub(super) async fn acquire(self: &Arc<Slots>, full: impl Fn(usize)) -> Slot {
        loop {
            let free = self.permits.clone().try_acquire_owned().ok();
            let free = match free {
                Some(free) => Some(free),
                None => {
                    if self.state().is_to_report() {
                        full(self.size);
                    }
                    self.state().evict(self.idle_timeout);
                    timeout(RETRY_INTERVAL, self.permits.clone().acquire_owned())
                        .await
                        .ok()
                        .and_then(Result::ok)
                }
            };
            if let Some(free) = free {
                return Slot::new(self.clone(), free);
            }
        }
    }
}

impl State {
    fn is_to_report(&mut self) -> bool {
        let due = self.reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL);
        if due {
            self.reported = Some(Instant::now());
        }
        due
    }

    fn evict(&mut self, idle_timeout: Duration) {
        let oldest = self.idle.iter().min_by_key(|(_, idle)| idle.since);
        let oldest = oldest.filter(|(_, idle)| idle.since.elapsed() >= idle_timeout).map(|(id, _)| *id);
        if let Some(idle) = oldest.and_then(|id| self.idle.remove(&id)) {
            idle.leave.notify_one();
        }
    }
}

/// Slot of one program, which may be evicted at first.
pub(super) struct Slot {
    slots: Arc<Slots>,
    id: u64,
    leave: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl Slot {
    fn new(slots: Arc<Slots>, permit: OwnedSemaphorePermit) -> Slot {
        let mut state = slots.state();
        state.next += 1;
        let id = state.next;
        drop(state);
        let slot = Slot { slots, id, leave: Arc::default(), _permit: permit };
        slot.set_idle();
        slot
    }

    /// Returns when this program is evicted.
    pub(super) async fn evicted(&self) {
        self.leave.notified().await;
    }

    fn set_idle(&self) {
        let idle = Idle { since: Instant::now(), leave: self.leave.clone() };
        self.slots.state().idle.insert(self.id, idle);
    }

    /// The program keeps its slot until one of its directions ends.
    pub(super) fn keep(&self) {
        self.slots.state().idle.remove(&self.id);
    }

    /// Records what its relay does.
    pub(super) fn on(&self, progress: Progress) {
        match progress {
            Progress::HalfClosed => self.set_idle(),
            Progress::Carried => {
                if let Some(idle) = self.slots.state().idle.get_mut(&self.id) {
                    idle.since = Instant::now();
                }
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::block_on;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const IDLE_TIMEOUT: Duration = Duration::from_millis(100);

    /// Waits for its turn to leave, and does.
    async fn leave(slot: Slot) {
        slot.evicted().await;
    }

    #[test]
    fn idle_programs_are_evicted_before_active_ones() {
        block_on(async {
            let (slots, told) = (Slots::new(2, IDLE_TIMEOUT), AtomicUsize::new(0));
            let full = |size| {
                told.fetch_add(size, Ordering::SeqCst);
            };
            let (active, half_closed) = (slots.acquire(full).await, slots.acquire(full).await);
            active.keep();
            half_closed.keep();
            half_closed.on(Progress::HalfClosed);
            assert_eq!(told.load(Ordering::SeqCst), 0);
            let begun = Instant::now();
            let (third, ()) = tokio::join!(slots.acquire(full), leave(half_closed));
            assert!(begun.elapsed() >= IDLE_TIMEOUT, "it had time to be answered");
            third.keep();
            let waits = timeout(3 * RETRY_INTERVAL, slots.acquire(full)).await;
            assert!(waits.is_err(), "nobody may be interrupted");
            assert_eq!(told.load(Ordering::SeqCst), 2, "once a minute");
            drop(active);
            slots.acquire(full).await;
        })
        .unwrap();
    }

    #[test]
    fn traffic_keeps_a_half_closed_program_its_slot() {
        block_on(async {
            let slots = Slots::new(2, IDLE_TIMEOUT);
            let (first, second) = (slots.acquire(|_| {}).await, slots.acquire(|_| {}).await);
            for slot in [&first, &second] {
                slot.keep();
                slot.on(Progress::HalfClosed);
            }
            first.on(Progress::Carried);
            tokio::join!(slots.acquire(|_| {}), leave(second));
            assert!(timeout(Duration::ZERO, first.evicted()).await.is_err());
        })
        .unwrap();
    }
}
