//! Draining of removed classes: they are opened, and removed when they are empty.
//!
//! HTB serves a right before turns, and turns by priority; a new priority takes effect only when a queue was empty in
//! between. So the classes that stay make room: half of the port's rate is for those that go, whatever their ceiling
//! and priority were, and the port's cap holds all the while.

use super::{Htb, class_id, leaf, service_class, turn_factor};
use crate::port::device::Device;
use crate::port::error::PortError;
use crate::port::plan::{NO_RIGHT, Plan};
use crate::port::statistics::Removed;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_netlink::HtbClass;

/// Drain timeout of classes that are removed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout without progress: a frame takes 3 s at half of the lowest rate.
const STALL_TIMEOUT: Duration = Duration::from_secs(4);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Another CPU may still put a packet by the configuration before into a queue that was empty: how often it must be.
const MIN_EMPTY_POLLS: u32 = 4;

/// The places of the classes that go.
pub(super) fn places(old: &Plan, new: &Plan) -> Range<usize> {
    new.classes.len()..old.classes.len()
}

/// A class that stays, while others go.
pub(super) fn making_room(index: usize, old: &Plan, plan: &Plan) -> HtbClass {
    let class = service_class(index, &plan.classes[index], plan);
    let right = (class.rate_bytes_per_s / 2).max(1);
    // Only an order of classes lets one of them take everything, and those that go may still be in the old order; of
    // turns they have half.
    let part = plan.rate / 2 / plan.classes.len().max(1) as u64;
    let most = if old.strict || plan.strict { part.max(right) } else { class.ceil_bytes_per_s };
    HtbClass { rate_bytes_per_s: right, ceil_bytes_per_s: class.ceil_bytes_per_s.min(most).max(1), ..class }
}

/// A class that goes: it has no ceiling of its own, and those that go have as long turns as all that stay.
pub(super) fn opened(index: usize, old: &Plan, new: &Plan) -> HtbClass {
    let class = service_class(index, &old.classes[index], old);
    let factor = u64::from(turn_factor(new));
    let turns: u64 = new.classes.iter().map(|class| u64::from(class.quantum) * factor).sum();
    HtbClass {
        rate_bytes_per_s: NO_RIGHT,
        ceil_bytes_per_s: new.rate,
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
            let waits = |place: usize| leaf(&queues, place).map_or(0, |q| q.counters.backlog_pkt);
            let waiting: u64 = places.clone().map(waits).sum();
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
    use crate::port::plan::Facts;

    fn plan(text: &str) -> Plan {
        let facts = Facts { mtu: 1500, speed: None };
        Plan::new("p0", &toml::from_str(text).unwrap(), facts).unwrap()
    }

    #[test]
    fn half_of_the_rate_is_for_classes_that_go() {
        let classes = "[[class]]\nname = 'a'\n[[class]]\nname = 'b'\n";
        let old = format!("{classes}[[class]]\nname = 'c'\nceiling = '1mbit'");
        for queue in ["rate = '80mbit'\nqueue = 'drr'\n", "rate = '80mbit'\nqueue = 'priority'\n"] {
            let (old, new) = (plan(&format!("{queue}{old}")), plan(&format!("{queue}{classes}")));
            assert_eq!(places(&old, &new), 2..3);
            let goes = opened(2, &old, &new);
            assert_eq!((goes.ceil_bytes_per_s, goes.priority), (10_000_000, 0), "{queue}");
            let stay: Vec<HtbClass> = (0..2).map(|index| making_room(index, &old, &new)).collect();
            let turns: u32 = stay.iter().map(|class| class.quantum_bytes).sum();
            let most: u64 = stay.iter().map(|class| class.ceil_bytes_per_s).sum();
            assert!(goes.quantum_bytes >= turns, "{queue}");
            assert!(!new.strict || most <= new.rate / 2, "{queue}: {most}");
        }
    }

    #[test]
    fn guarantees_leave_half_of_the_rate_too() {
        let text = "rate = '80mbit'\nqueue = 'drr'\n[[class]]\nname = 'a'\nguarantee = '60mbit'\n[[class]]\nname = \
                    'b'\nguarantee = '20mbit'";
        let new = plan(text);
        let rights: u64 = (0..2).map(|index| making_room(index, &new, &new).rate_bytes_per_s).sum();
        assert!(rights <= new.rate / 2, "{rights}");
    }
}
