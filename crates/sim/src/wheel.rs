//! The event queue: a timing wheel whose buckets are sorted when they are reached.
//!
//! Events come out ordered by time, then by [`EventKey`] (what caused the event), then in insertion order.
//! None of the three depends on how the network was partitioned, so a parallel run replays exactly the
//! sequential one.
//!
//! Pushing appends a 16-byte event to one of some hundred coarse buckets, few enough that their ends stay
//! in the cache. A coarse bucket is spread over fine ones when its turn comes, a fine one of a dozen events
//! is sorted by a single 64-bit key. Events beyond the wheel's horizon wait in a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::{Span, Time};

/// Cause of an event; orders events of the same instant. Kind in the top 3 bits, source id below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventKey(pub(crate) u32);

/// Kinds in the order in which they happen within one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// Link changes and samples.
    Control = 0,
    /// A link with a scheduler may send its next packet.
    Service = 1,
    /// A packet leaves the wire of the source link.
    Arrival = 2,
    /// A host timer.
    Timer = 3,
}

pub(crate) const SOURCE_BITS: u32 = 29;
/// Largest link or timer id that fits in a key.
pub(crate) const MAX_SOURCE: u32 = (1 << SOURCE_BITS) - 1;

impl EventKey {
    #[inline]
    pub(crate) fn new(kind: Kind, source: u32) -> EventKey {
        debug_assert!(source <= MAX_SOURCE);
        EventKey((kind as u32) << SOURCE_BITS | source)
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self.0 >> SOURCE_BITS {
            0 => Kind::Control,
            1 => Kind::Service,
            2 => Kind::Arrival,
            _ => Kind::Timer,
        }
    }

    #[inline]
    pub(crate) fn is_arrival(self) -> bool {
        self.0 >> SOURCE_BITS == Kind::Arrival as u32
    }

    #[inline]
    pub(crate) fn source(self) -> u32 {
        self.0 & MAX_SOURCE
    }
}

/// An event in a bucket.
#[derive(Clone, Copy, Debug)]
struct Event {
    /// Lower half of the time (a coarse bucket is no longer than that) and key: the sort key.
    order: u64,
    /// See [`Due`].
    payload: u32,
    target: u32,
}

impl Event {
    #[inline(always)]
    fn new(at: Time, key: EventKey, payload: u32, target: u32) -> Event {
        Event { order: at.ps() << 32 | u64::from(key.0), payload, target }
    }

    #[inline(always)]
    fn key(self) -> EventKey {
        EventKey(self.order as u32)
    }
}

/// An event as it comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) at: Time,
    pub(crate) key: EventKey,
    /// Arrival: the packet.
    pub(crate) payload: u32,
    /// Arrival: the link arrived at, or the endpoint; else 0.
    pub(crate) target: u32,
}

/// Preparation for coming events. Changes no result.
pub(crate) trait Prefetch: Copy {
    /// The event comes within a fine bucket or two.
    fn soon(self, key: EventKey, payload: u32, target: u32);
    /// The event comes after [`PREFETCH_DISTANCE`] others.
    fn near(self, target: u32);
}

/// Distance of the second prefetch, in events.
const PREFETCH_DISTANCE: usize = 3;

/// Shape of the wheel. Times to powers of two: a fine bucket lasts `2^fine_bits` ps, a coarse one
/// `2^coarse_bits`; there are `2^wheel_bits` coarse buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WheelShape {
    pub(crate) fine_bits: u32,
    pub(crate) coarse_bits: u32,
    pub(crate) wheel_bits: u32,
}

impl WheelShape {
    /// Events per fine bucket that sorting and prefetching like best (measured, see
    /// docs/evidence/simulator-performance.md).
    const EVENTS_PER_BUCKET: f64 = 12.0;
    /// Fine buckets per coarse one: their ends stay in the first-level cache.
    const FINE_BITS: u32 = 6;

    /// A wheel for `events_per_s` at full load in which events lie at most `horizon` ahead as a rule.
    pub(crate) fn fit(events_per_s: f64, horizon: Span) -> WheelShape {
        let ideal_ps = Self::EVENTS_PER_BUCKET * 1e12 / events_per_s.max(1.0);
        let fine_bits = (ideal_ps.max(1.0).log2().round() as u32).clamp(8, 26);
        let coarse_bits = fine_bits + Self::FINE_BITS;
        let buckets = (horizon.ps() >> coarse_bits) + 2;
        WheelShape { fine_bits, coarse_bits, wheel_bits: buckets.ilog2().saturating_add(1).clamp(6, 14) }
    }
}

