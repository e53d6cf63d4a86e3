//! Endpoints that running connections join by: each is a backup until its subflows have joined.
//!
//! Linux 6.18 delivers wrong bytes where a subflow joins while the receiving program is in `recv` and data follows before that
//! returns; other versions reset the subflow (`docs/reference/kernels.md`). The sender puts no data on a backup while another subflow is left.

use super::record::Place;
use super::resource::{Resource, settling_text};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};
use vmcc_system::diag::Diag;

/// Two round trips of the slowest usual path (ADD_ADDR, SYN), and a receiver that is preempted in `recv`.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// State between rounds.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    /// Endpoints that settle, by namespace, and since when.
    since: BTreeMap<(u64, Resource), Instant>,
    /// Presence of MPTCP connections in a namespace; listed once in a round.
    connections: BTreeMap<u64, bool>,
}

impl Settling {
    /// Ends what has settled. Called at the start of a round, which then sets the wanted values.
    pub(crate) fn begin_round(&mut self) {
        self.since.retain(|_, since| since.elapsed() < SETTLE_TIME);
        self.connections.clear();
    }

    /// Time until the next round is due because an endpoint has settled.
    pub(crate) fn until_settled(&self) -> Option<Duration> {
        self.since.values().map(|since| SETTLE_TIME.saturating_sub(since.elapsed())).min()
    }

    /// Value that a thing gets in this round, in the calling thread's namespace, which `place` is.
    pub(crate) fn value<'a>(&mut self, place: &Place, resource: &Resource, desired: &'a str) -> Cow<'a, str> {
        let Some(settling) = settling_text(resource, desired) else { return desired.into() };
        let key = (place.cookie, resource.clone());
        if let Entry::Vacant(vacant) = self.since.entry(key) {
            // Any other value means that it is added, or removed and added.
            let now = resource.read().ok().flatten();
            let stays = now.is_some_and(|now| now == desired || now == settling);
            if stays || !*self.connections.entry(place.cookie).or_insert_with(has_connections) {
                return desired.into();
            }
            vacant.insert(Instant::now());
        }
        settling.into()
    }

    /// Value that an endpoint is added with beside running connections.
    pub(crate) fn begin<'a>(&mut self, place: &Place, resource: &Resource, desired: &'a str) -> Cow<'a, str> {
        let Some(settling) = settling_text(resource, desired) else { return desired.into() };
        self.since.insert((place.cookie, resource.clone()), Instant::now());
        settling.into()
    }

    /// Forgets an endpoint that could not be set: its next try is that of any other thing.
    pub(crate) fn failed(&mut self, place: &Place, resource: &Resource) {
        self.since.remove(&(place.cookie, resource.clone()));
    }
}

/// Tests for MPTCP connections in the calling thread's namespace; assumes some where the kernel does not answer.
fn has_connections() -> bool {
    let all = Diag::open().and_then(|mut diag| diag.subflows());
    all.map_or(true, |all| all.iter().any(|subflow| subflow.mptcp.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_that_cannot_be_added_is_not_due_again() {
        let place = Place { cookie: 7, name: "host".to_owned() };
        let resource = Resource::Endpoint("192.0.2.1".parse().unwrap());
        let mut settling = Settling { connections: [(7, true)].into(), ..Settling::default() };
        assert_eq!(settling.value(&place, &resource, "signal dev 3 id 1"), "signal,backup dev 3 id 1");
        assert!(settling.until_settled().is_some_and(|until_settled| until_settled <= SETTLE_TIME));
        settling.failed(&place, &resource);
        assert_eq!(settling.until_settled(), None);
        // A backup has nothing to settle, and so has an endpoint that nothing joins by.
        assert_eq!(settling.value(&place, &resource, "signal,backup dev 3 id 1"), "signal,backup dev 3 id 1");
        settling.connections = [(7, false)].into();
        assert_eq!(settling.value(&place, &resource, "signal dev 3 id 1"), "signal dev 3 id 1");
        assert_eq!(settling.until_settled(), None);
    }
}
