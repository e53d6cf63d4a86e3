//! Room for programs: how many are served at a time, and which one gives way when there are more.

use super::relay::Progress;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Interval at which one is looked for that gives way.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which the user is told that there is no room.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Seats for programs.
pub(super) struct Room {
    seats: Arc<Semaphore>,
    size: usize,
    idle_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Programs that may give way: they have not said what they want, or one direction has ended.
    idle: HashMap<u64, Idle>,
    reported: Option<Instant>,
}

struct Idle {
    since: Instant,
    leave: Arc<Notify>,
}

impl Room {
    /// Room for `size` programs, which give way after `idle_timeout` in which they do nothing.
    pub(super) fn new(size: usize, idle_timeout: Duration) -> Arc<Room> {
        Arc::new(Room { seats: Arc::new(Semaphore::new(size)), size, idle_timeout, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat, as soon as there is one. Where all are taken, the program that has been idle for longest gives way; `full` is called with
    /// the number of seats, once a minute at most.
    pub(super) async fn seat(self: &Arc<Room>, full: impl Fn(usize)) -> Seat {
        loop {
            let free = self.seats.clone().try_acquire_owned().ok();
            let free = match free {
                Some(free) => Some(free),
                None => {
                    if self.state().is_to_report() {
                        full(self.size);
                    }
                    self.state().evict(self.idle_timeout);
                    timeout(RETRY_INTERVAL, self.seats.clone().acquire_owned())
                        .await
                        .ok()
                        .and_then(Result::ok)
                }
            };
            if let Some(free) = free {
                return Seat::new(self.clone(), free);
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

/// The seat of one program, which may give way at first.
pub(super) struct Seat {
    room: Arc<Room>,
    id: u64,
    leave: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl Seat {
    fn new(room: Arc<Room>, permit: OwnedSemaphorePermit) -> Seat {
        let mut state = room.state();
        state.next += 1;
        let id = state.next;
        drop(state);
        let seat = Seat { room, id, leave: Arc::default(), _permit: permit };
        seat.set_idle();
        seat
    }

    /// Returns when this program is to give way.
    pub(super) async fn evicted(&self) {
        self.leave.notified().await;
    }

    fn set_idle(&self) {
        let idle = Idle { since: Instant::now(), leave: self.leave.clone() };
        self.room.state().idle.insert(self.id, idle);
    }

    /// The program keeps its seat until one of its directions ends.
    pub(super) fn keep(&self) {
        self.room.state().idle.remove(&self.id);
    }

    /// Records what its relay does.
    pub(super) fn on(&self, progress: Progress) {
        match progress {
            Progress::HalfClosed => self.set_idle(),
            Progress::Carried => {
                if let Some(idle) = self.room.state().idle.get_mut(&self.id) {
                    idle.since = Instant::now();
                }
            }
        }
    }
}

impl Drop for Seat {
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
    async fn leave(seat: Seat) {
        seat.evicted().await;
    }

    #[test]
    fn idle_programs_give_way_and_active_ones_do_not() {
        block_on(async {
            let (room, told) = (Room::new(2, IDLE_TIMEOUT), AtomicUsize::new(0));
            let full = |size| {
                told.fetch_add(size, Ordering::SeqCst);
            };
            let (active, half_closed) = (room.seat(full).await, room.seat(full).await);
            active.keep();
            half_closed.keep();
            half_closed.on(Progress::HalfClosed);
            assert_eq!(told.load(Ordering::SeqCst), 0);
            let begun = Instant::now();
            let (third, ()) = tokio::join!(room.seat(full), leave(half_closed));
            assert!(begun.elapsed() >= IDLE_TIMEOUT, "it had time to be answered");
            third.keep();
            let waits = timeout(3 * RETRY_INTERVAL, room.seat(full)).await;
            assert!(waits.is_err(), "nobody may be interrupted");
            assert_eq!(told.load(Ordering::SeqCst), 2, "once a minute");
            drop(active);
            room.seat(full).await;
        })
        .unwrap();
    }

    #[test]
    fn what_is_carried_keeps_a_half_closed_program_its_seat() {
        block_on(async {
            let room = Room::new(2, IDLE_TIMEOUT);
            let (first, second) = (room.seat(|_| {}).await, room.seat(|_| {}).await);
            for seat in [&first, &second] {
                seat.keep();
                seat.on(Progress::HalfClosed);
            }
            first.on(Progress::Carried);
            tokio::join!(room.seat(|_| {}), leave(second));
            assert!(timeout(Duration::ZERO, first.evicted()).await.is_err());
        })
        .unwrap();
    }
}
