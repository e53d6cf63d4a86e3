//! Values that something else on this host changes again and again.

use super::record::Place;
use super::resource::Resource;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Before a value is set again that was changed soon after it had been set again; doubled each time up to the second.
const MIN_BACKOFF: Duration = Duration::from_secs(20);
const MAX_BACKOFF: Duration = Duration::from_secs(1280);

/// Values that were set again, or replaced.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    /// Time and back-off of each, by namespace.
    contests: BTreeMap<(u64, Resource), Contest>,
    /// The guard reopens paths: it too lets endpoints begin as backups.
    pub(super) guard_settles: bool,
}

#[derive(Debug, Clone, Copy)]
struct Contest {
    set: Instant,
    backoff: Duration,
    /// It was changed within the last back-off.
    goes_on: bool,
}

impl Contention {
    /// Tests for an item's back-off being over; if so, begins the next one.
    pub(super) fn allows(&mut self, place: &Place, resource: &Resource) -> bool {
        self.allows_at(place.cookie, resource, Instant::now())
    }

    fn allows_at(&mut self, cookie: u64, resource: &Resource, now: Instant) -> bool {
        // The last contest is over when it was quiet for twice its back-off.
        self.contests.retain(|_, contest| now - contest.set < contest.backoff * 2);
        let new = Contest { set: now, backoff: MIN_BACKOFF, goes_on: false };
        let Some(contest) = self.contests.get_mut(&(cookie, resource.clone())) else {
            self.contests.insert((cookie, resource.clone()), new);
            return true;
        };
        if now - contest.set < contest.backoff {
            contest.goes_on = true;
            return false;
        }
        let backoff = (contest.backoff * 2).min(MAX_BACKOFF);
        *contest = Contest { set: now, backoff, goes_on: true };
        true
    }

    /// Notes that another program has put its own in an item's place; tests for that having happened before.
    pub(super) fn is_replaced(&mut self, place: &Place, resource: &Resource) -> bool {
        let new = Contest { set: Instant::now(), backoff: MIN_BACKOFF, goes_on: false };
        self.contests.entry((place.cookie, resource.clone())).or_insert(new).goes_on
    }

    /// Tests for an item that was changed again within its back-off.
    pub(super) fn goes_on(&self, place: &Place, resource: &Resource) -> bool {
        self.contests.get(&(place.cookie, resource.clone())).is_some_and(|contest| contest.goes_on)
    }

    /// End of the back-off that ends first, after the time `began` of the round in which those before could be set.
    pub(super) fn next(&self, began: Instant) -> Option<Instant> {
        let due = self
            .contests
            .values()
            .filter(|contest| contest.goes_on)
            .map(|contest| contest.set + contest.backoff);
        due.filter(|at| *at > began).min()
    }

    /// The items of a namespace of which that is so, whether they are as wanted just now or not.
    pub(super) fn of(&mut self, place: &Place) -> Vec<Resource> {
        let now = Instant::now();
        self.contests.retain(|_, contest| now - contest.set < contest.backoff * 2);
        let here =
            self.contests.iter().filter(|((cookie, _), contest)| *cookie == place.cookie && contest.goes_on);
        here.map(|((_, resource), _)| resource.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_that_ends_within_a_pass_is_due_again() {
        let (mut contention, resource) = (Contention::default(), Resource::LiveDefault);
        let began = Instant::now();
        assert!(contention.allows_at(1, &resource, began) && contention.next(began).is_none());
        assert!(!contention.allows_at(1, &resource, began + MIN_BACKOFF / 2));
        let end = began + MIN_BACKOFF;
        let just_before = end.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!(contention.next(just_before), Some(end), "though the round took longer");
        assert_eq!(contention.next(end), None, "that round could set it");
    }

    #[test]
    fn value_that_is_replaced_and_removed_in_turn_is_contended() {
        let place = Place { cookie: 1, name: "host".to_owned() };
        let (mut contention, resource) = (Contention::default(), Resource::LiveDefault);
        assert!(!contention.is_replaced(&place, &resource), "once is another program's decision");
        assert!(!contention.allows(&place, &resource), "removed soon after");
        assert!(contention.is_replaced(&place, &resource) && contention.goes_on(&place, &resource));
        assert_eq!(contention.of(&place), [resource]);
    }

    #[test]
    fn contended_value_backs_off_exponentially() {
        let (mut contention, resource) = (Contention::default(), Resource::LiveDefault);
        let began = Instant::now();
        let mut set = Vec::new();
        for second in 0..4000 {
            if contention.allows_at(1, &resource, began + Duration::from_secs(second)) {
                set.push(second);
            }
        }
        assert_eq!(set, [0, 20, 60, 140, 300, 620, 1260, 2540, 3820]);
        assert!(contention.allows_at(2, &resource, began), "another namespace's is another");
        let quiet = began + Duration::from_secs(3820) + MAX_BACKOFF * 2;
        assert!(contention.allows_at(1, &resource, quiet));
        assert!(!contention.contests[&(1, resource)].goes_on, "it restarts");
    }
}
