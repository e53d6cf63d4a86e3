//! Late carriers: their data leave on others, and they carry probes until their round trips are usual.

use super::Session;
use crate::carrier::Carrier;
use vmcc_multipath::{Oldest, late_at, on_time_limit};
use vmcc_units::time::{Span, Time};

impl Session {
    /// Slot of the best other carrier that is no backup: one on time, and of those the one that delivers first.
    fn best_other(&self, slot: usize) -> Option<usize> {
        let usable = |carrier: &Carrier| carrier.is_usable() && !carrier.backup;
        let others = self.carriers.iter().enumerate().filter(|(i, carrier)| *i != slot && usable(carrier));
        others
            .min_by_key(|(_, carrier)| (carrier.lateness.is_late(), carrier.expected_delay()))
            .map(|(i, _)| i)
    }

    /// The best other carrier, if it is on time.
    fn other_on_time(&self, slot: usize) -> Option<&Carrier> {
        self.best_other(slot).map(|other| &self.carriers[other]).filter(|other| other.is_on_time())
    }

    /// Notes which carriers get no data because another one is on time.
    pub(super) fn update_withheld(&mut self) {
        for slot in 0..self.carriers.len() {
            let late = self.carriers[slot].lateness.is_late();
            self.carriers[slot].withheld = late && self.other_on_time(slot).is_some();
        }
    }

    /// The time at which a carrier becomes late: its oldest record is overdue then.
    pub(super) fn late_at(&self, slot: usize) -> Option<Time> {
        let carrier = &self.carriers[slot];
        if self.carriers.len() < 2 || !carrier.is_on_time() {
            return None;
        }
        let oldest = carrier.outstanding.front()?;
        let oldest = Oldest { sent: oldest.sent, overdue: oldest.overdue };
        let other = &self.carriers[self.best_other(slot)?];
        late_at(oldest, other.expected_delay(), other.outstanding.front().map(|record| record.sent))
    }

    /// A carrier is late: what it carries leaves on others, the oldest first, as far as the budget allows.
    pub(super) fn on_late(&mut self, now: Time, slot: usize) {
        self.carriers[slot].lateness.begin(now);
        if let Some(other) = self.best_other(slot) {
            self.carriers[other].lateness.end(now);
        }
        let most = self.reinjection.left(self.streams.sent());
        let bytes = self.return_records(slot, most);
        self.reinjection.take(bytes);
    }

    /// Time between probes of a late carrier while others are in use: a round trip that would be on time, or none
    /// where the probe decides.
    pub(super) fn late_probe_interval(&self, slot: usize) -> Option<Span> {
        let carrier = &self.carriers[slot];
        let in_use = |other: &Carrier| other.is_on_time() && !other.outstanding.is_empty();
        let probed = carrier.lateness.is_late() && self.carriers.iter().any(in_use);
        let other = self.other_on_time(slot).filter(|_| probed)?;
        let limit = on_time_limit(&carrier.rtt, other.srtt());
        Some(if carrier.lateness.awaits_probe(carrier.last_sent) { Span::ZERO } else { limit })
    }

    /// A carrier's round trip was measured: two that are usual in a row end its lateness.
    pub(super) fn check_on_time(&mut self, now: Time, slot: usize, rtt: Span) {
        if self.carriers[slot].lateness.is_late() {
            // Without another carrier it carries data whether it is late or not.
            let other = self.other_on_time(slot).map(Carrier::srtt);
            let carrier = &mut self.carriers[slot];
            let limit = other.map_or(Span::MAX, |other| on_time_limit(&carrier.rtt, other));
            carrier.lateness.on_sample(now, rtt, limit);
        }
    }
}
