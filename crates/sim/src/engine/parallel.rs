//! Conservative parallel execution: each shard on its own thread, never ahead of what it may still receive.
//!
//! A packet that crosses from shard t to shard s travels at least the shortest propagation delay of the
//! links between them, L(t,s). A shard that has handled all its events before T therefore sends nothing
//! that arrives before T + L. Each shard publishes its T; each works up to the minimum of T + L over the
//! others, takes in what has arrived, and publishes again (Chandy and Misra, CACM 24(4), 1981, with shared
//! clocks in place of null messages). Events are ordered by time and cause, not by when they were handed
//! over, so the results do not depend on the interleaving of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::engine::Endpoints;
use crate::engine::partition::Partition;
use crate::engine::shard::Shard;
use crate::net::{Crossings, END, LinkChange, NetError, NetSpec};
use crate::time::{Span, Time};

/// Steps in which a shard works through the time it may: a shard that is a little slow for a moment does not
/// stop the others, which may be up to L ahead of what it has published.
const STEPS: u64 = 4;

/// Turns of the waiting loop before the processor is offered to others.
const SPINS_PER_YIELD: u32 = 200;

/// Turns of the waiting loop, beside as many as events were handled, after which threads do not pay: an event costs a few turns.
const MAX_IDLE_SPINS: u64 = 1 << 14;

/// `L(from, to)` for all pairs of shards; [`Span::MAX`] where no link joins them.
#[derive(Clone, Debug)]
pub(crate) struct Lookahead {
    shards: usize,
    spans: Vec<Span>,
}

impl Lookahead {
    pub(crate) fn new(spec: &NetSpec, partition: &Partition) -> Result<Lookahead, NetError> {
        let shards = partition.shards();
        let mut spans = vec![Span::MAX; shards * shards];
        let delays = least_delays(spec);
        for route in spec.routes.split(|&link| link == END) {
            for (i, &id) in route.iter().enumerate() {
                let link = &spec.links()[id as usize];
                let next = route.get(i + 1).map(|&next| partition.owner(&spec.links()[next as usize]));
                let (from, to) = (partition.owner(link), next.unwrap_or(partition.far_end(link)));
                // What stays in a shard limits nobody.
                if from == to {
                    continue;
                }
                if delays[id as usize] == Span::ZERO {
                    return Err(NetError::NoLookahead { link: id });
                }
                let span = &mut spans[usize::from(from) * shards + usize::from(to)];
                *span = delays[id as usize].min(*span);
            }
        }
        Ok(Lookahead { shards, spans })
    }

    /// The shortest to or from shard `me`.
    fn shortest_of(&self, me: usize) -> Span {
        let of_pair = |other| self.between(me, other).min(self.between(other, me));
        (0..self.shards).map(of_pair).min().unwrap_or(Span::MAX)
    }

    fn between(&self, from: usize, to: usize) -> Span {
        self.spans[from * self.shards + to]
    }
}

/// The shortest delay each link ever has.
fn least_delays(spec: &NetSpec) -> Vec<Span> {
    let mut delays: Vec<Span> = spec.links().iter().map(|l| l.delay).collect();
    for change in &spec.changes {
        if let LinkChange::Delay(delay) = change.change {
            let least = &mut delays[change.link.0 as usize];
            *least = delay.min(*least);
        }
    }
    delays
}

/// A value that is polled by other threads: alone on its cache lines.
#[repr(align(128))]
struct Clock(AtomicU64);

/// State shared by the threads.
struct SharedState<'a> {
    lookahead: &'a Lookahead,
    /// Per shard: all events before this instant are done and their packets handed over, ps.
    done: Vec<Clock>,
    /// By sender, then receiver.
    mail: Vec<Vec<Mutex<Crossings>>>,
    /// A thread has panicked, or handled as many events as it may, or waited too long: the others stop.
    stopped: AtomicBool,
    /// A thread waits more than it works.
    waits: AtomicBool,
    bounds: Bounds<'a>,
}

/// Limits that end a part of a run early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    /// Events that a shard handles at most.
    pub(crate) most: u64,
    /// Several shards, which wait for each other without handling any, read this meanwhile.
    pub(crate) cancel: Option<&'a AtomicBool>,
}

/// Runs all shards from `from` to `end`, or as far as `bounds` let them; the instant before which all events are done, and
/// whether threads wait for each other more than they work: because little happens within a delay, or because something else
/// uses the processors.
pub(crate) fn run<E: Endpoints>(
    shards: &mut [Shard<E>],
    lookahead: &Lookahead,
    (from, end): (Time, Time),
    bounds: Bounds<'_>,
) -> (Time, bool) {
    let shared = SharedState {
        lookahead,
        done: shards.iter().map(|_| Clock(AtomicU64::new(from.ps()))).collect(),
        mail: shards.iter().map(|_| shards.iter().map(|_| Mutex::default()).collect()).collect(),
        stopped: AtomicBool::new(false),
        waits: AtomicBool::new(false),
        bounds,
    };
    for (me, shard) in shards.iter_mut().enumerate() {
        shared.hand_over(me, &mut shard.ctx.net.outbox); // what `Endpoints::start` has sent
    }
    std::thread::scope(|scope| {
        for (me, shard) in shards.iter_mut().enumerate() {
            let shared = &shared;
            scope.spawn(move || work(me, shard, shared, from, end));
        }
    });
    let mut arrived = Crossings::default();
    for (me, shard) in shards.iter_mut().enumerate() {
        shared.take_in(me, shard, &mut arrived);
    }
    let done = shared.done.iter().map(|clock| Time::from_ps(clock.0.load(Ordering::Acquire)));
    (done.min().unwrap_or(end), shared.waits.load(Ordering::Relaxed))
}

