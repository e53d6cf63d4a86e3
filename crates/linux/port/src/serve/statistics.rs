//! Statistics of a port's classes, from its program and its queues.

use crate::plan::{ClassPlan, Plan};
use crate::{ClassStats, MAX_CLASSES, Rule};
use serde::{Deserialize, Serialize};
use vmcc_bpf::shared::port::{Counters, State};

/// Name for classes that are gone, which no configured class can have.
const REMOVED: &str = "(removed)";

/// Counters of a class's queue since it was made, and its backlog now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueCounters {
    pub(crate) backlog_bytes: u64,
    pub(crate) backlog_packets: u64,
    pub(crate) drops_full: u64,
    pub(crate) drops_other: u64,
}

/// A queue that is gone: its last counters. What waited in it then was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Removed {
    /// Its class's place in the plan.
    pub(crate) place: usize,
    pub(crate) counters: QueueCounters,
}

/// Drops of queues that are gone, by the place of their class: the program's counters go on, theirs do not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Dropped(Vec<Drops>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Drops {
    full: u64,
    other: u64,
}

impl Dropped {
    /// Adds queues that are gone.
    pub(crate) fn add(&mut self, removed: &[Removed]) {
        for Removed { place, counters } in removed.iter().filter(|removed| removed.place < MAX_CLASSES) {
            if self.0.len() <= *place {
                self.0.resize(place + 1, Drops::default());
            }
            self.0[*place].full += counters.drops_full;
            self.0[*place].other += counters.drops_other + counters.backlog_packets;
        }
    }
}

/// Counters by place, from their three homes.
pub(crate) struct Readings {
    pub(crate) passed: Vec<Counters>,
    pub(crate) queues: Vec<QueueCounters>,
    pub(crate) state: State,
}

impl Readings {
    /// Of each class of the plan, in its order.
    pub(crate) fn classes(&self, plan: &Plan, dropped: &Dropped) -> Vec<ClassStats> {
        let stats = |(place, class): (usize, &ClassPlan)| ClassStats {
            name: class.name.clone(),
            threshold_bytes: match class.rule {
                Rule::None => None,
                Rule::Threshold(bytes) => Some(bytes),
                Rule::MqEcn(_) | Rule::Tcn(_) => self.state.threshold_bytes(place),
            },
            rtt_ns: plan.rtt_ns_of(class, self.state.measured_rtt_ns(place)),
            ..self.at(place, dropped)
        };
        plan.classes.iter().enumerate().map(stats).collect()
    }

    /// Of the places that no class has any more, together; `None` if nothing passed there.
    pub(crate) fn removed(&self, plan: &Plan, dropped: &Dropped) -> Option<ClassStats> {
        let places = plan.classes.len()..MAX_CLASSES;
        let none = ClassStats { name: REMOVED.to_owned(), ..ClassStats::default() };
        let sum = places.map(|place| self.at(place, dropped)).fold(none.clone(), |sum, one| ClassStats {
            packets: sum.packets + one.packets,
            bytes: sum.bytes + one.bytes,
            sparse: sum.sparse + one.sparse,
            marked: sum.marked + one.marked,
            not_ect: sum.not_ect + one.not_ect,
            drops_not_ect: sum.drops_not_ect + one.drops_not_ect,
            drops_overload: sum.drops_overload + one.drops_overload,
            drops_full: sum.drops_full + one.drops_full,
            drops_other: sum.drops_other + one.drops_other,
            backlog_bytes: sum.backlog_bytes + one.backlog_bytes,
            backlog_packets: sum.backlog_packets + one.backlog_packets,
            max_backlog_bytes: sum.max_backlog_bytes.max(one.max_backlog_bytes),
            ..sum
        });
        (sum != none).then_some(sum)
    }

    fn at(&self, place: usize, dropped: &Dropped) -> ClassStats {
        let passed = self.passed.get(place).copied().unwrap_or_default();
        let queue = self.queues.get(place).copied().unwrap_or_default();
        let gone = dropped.0.get(place).copied().unwrap_or_default();
        ClassStats {
            packets: passed.packets,
            bytes: passed.bytes,
            sparse: passed.sparse,
            marked: passed.marked,
            not_ect: passed.not_ect,
            drops_not_ect: passed.drops_not_ect,
            drops_overload: passed.drops_overload,
            drops_full: queue.drops_full + gone.full,
            drops_other: queue.drops_other + gone.other,
            backlog_bytes: queue.backlog_bytes,
            backlog_packets: queue.backlog_packets,
            max_backlog_bytes: passed.max_backlog_bytes,
            ..ClassStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::resolved;

    #[test]
    fn counters_of_removed_classes_are_kept() {
        let plan = resolved("rate = '1mbit'", 1500);
        let passed = [3, 5].map(|packets| Counters { packets, ..Counters::default() });
        let readings = Readings { passed: passed.to_vec(), queues: Vec::new(), state: State::default() };
        let mut dropped = Dropped::default();
        let counters = QueueCounters { drops_full: 2, backlog_packets: 4, ..QueueCounters::default() };
        dropped.add(&[Removed { place: 1, counters }]);
        dropped.add(&[Removed { place: 1, counters }]);
        assert_eq!(readings.classes(&plan, &dropped)[0].packets, 3);
        let removed = readings.removed(&plan, &dropped).unwrap();
        assert_eq!((removed.packets, removed.drops_full, removed.drops_other), (5, 4, 8));
        let nothing = Readings { passed: passed[..1].to_vec(), ..readings };
        assert_eq!(nothing.removed(&plan, &Dropped::default()), None);
    }
}