/// An event beyond the horizon: time, key, insertion number, payload, target.
type FarEvent = Reverse<(Time, EventKey, u64, u32, u32)>;

#[derive(Debug)]
pub(crate) struct Wheel {
    shape: WheelShape,
    /// Absolute number of the coarse bucket after the one that is being emptied.
    first: u64,
    /// Upper half of the time of the events in the bucket that is being emptied.
    upper_ps: u64,
    /// Number of coarse buckets less one.
    mask: u64,
    /// Its events by fine bucket; those up to `fine` are done or in the run.
    fine: Vec<Vec<Event>>,
    /// Number of the fine bucket that is being emptied.
    position: usize,
    /// That bucket, sorted; the part before `cursor` is done.
    run: Vec<Event>,
    cursor: usize,
    /// Events by coarse bucket, modulo their number.
    coarse: Vec<Vec<Event>>,
    /// One bit per coarse bucket: not empty.
    occupied: Vec<u64>,
    /// Emptied buffers, reused while they are still in the cache.
    spare: Vec<Vec<Event>>,
    far: BinaryHeap<FarEvent>,
    far_pushed: u64,
}

impl Wheel {
    pub(crate) fn new(shape: WheelShape) -> Wheel {
        let n = 1usize << shape.wheel_bits;
        let fine = 1usize << (shape.coarse_bits - shape.fine_bits);
        assert!(shape.coarse_bits <= 32, "events keep 32 bits of their time");
        Wheel {
            shape,
            first: 1,
            upper_ps: 0,
            mask: n as u64 - 1,
            fine: vec![Vec::new(); fine],
            position: 0,
            run: Vec::new(),
            cursor: 0,
            coarse: vec![Vec::new(); n],
            occupied: vec![0; n.div_ceil(64)],
            spare: Vec::new(),
            far: BinaryHeap::new(),
            far_pushed: 0,
        }
    }

    /// Adds an event; `at` must not lie before the event that is being handled. What is rare gets words, not an [`Event`],
    /// which would have to be in memory for that.
    #[inline(always)]
    pub(crate) fn push(&mut self, at: Time, key: EventKey, payload: u32, target: u32) {
        let slot = at.ps() >> self.shape.coarse_bits;
        debug_assert!(slot + 1 >= self.first, "event in the past");
        if slot.wrapping_sub(self.first) < self.mask {
            let bucket = &mut self.coarse[(slot & self.mask) as usize];
            if bucket.len() == bucket.capacity() {
                self.push_first(at, key, payload, target);
            } else {
                bucket.push(Event::new(at, key, payload, target));
            }
        } else if slot < self.first {
            self.push_now(at, key, payload, target);
        } else {
            self.push_far(at, key, payload, target);
        }
    }

    /// Which fine bucket an event of the current coarse bucket belongs to.
    #[inline(always)]
    fn fine_of(&self, at: Time) -> usize {
        (at.ps() >> self.shape.fine_bits) as usize & (self.fine.len() - 1)
    }

    /// Into a coarse bucket that is full, as an empty one is, which has no buffer.
    #[cold]
    #[inline(never)]
    fn push_first(&mut self, at: Time, key: EventKey, payload: u32, target: u32) {
        let index = (at.ps() >> self.shape.coarse_bits & self.mask) as usize;
        let bucket = &mut self.coarse[index];
        if bucket.is_empty() {
            self.occupied[index / 64] |= 1 << (index % 64);
            *bucket = self.spare.pop().unwrap_or_default();
        }
        bucket.push(Event::new(at, key, payload, target));
    }

    /// Into the coarse bucket that is being emptied.
    #[inline(never)]
    fn push_now(&mut self, at: Time, key: EventKey, payload: u32, target: u32) {
        let fine = self.fine_of(at);
        let bucket = &mut self.fine[fine];
        if fine > self.position && bucket.len() < bucket.capacity() {
            bucket.push(Event::new(at, key, payload, target));
        } else {
            self.push_here(at, key, payload, target);
        }
    }