/// The same on this thread alone, shard after shard.
pub(crate) fn run_alone<E: Endpoints>(
    shards: &mut [Shard<E>],
    lookahead: &Lookahead,
    (from, end): (Time, Time),
    most: u64,
) -> Time {
    let mut done = vec![from; shards.len()];
    let mut left = most;
    (0..shards.len()).for_each(|me| pass_on(shards, me));
    loop {
        // Before the first event of all, nothing is sent.
        let earliest = shards.iter().map(|shard| shard.ctx.wheel.earliest()).min().unwrap_or(end).min(end);
        done.iter_mut().for_each(|done| *done = earliest.max(*done));
        if done.iter().all(|done| *done >= end) {
            return end;
        }
        for me in 0..shards.len() {
            let horizon = (0..done.len()).filter(|&s| s != me).map(|s| done[s] + lookahead.between(s, me));
            let safe = horizon.min().unwrap_or(end).min(end);
            if safe <= done[me] {
                continue;
            }
            let before = shards[me].events;
            let all = shards[me].run_part(safe, left);
            left -= shards[me].events - before;
            pass_on(shards, me);
            if !all {
                return done.into_iter().min().unwrap_or(end);
            }
            done[me] = safe;
        }
    }
}

/// Hands over what shard `me` has sent to others.
fn pass_on<E>(shards: &mut [Shard<E>], me: usize) {
    for to in 0..shards.len() {
        let mut packets = std::mem::take(&mut shards[me].ctx.net.outbox[to]);
        shards[to].take_in(&mut packets);
        shards[me].ctx.net.outbox[to] = packets;
    }
}

fn work<E: Endpoints>(me: usize, shard: &mut Shard<E>, shared: &SharedState<'_>, from: Time, end: Time) {
    let _alarm = Alarm(&shared.stopped);
    let mut arrived = Crossings::default();
    let mut reached = from;
    let mut left = shared.bounds.most;
    let (begun, mut turns) = (shard.events, 0);
    let step = shared.lookahead.shortest_of(me).div(STEPS).max(Span::from_ps(1));
    while reached < end {
        let Some(safe) = shared.wait(me, reached, end, &mut turns) else { return };
        if turns > MAX_IDLE_SPINS + (shard.events - begun) {
            shared.waits.store(true, Ordering::Relaxed);
            shared.stopped.store(true, Ordering::Relaxed);
            return;
        }
        let safe = safe.min(reached + step);
        shared.take_in(me, shard, &mut arrived);
        let before = shard.events;
        let all = shard.run_part(safe, left);
        left -= shard.events - before;
        shared.hand_over(me, &mut shard.ctx.net.outbox);
        if !all {
            shared.stopped.store(true, Ordering::Relaxed);
            return;
        }
        shared.done[me].0.store(safe.ps(), Ordering::Release);
        reached = safe;
    }
}

impl SharedState<'_> {
    fn is_stopped(&self) -> bool {
        let cancel = self.bounds.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed));
        cancel || self.stopped.load(Ordering::Relaxed)
    }

    /// Waits until shard `me` may go beyond `reached`; how far. None if all are to stop.
    /// Adds its turns to `turns`.
    fn wait(&self, me: usize, reached: Time, end: Time, turns: &mut u64) -> Option<Time> {
        for turn in 0u32.. {
            if self.is_stopped() {
                return None;
            }
            let others = (0..self.done.len()).filter(|&s| s != me);
            let horizon = others.map(|s| {
                Time::from_ps(self.done[s].0.load(Ordering::Acquire)) + self.lookahead.between(s, me)
            });
            let safe = horizon.min().unwrap_or(end).min(end);
            if safe > reached {
                return Some(safe);
            }
            *turns += 1;
            if turn % SPINS_PER_YIELD == SPINS_PER_YIELD - 1 {
                std::thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
        }
        None
    }

    fn hand_over(&self, me: usize, outbox: &mut [Crossings]) {
        for (to, packets) in outbox.iter_mut().enumerate().filter(|(_, p)| !p.is_empty()) {
            let mut mail = self.mail[me][to].lock().unwrap_or_else(|e| e.into_inner());
            if mail.is_empty() { std::mem::swap(&mut *mail, packets) } else { mail.append(packets) }
        }
    }

    /// Shard `me` takes in what the others have handed over; `buffer` is empty before and after.
    fn take_in<E>(&self, me: usize, shard: &mut Shard<E>, buffer: &mut Crossings) {
        for mail in self.mail.iter().map(|to| &to[me]) {
            std::mem::swap(&mut *mail.lock().unwrap_or_else(|e| e.into_inner()), buffer);
            shard.take_in(buffer);
        }
    }
}

/// Tells the other threads when this one unwinds.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
