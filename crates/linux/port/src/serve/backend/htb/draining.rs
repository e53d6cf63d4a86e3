//! Draining of removed classes: they are opened, and removed when they are empty.
//!
//! HTB serves a right before turns, and turns by priority; a new priority takes effect only when a queue was empty in
//! between. So the classes that stay make room: half of the port's rate is for those that go, whatever their ceiling
//! and priority were, and the port's cap holds all the while.

use super::{Htb, class_id, counters, service_class, turn_factor};
use crate::plan::{NO_RIGHT, Plan};
use crate::serve::device::Device;
use crate::serve::error::PortError;
use crate::serve::statistics::Removed;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_netlink::HtbClass;
use vmcc_units::BitsPerSec;

/// Drain timeout of classes that are removed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout without progress: a frame takes 3 s at half of the lowest rate.
const STALL_TIMEOUT: Duration = Duration::from_secs(4);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Another CPU may still put a packet by the configuration before into a queue that was empty: how often it must be.
const MIN_EMPTY_POLLS: u32 = 4;

/// Lowest rate that the kernel can be given.
const BYTE_PER_SEC: BitsPerSec = BitsPerSec::new(8);

fn halved(rate: BitsPerSec) -> BitsPerSec {
    BitsPerSec::new(rate.get() / 2)
}

/// The places of the classes that go.
pub(super) fn places(old: &Plan, new: &Plan) -> Range<usize> {
    new.classes.len()..old.classes.len()
}

/// A class that stays, while others go.
pub(super) fn making_room(index: usize, old: &Plan, plan: &Plan) -> HtbClass {
    let class = service_class(index, &plan.classes[index], plan);
    let right = halved(class.rate).max(BYTE_PER_SEC);
    // Only an order of classes lets one of them take everything, and those that go may still be in the old order; of
    // turns they have half.
    let part = BitsPerSec::new(halved(plan.rate()).get() / plan.classes.len().max(1) as u64);
    let most = if old.strict || plan.strict { part.max(right) } else { class.ceiling };
    HtbClass { rate: right, ceiling: class.ceiling.min(most).max(BYTE_PER_SEC), ..class }
}

/// A class that goes: it has no ceiling of its own, and those that go have as long turns as all that stay.
pub(super) fn opened(index: usize, old: &Plan, new: &Plan) -> HtbClass {
    let class = service_class(index, &old.classes[index], old);
    let factor = u64::from(turn_factor(new));
    let turns: u64 = new.classes.iter().map(|class| u64::from(class.quantum_bytes) * factor).sum();
    HtbClass {
        rate: NO_RIGHT,
        ceiling: new.rate(),
        quantum_bytes: class.quantum_bytes.max(u32::try_from(turns).unwrap_or(u32::MAX)),
        priority: 0,
        ..class
    }
}

impl Htb {
    /// Removes classes when they are empty, or do not become so in time; what they did in the end.
    pub(super) fn remove_classes(dev: &mut Device, places: Range<usize>) -> Result<Vec<Removed>, PortError> {
        Self::wait_until_left(dev, &places)?;
        let mut removed = Vec::new();
        for place in places {
            let last = Self::last_counters(dev, place)?;
            let deleted = dev.tc.delete_class(dev.index, class_id(place));
            deleted.map_err(|e| PortError::kernel(&dev.name, format!("remove class {place}"), e))?;
            removed.push(last);
        }
        Ok(removed)
    }

    fn wait_until_left(dev: &mut Device, places: &Range<usize>) -> Result<(), PortError> {
        let begin = Instant::now();
        let (mut least, mut since, mut empty_looks) = (u64::MAX, begin, 0);
        loop {
            let queues = Self::leaves(dev)?;
            let waiting: u64 = places.clone().map(|place| counters(&queues, place).backlog_pkt).sum();
            empty_looks = if waiting == 0 { empty_looks + 1 } else { 0 };
            if waiting < least {
                (least, since) = (waiting, Instant::now());
            }
            if empty_looks == MIN_EMPTY_POLLS
                || begin.elapsed() > DRAIN_TIMEOUT
                || since.elapsed() > STALL_TIMEOUT
            {
                return Ok(());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn last_counters(dev: &mut Device, place: usize) -> Result<Removed, PortError> {
        let counters = Self::queue_counters(dev, place..place + 1)?.pop().unwrap_or_default();
        Ok(Removed { place, counters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::resolved;

    fn plan(text: &str) -> Plan {
        resolved(text, 1500)
    }

    #[test]
    fn draining_classes_get_half_of_the_rate() {
        let classes = "[[class]]\nname = 'a'\n[[class]]\nname = 'b'\n";
        let old = format!("{classes}[[class]]\nname = 'c'\nceiling = '1mbit'");
        for queue in ["rate = '80mbit'\nqueue = 'drr'\n", "rate = '80mbit'\nqueue = 'priority'\n"] {
            let (old, new) = (plan(&format!("{queue}{old}")), plan(&format!("{queue}{classes}")));
            assert_eq!(places(&old, &new), 2..3);
            let goes = opened(2, &old, &new);
            assert_eq!((goes.ceiling.get(), goes.priority), (80_000_000, 0), "{queue}");
            let stay: Vec<HtbClass> = (0..2).map(|index| making_room(index, &old, &new)).collect();
            let turns: u32 = stay.iter().map(|class| class.quantum_bytes).sum();
            let most: u64 = stay.iter().map(|class| class.ceiling.get()).sum();
            assert!(goes.quantum_bytes >= turns, "{queue}");
            assert!(!new.strict || most <= new.rate().get() / 2, "{queue}: {most}");
        }
    }

    #[test]
    fn guarantees_are_halved_while_classes_drain() {
        let text = "rate = '80mbit'\nqueue = 'drr'\n[[class]]\nname = 'a'\nguarantee = '60mbit'\n[[class]]\nname = \
                    'b'\nguarantee = '20mbit'";
        let new = plan(text);
        let rights: u64 = (0..2).map(|index| making_room(index, &new, &new).rate.get()).sum();
        assert!(rights <= new.rate().get() / 2, "{rights}");
    }
}
