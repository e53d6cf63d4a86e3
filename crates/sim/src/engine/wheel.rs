//! The event queue: a timing wheel whose buckets are sorted when they are reached.
//!
//! Events come out ordered by time, then by [`EventKey`] (what caused the event), then in insertion order.
//! None of the three depends on how the network was partitioned, so a parallel run replays exactly the
//! sequential one. Pushing is an append to a bucket; a bucket of a few dozen 16-byte events is sorted by a
//! single 64-bit key when its turn comes. Events beyond the wheel's horizon wait in a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::{Span, Time};

/// What caused an event; orders events of the same instant. Kind in the top 3 bits, source id below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventKey(pub(crate) u32);

/// Kinds in the order in which they happen within one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// Link changes and samples.
    Control = 0,
    /// A served link may send its next packet.
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
    pub(crate) fn source(self) -> u32 {
        self.0 & MAX_SOURCE
    }
}

/// An event in a bucket.
#[derive(Clone, Copy, Debug)]
struct Event {
    /// Time within the bucket (upper half) and key: the sort key.
    order: u64,
    /// Arrival: the packet.
    payload: u32,
    /// Arrival: the link arrived at, or the endpoint.
    target: u32,
}

/// An event as it comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) at: Time,
    pub(crate) key: EventKey,
    pub(crate) payload: u32,
    pub(crate) target: u32,
}

/// Shape of the wheel: `2^bucket_bits` buckets of `2^width_bits` picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WheelShape {
    pub(crate) width_bits: u32,
    pub(crate) bucket_bits: u32,
}

impl WheelShape {
    /// Events per bucket that sorting and prefetching like best (measured, see docs/simulator-performance.md).
    const EVENTS_PER_BUCKET: f64 = 16.0;

    /// A wheel for `events_per_s` at full load in which events lie at most `horizon` ahead as a rule.
    pub(crate) fn fit(events_per_s: f64, horizon: Span) -> WheelShape {
        let ideal_ps = Self::EVENTS_PER_BUCKET * 1e12 / events_per_s.max(1.0);
        let width_bits = (ideal_ps.max(1.0).log2().round() as u32).clamp(8, 32);
        let buckets = (horizon.ps() >> width_bits) + 2;
        WheelShape { width_bits, bucket_bits: buckets.ilog2().saturating_add(1).clamp(6, 16) }
    }
}

/// An event beyond the horizon: time, key, insertion number, payload, target.
type Far = Reverse<(Time, EventKey, u64, u32, u32)>;

#[derive(Debug)]
pub(crate) struct Wheel {
    shape: WheelShape,
    /// Absolute number of the bucket that is being emptied.
    base: u64,
    /// That bucket, sorted; the part before `cursor` is done.
    run: Vec<Event>,
    cursor: usize,
    buckets: Vec<Vec<Event>>,
    /// Emptied buffers, reused while they are still in the cache.
    spare: Vec<Vec<Event>>,
    /// One bit per bucket: not empty.
    occupied: Vec<u64>,
    far: BinaryHeap<Far>,
    far_pushed: u64,
}

impl Wheel {
    pub(crate) fn new(shape: WheelShape) -> Wheel {
        let n = 1usize << shape.bucket_bits;
        Wheel {
            shape,
            base: 0,
            run: Vec::new(),
            cursor: 0,
            buckets: vec![Vec::new(); n],
            spare: Vec::new(),
            occupied: vec![0; n.div_ceil(64)],
            far: BinaryHeap::new(),
            far_pushed: 0,
        }
    }

    /// Adds an event; `at` must not lie before the event that is being handled.
    #[inline(always)]
    pub(crate) fn push(&mut self, at: Time, key: EventKey, payload: u32, target: u32) {
        let slot = at.ps() >> self.shape.width_bits;
        debug_assert!(slot >= self.base, "event in the past");
        let ahead = slot - self.base;
        if ahead.wrapping_sub(1) < self.buckets.len() as u64 - 1 {
            let index = slot as usize & (self.buckets.len() - 1);
            let event = self.event(at, key, payload, target);
            let bucket = &mut self.buckets[index];
            if bucket.is_empty() {
                self.occupied[index / 64] |= 1 << (index % 64);
                *bucket = self.spare.pop().unwrap_or_default();
            }
            bucket.push(event);
        } else {
            self.push_unusual(at, key, payload, target, ahead);
        }
    }

    #[inline]
    fn event(&self, at: Time, key: EventKey, payload: u32, target: u32) -> Event {
        let within = at.ps() & ((1 << self.shape.width_bits) - 1);
        Event { order: within << 32 | u64::from(key.0), payload, target }
    }