    /// Into a fine bucket that is full, or into the one that is being emptied.
    #[inline(never)]
    fn push_here(&mut self, at: Time, key: EventKey, payload: u32, target: u32) {
        let (fine, event) = (self.fine_of(at), Event::new(at, key, payload, target));
        if fine > self.position {
            self.fine[fine].push(event);
        } else {
            let place = self.cursor + self.run[self.cursor..].partition_point(|e| e.order <= event.order);
            self.run.insert(place, event);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_far(&mut self, at: Time, key: EventKey, payload: u32, target: u32) {
        self.far.push(Reverse((at, key, self.far_pushed, payload, target)));
        self.far_pushed += 1;
    }

    /// The next event, if it lies before `end`. `prefetch` is shown nearly every event twice before it comes:
    /// a fine bucket ahead, and a few events ahead.
    #[inline(always)]
    pub(crate) fn pop(&mut self, end: Time, prefetch: impl Prefetch) -> Option<Due> {
        if self.cursor == self.run.len() && !self.advance(end, prefetch) {
            return None;
        }
        if let Some(event) = self.run.get(self.cursor + PREFETCH_DISTANCE) {
            prefetch.near(event.target);
        }
        let event = self.run[self.cursor];
        let at = Time::from_ps(self.upper_ps | event.order >> 32);
        if at >= end {
            return None;
        }
        self.cursor += 1;
        Some(Due { at, key: event.key(), payload: event.payload, target: event.target })
    }

    /// No event lies before this instant; [`Time::NEVER`]: there is none.
    pub(crate) fn earliest(&self) -> Time {
        if let Some(event) = self.run.get(self.cursor) {
            return Time::from_ps(self.upper_ps | event.order >> 32);
        }
        if let Some(later) = self.fine[self.position + 1..].iter().position(|events| !events.is_empty()) {
            let fine = (self.position + 1 + later) as u64;
            return Time::from_ps(
                ((self.first - 1) << self.shape.coarse_bits) + (fine << self.shape.fine_bits),
            );
        }
        let near = self.next_occupied().map(|slot| slot << self.shape.coarse_bits);
        let far = self.far.peek().map(|Reverse(event)| event.0.ps());
        near.into_iter().chain(far).min().map_or(Time::NEVER, Time::from_ps)
    }

    /// Moves on to the next fine bucket with events, unless it begins at or after `end`.
    #[inline(never)]
    fn advance(&mut self, end: Time, prefetch: impl Prefetch) -> bool {
        loop {
            let later = self.position + 1..self.fine.len();
            if let Some(next) = later.into_iter().find(|&i| !self.fine[i].is_empty()) {
                self.position = next;
                break;
            }
            if !self.advance_coarse(end) {
                return false;
            }
            if !self.fine[0].is_empty() {
                self.position = 0;
                break;
            }
        }
        self.cursor = 0;
        self.run.clear();
        std::mem::swap(&mut self.run, &mut self.fine[self.position]);
        sort(&mut self.run);
        // The first comes at once.
        if let Some((_, others)) = self.run.split_first() {
            for event in &others[..others.len().min(PREFETCH_DISTANCE - 1)] {
                prefetch.near(event.target);
            }
        }
        if let Some(soon) = self.fine.get(self.position + 1) {
            for event in soon {
                prefetch.soon(event.key(), event.payload, event.target);
            }
        }
        true
    }

    /// Spreads the next coarse bucket with events over the fine ones, unless it begins at or after `end`.
    fn advance_coarse(&mut self, end: Time) -> bool {
        let near = self.next_occupied();
        let far = self.far.peek().map(|Reverse(e)| e.0.ps() >> self.shape.coarse_bits);
        let Some(slot) = near.into_iter().chain(far).min() else { return false };
        if slot << self.shape.coarse_bits >= end.ps() {
            return false;
        }
        self.first = slot + 1;
        self.upper_ps = slot << self.shape.coarse_bits & !u64::from(u32::MAX);
        self.position = 0;
        if far == Some(slot) {
            self.take_far(slot);
        }
        let index = slot as usize & (self.coarse.len() - 1);
        self.occupied[index / 64] &= !(1 << (index % 64));
        let mut bucket = std::mem::take(&mut self.coarse[index]);
        // Here and not by `fine_of`: a push might change the wheel for all the compiler knows.
        let (shift, fine) = (32 + self.shape.fine_bits, &mut self.fine[..]);
        let mask = fine.len() - 1;
        for event in &bucket {
            let bucket = &mut fine[(event.order >> shift) as usize & mask];
            if bucket.len() == bucket.capacity() {
                grow(bucket);
            }
            bucket.push(*event);
        }
        bucket.clear();
        if bucket.capacity() > 0 {
            self.spare.push(bucket);
        }
        true
    }

    /// Spreads the far events of coarse bucket `slot`, before its others: they were pushed earlier.
    #[cold]
    fn take_far(&mut self, slot: u64) {
        while let Some(Reverse((at, key, _, payload, target))) = self.far.peek().copied() {
            if at.ps() >> self.shape.coarse_bits != slot {
                break;
            }
            self.far.pop();
            let fine = self.fine_of(at);
            self.fine[fine].push(Event::new(at, key, payload, target));
        }
    }

    /// Absolute number of the nearest occupied coarse bucket after the current one.
    fn next_occupied(&self) -> Option<u64> {
        let n = self.coarse.len();
        let start = self.first as usize & (n - 1);
        let words = self.occupied.len();
        let first = self.occupied[start / 64] >> (start % 64) << (start % 64);
        for i in 0..=words {
            let w = (start / 64 + i) % words;
            let bits = if i == 0 { first } else { self.occupied[w] };
            if bits != 0 {
                let index = w * 64 + bits.trailing_zeros() as usize;
                let ahead = index.wrapping_sub(start) & (n - 1);
                return Some(self.first + ahead as u64);
            }
        }
        None
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let waiting = self.fine.iter().chain(&self.coarse).map(Vec::len).sum::<usize>();
        self.run.len() - self.cursor + self.far.len() + waiting
    }
}

#[cold]
#[inline(never)]
fn grow(bucket: &mut Vec<Event>) {
    bucket.reserve(1);
}

/// Stable; insertion sort below the size at which the library's sort wins.
fn sort(run: &mut [Event]) {
    if run.len() > 40 {
        run.sort_by_key(|e| e.order);
        return;
    }
    for i in 1..run.len() {
        let event = run[i];
        let mut j = i;
        while j > 0 && run[j - 1].order > event.order {
            run[j] = run[j - 1];
            j -= 1;
        }
        run[j] = event;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Streams;
    use rand_xoshiro::rand_core::Rng;

    #[derive(Clone, Copy)]
    struct Blind;

    impl Prefetch for Blind {
        fn soon(self, _: EventKey, _: u32, _: u32) {}
        fn near(self, _: u32) {}
    }

    /// Events come out as a stable sort by (time, key) would give them, whatever the distance.
    #[test]
    fn pop_order_matches_a_stable_sort() {
        let mut rng = Streams::new(1).stream("wheel");
        let mut wheel = Wheel::new(WheelShape { fine_bits: 8, coarse_bits: 11, wheel_bits: 6 });
        let mut expected: Vec<(u64, u32, u32)> = Vec::new();
        let mut got = Vec::new();
        let mut now = 0;
        for n in 0..20_000u32 {
            let spread = [300, 5_000, 60_000, 400_000][rng.next_u32() as usize % 4];
            let at = now + 1 + rng.next_u64() % spread;
            let key = EventKey::new(Kind::Arrival, rng.next_u32() % 3);
            wheel.push(Time::from_ps(at), key, n, 0);
            expected.push((at, key.0, n));
            if n % 3 != 0 {
                let due = wheel.pop(Time::NEVER, Blind).unwrap();
                now = due.at.ps();
                got.push((now, due.key.0, due.payload));
            }
        }
        while let Some(due) = wheel.pop(Time::NEVER, Blind) {
            got.push((due.at.ps(), due.key.0, due.payload));
        }
        assert_eq!(wheel.len(), 0);
        expected.sort_by_key(|e| (e.0, e.1));
        assert!(got == expected, "order differs");
    }

    #[test]
    fn pop_stops_at_the_end() {
        let mut wheel = Wheel::new(WheelShape { fine_bits: 8, coarse_bits: 11, wheel_bits: 6 });
        let key = EventKey::new(Kind::Timer, 0);
        wheel.push(Time::from_ps(5_000), key, 7, 0);
        assert!(wheel.pop(Time::from_ps(5_000), Blind).is_none());
        wheel.push(Time::from_ps(5_000), EventKey::new(Kind::Arrival, 0), 6, 0);
        assert_eq!(wheel.pop(Time::from_ps(5_001), Blind).unwrap().payload, 6);
        assert_eq!(wheel.pop(Time::from_ps(5_001), Blind).unwrap().payload, 7);
    }
}
