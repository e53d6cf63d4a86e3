//! Limit of programs served at a time. If all places are taken, a program that has not said what it wants or has half closed gives way, else
//! the one that is idle for longest of the user who has most.

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
    programs: HashMap<u64, Program>,
    reported: Option<Instant>,
}

struct Program {
    /// User of the program; `None`: unknown.
    owner: Option<u32>,
    /// It has not said what it wants, or one direction has ended.
    spare: bool,
    /// Last progress.
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

    /// A slot for a program of `owner`, once one is free. If all are taken, a program is evicted; `full` is called with the number of slots,
    /// once a minute at most.
    pub(super) async fn acquire(self: &Arc<Slots>, owner: Option<u32>, full: impl Fn(usize)) -> Slot {
        loop {
            let free = self.permits.clone().try_acquire_owned().ok();
            let free = match free {
                Some(free) => Some(free),
                None => {
                    if self.state().is_to_report() {
                        full(self.size);
                    }
                    self.state().evict(owner, self.idle_timeout);
                    timeout(RETRY_INTERVAL, self.permits.clone().acquire_owned())
                        .await
                        .ok()
                        .and_then(Result::ok)
                }
            };
            if let Some(free) = free {
                return Slot::new(self.clone(), free, owner);
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

    /// Evicts one program for one of `owner`: any that is spare and idle, else one of the user who has most. That user's active programs
    /// give way to other users, not to more of their own.
    fn evict(&mut self, owner: Option<u32>, idle_timeout: Duration) {
        let greatest = self.greatest(owner);
        let oldest = |among: &dyn Fn(&Program) -> bool| {
            let among = self.programs.iter().filter(|(_, program)| among(program));
            among.min_by_key(|(_, program)| program.since).map(|(id, _)| *id)
        };
        let is_idle = |program: &Program| program.since.elapsed() >= idle_timeout;
        let gives_way =
            |program: &Program| program.owner == greatest && (greatest != owner || is_idle(program));
        let spare = oldest(&|program| program.spare && is_idle(program));
        let leaves = spare.or_else(|| oldest(&gives_way));
        if let Some(program) = leaves.and_then(|id| self.programs.remove(&id)) {
            program.leave.notify_one();
        }
    }

    /// User with most programs, one more of `owner` included.
    fn greatest(&self, owner: Option<u32>) -> Option<u32> {
        let mut counts = HashMap::from([(owner, 1_usize)]);
        for program in self.programs.values() {
            *counts.entry(program.owner).or_default() += 1;
        }
        let most = counts.iter().max_by_key(|(user, count)| (**count, **user == owner));
        most.map_or(owner, |(user, _)| *user)
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
    fn new(slots: Arc<Slots>, permit: OwnedSemaphorePermit, owner: Option<u32>) -> Slot {
        let leave: Arc<Notify> = Arc::default();
        let mut state = slots.state();
        state.next += 1;
        let id = state.next;
        let program = Program { owner, spare: true, since: Instant::now(), leave: leave.clone() };
        state.programs.insert(id, program);
        drop(state);
        Slot { slots, id, leave, _permit: permit }
    }

    /// Returns when this program is evicted.
    pub(super) async fn evicted(&self) {
        self.leave.notified().await;
    }

    /// Records progress, after which the program is spare or not.
    fn set(&self, spare: Option<bool>) {
        if let Some(program) = self.slots.state().programs.get_mut(&self.id) {
            (program.since, program.spare) = (Instant::now(), spare.unwrap_or(program.spare));
        }
    }

    /// The program has said what it wants: it keeps its slot until one of its directions ends, or its user has most and it is idle.
    pub(super) fn keep(&self) {
        self.set(Some(false));
    }

    /// Records what its relay does.
    pub(super) fn on(&self, progress: Progress) {
        match progress {
            Progress::HalfClosed => self.set(Some(true)),
            Progress::Carried => self.set(None),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.state().programs.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{block_on, run_until};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::sleep;

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
            let (active, half_closed) = (slots.acquire(None, full).await, slots.acquire(None, full).await);
            active.keep();
            half_closed.keep();
            half_closed.on(Progress::HalfClosed);
            assert_eq!(told.load(Ordering::SeqCst), 0);
            let begun = Instant::now();
            let (third, ()) = tokio::join!(slots.acquire(None, full), leave(half_closed));
            assert!(begun.elapsed() >= IDLE_TIMEOUT, "it had time to be answered");
            third.keep();
            let carrying = async {
                loop {
                    [&active, &third].iter().for_each(|slot| slot.on(Progress::Carried));
                    sleep(IDLE_TIMEOUT / 10).await;
                }
            };
            let waits = timeout(3 * RETRY_INTERVAL, run_until(carrying, slots.acquire(None, full))).await;
            assert!(waits.is_err(), "programs that carry data are not interrupted for their own user");
            assert_eq!(told.load(Ordering::SeqCst), 2, "once a minute");
            drop(active);
            slots.acquire(None, full).await;
        })
        .unwrap();
    }

    #[test]
    fn traffic_keeps_a_half_closed_program_its_slot() {
        block_on(async {
            let slots = Slots::new(2, IDLE_TIMEOUT);
            let (first, second) = (slots.acquire(None, |_| {}).await, slots.acquire(None, |_| {}).await);
            for slot in [&first, &second] {
                slot.keep();
                slot.on(Progress::HalfClosed);
            }
            first.on(Progress::Carried);
            tokio::join!(slots.acquire(None, |_| {}), leave(second));
            assert!(timeout(Duration::ZERO, first.evicted()).await.is_err());
        })
        .unwrap();
    }

    #[test]
    fn silent_connections_of_the_greatest_user_give_way() {
        block_on(async {
            let slots = Slots::new(4, Duration::from_secs(3600));
            let mut greedy = Vec::new();
            for _ in 0..3 {
                greedy.push(slots.acquire(Some(1), |_| {}).await);
            }
            let modest = slots.acquire(Some(2), |_| {}).await;
            greedy.iter().chain([&modest]).for_each(Slot::keep);
            greedy[0].on(Progress::Carried);
            // Another user's program takes the place of the one that is idle for longest.
            let second = greedy.remove(1);
            let (third, ()) = tokio::join!(slots.acquire(Some(2), |_| {}), leave(second));
            third.keep();
            // Two and two: none gives way to one more of either, as all have carried something a moment ago.
            let waits = timeout(3 * RETRY_INTERVAL, slots.acquire(Some(1), |_| {})).await;
            assert!(waits.is_err());
            assert!(timeout(Duration::ZERO, modest.evicted()).await.is_err());
        })
        .unwrap();
    }

    #[test]
    fn silent_connections_of_one_user_give_way_to_its_own() {
        block_on(async {
            let slots = Slots::new(2, IDLE_TIMEOUT);
            let (first, second) = (slots.acquire(None, |_| {}).await, slots.acquire(None, |_| {}).await);
            first.keep();
            second.keep();
            tokio::join!(slots.acquire(None, |_| {}), leave(first));
            assert!(timeout(Duration::ZERO, second.evicted()).await.is_err());
        })
        .unwrap();
    }
}