    #[cold]
    #[inline(never)]
    fn push_unusual(&mut self, at: Time, key: EventKey, payload: u32, target: u32, ahead: u64) {
        if ahead == 0 {
            let event = self.event(at, key, payload, target);
            let place = self.cursor + self.run[self.cursor..].partition_point(|e| e.order <= event.order);
            self.run.insert(place, event);
        } else {
            self.far.push(Reverse((at, key, self.far_pushed, payload, target)));
            self.far_pushed += 1;
        }
    }

    /// The next event, if it lies before `end`.
    #[inline]
    pub(crate) fn pop(&mut self, end: Time) -> Option<Due> {
        if self.cursor == self.run.len() && !self.advance(end) {
            return None;
        }
        let event = self.run[self.cursor];
        let at = Time::from_ps((self.base << self.shape.width_bits) | event.order >> 32);
        if at >= end {
            return None;
        }
        self.cursor += 1;
        Some(Due { at, key: EventKey(event.order as u32), payload: event.payload, target: event.target })
    }

    /// The event `ahead` places after the next in the bucket that is being emptied: (payload, target).
    #[inline]
    pub(crate) fn peek(&self, ahead: usize) -> Option<(EventKey, u32, u32)> {
        self.run.get(self.cursor + ahead).map(|e| (EventKey(e.order as u32), e.payload, e.target))
    }

    /// Moves on to the next bucket with events, unless it begins at or after `end`.
    fn advance(&mut self, end: Time) -> bool {
        let near = self.next_occupied();
        let far = self.far.peek().map(|Reverse(e)| e.0.ps() >> self.shape.width_bits);
        let Some(slot) = near.into_iter().chain(far).min() else { return false };
        if slot << self.shape.width_bits >= end.ps() {
            return false;
        }
        self.base = slot;
        self.cursor = 0;
        let index = slot as usize & (self.buckets.len() - 1);
        let mut spent = std::mem::replace(&mut self.run, std::mem::take(&mut self.buckets[index]));
        spent.clear();
        self.spare.push(spent);
        self.occupied[index / 64] &= !(1 << (index % 64));
        if far == Some(slot) {
            self.take_far(slot);
        }
        sort(&mut self.run);
        true
    }

    /// Puts the far events of bucket `slot` before those of the run: they were pushed earlier.
    #[cold]
    fn take_far(&mut self, slot: u64) {
        let mut early = Vec::new();
        while let Some(Reverse((at, key, _, payload, target))) = self.far.peek().copied() {
            if at.ps() >> self.shape.width_bits != slot {
                break;
            }
            self.far.pop();
            early.push(self.event(at, key, payload, target));
        }
        self.run.splice(0..0, early);
    }

    /// Absolute number of the nearest occupied bucket after the base.
    fn next_occupied(&self) -> Option<u64> {
        let n = self.buckets.len();
        let start = (self.base as usize + 1) & (n - 1);
        let words = self.occupied.len();
        let first = self.occupied[start / 64] >> (start % 64) << (start % 64);
        for i in 0..=words {
            let w = (start / 64 + i) % words;
            let bits = if i == 0 { first } else { self.occupied[w] };
            if bits != 0 {
                let index = w * 64 + bits.trailing_zeros() as usize;
                let ahead = index.wrapping_sub(start) & (n - 1);
                return Some(self.base + 1 + ahead as u64);
            }
        }
        None
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.run.len() - self.cursor + self.far.len() + self.buckets.iter().map(Vec::len).sum::<usize>()
    }
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

    /// Events come out as a stable sort by (time, key) would give them, whatever the distance.
    #[test]
    fn order_is_that_of_a_stable_sort() {
        let mut rng = Streams::new(1).stream("wheel");
        let mut wheel = Wheel::new(WheelShape { width_bits: 10, bucket_bits: 6 });
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
                let due = wheel.pop(Time::NEVER).unwrap();
                now = due.at.ps();
                got.push((now, due.key.0, due.payload));
            }
        }
        while let Some(due) = wheel.pop(Time::NEVER) {
            got.push((due.at.ps(), due.key.0, due.payload));
        }
        assert_eq!(wheel.len(), 0);
        expected.sort_by_key(|e| (e.0, e.1));
        assert!(got == expected, "order differs");
    }

    #[test]
    fn pop_stops_at_the_end() {
        let mut wheel = Wheel::new(WheelShape { width_bits: 10, bucket_bits: 6 });
        let key = EventKey::new(Kind::Timer, 0);
        wheel.push(Time::from_ps(5_000), key, 7, 0);
        assert!(wheel.pop(Time::from_ps(5_000)).is_none());
        wheel.push(Time::from_ps(5_000), EventKey::new(Kind::Arrival, 0), 6, 0);
        assert_eq!(wheel.pop(Time::from_ps(5_001)).unwrap().payload, 6);
        assert_eq!(wheel.pop(Time::from_ps(5_001)).unwrap().payload, 7);
    }
}
