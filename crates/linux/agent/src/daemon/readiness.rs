//! Readiness of interfaces: the time from which their addresses are usable as MPTCP endpoints.
//!
//! An endpoint that is added in the moment of link-up is announced before the peers can reach it: a peer's neighbour
//! entry fails, its SYN ends with EHOSTUNREACH, and the kernel does not try again. So an interface that comes back is
//! ready when a neighbour that it had before the outage answers on it. The request itself refreshes the neighbours'
//! entries.

use super::resource::Resource;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use vmcc_netlink::{Endpoint, Links, Neighbour, PortInfo};

/// Between two solicitations of the same neighbours; doubled each time up to the second.
const SOLICIT_INTERVAL: Duration = Duration::from_secs(1);
const MAX_SOLICIT_INTERVAL: Duration = Duration::from_secs(8);
/// An interface whose neighbours stay silent is used after this all the same: it may have others now.
const SOLICIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Before a new endpoint that no subflow uses is announced again; doubled each time. Longer than an endpoint settles.
const TRIAL_INTERVAL: Duration = Duration::from_secs(2);
/// Announcements after the first: about a minute.
const MAX_TRIALS: u32 = 5;
/// Neighbours remembered per interface.
const MAX_NEIGHBOURS: usize = 16;
/// Interfaces remembered per namespace, besides those that are there.
const MAX_DEVICES: usize = 256;

/// Interfaces and endpoints of each namespace, by its cookie.
#[derive(Default)]
pub(crate) struct Readiness(BTreeMap<u64, Namespace>);

#[derive(Default)]
struct Namespace {
    /// By name: a recreated interface has another index.
    devices: BTreeMap<String, Device>,
    ids: Ids,
    /// Endpoints that were added lately.
    trials: BTreeMap<Resource, Trial>,
}

#[derive(Default)]
struct Device {
    was_down: bool,
    neighbours: BTreeSet<IpAddr>,
    waiting: Option<Waiting>,
    solicited: Option<Instant>,
}

struct Waiting {
    until: Instant,
    next: Instant,
    interval: Duration,
}

/// A new endpoint, until a subflow uses it.
struct Trial {
    next: Instant,
    interval: Duration,
    left: u32,
}

/// The numbers that endpoints had when they were there last.
#[derive(Debug, Default)]
pub(crate) struct Ids(BTreeMap<SocketAddr, u8>);

impl Readiness {
    /// Notes which interfaces are down and which came back; whether any waits for its neighbours.
    pub(crate) fn begin(&mut self, cookie: u64, nics: &[&PortInfo]) -> bool {
        let namespace = self.0.entry(cookie).or_default();
        let running: BTreeMap<&str, bool> = nics.iter().map(|nic| (nic.name.as_str(), nic.running)).collect();
        if namespace.devices.len() > MAX_DEVICES {
            namespace.devices.retain(|name, _| running.contains_key(name.as_str()));
        }
        for name in running.keys() {
            namespace.devices.entry((*name).to_owned()).or_default();
        }
        let now = Instant::now();
        for (name, device) in &mut namespace.devices {
            // One that is not there is as good as down.
            device.begin(running.get(name.as_str()).copied().unwrap_or(false), now);
        }
        self.waits(cookie)
    }

    /// The indices of those interfaces whose addresses are usable now, after [`Self::begin`]. Neighbours of the others are
    /// solicited.
    pub(crate) fn ready(
        &mut self,
        cookie: u64,
        nics: &[&PortInfo],
        links: &mut Links,
    ) -> std::io::Result<BTreeSet<u32>> {
        let (now, table) = (Instant::now(), links.neighbours()?);
        let namespace = self.0.entry(cookie).or_default();
        let mut ready = BTreeSet::new();
        for nic in nics {
            let of_nic: Vec<Neighbour> = table.iter().filter(|one| one.port == nic.index).copied().collect();
            let device = namespace.devices.entry(nic.name.clone()).or_default();
            if nic.running && device.is_ready(&of_nic, now) {
                ready.insert(nic.index);
            } else if device.is_due(now) {
                // One that is refused, as the interface has just gone, changes nothing.
                device.neighbours.iter().for_each(|address| drop(links.solicit(nic.index, *address)));
            }
        }
        Ok(ready)
    }

    /// Tests for interfaces of a namespace that wait for their neighbours.
    pub(crate) fn waits(&self, cookie: u64) -> bool {
        self.0.get(&cookie).is_some_and(|namespace| namespace.devices.values().any(|d| d.waiting.is_some()))
    }

    /// Time of the next solicitation, or of the next look at a new endpoint.
    pub(crate) fn next(&self) -> Option<Instant> {
        let waiting = |device: &Device| Some(device.waiting.as_ref()?.next);
        let of = |namespace: &Namespace| {
            let trials = namespace.trials.values().map(|trial| trial.next);
            namespace.devices.values().filter_map(waiting).chain(trials).min()
        };
        self.0.values().filter_map(of).min()
    }

    /// An endpoint was added: it is looked at until a subflow uses it.
    pub(crate) fn added(&mut self, cookie: u64, resource: &Resource) {
        let trial =
            Trial { next: Instant::now() + TRIAL_INTERVAL, interval: TRIAL_INTERVAL, left: MAX_TRIALS };
        self.0.entry(cookie).or_default().trials.insert(resource.clone(), trial);
    }

    /// Desired endpoints whose use is to be checked now. A trial ends after its last check.
    pub(crate) fn trials(&mut self, cookie: u64, desired: &BTreeSet<&Resource>) -> Vec<Resource> {
        let Some(namespace) = self.0.get_mut(&cookie) else { return Vec::new() };
        namespace.trials.retain(|resource, trial| trial.left > 0 && desired.contains(resource));
        let now = Instant::now();
        let mut due = Vec::new();
        for (resource, trial) in namespace.trials.iter_mut().filter(|(_, trial)| trial.next <= now) {
            trial.interval *= 2;
            (trial.next, trial.left) = (now + trial.interval, trial.left - 1);
            due.push(resource.clone());
        }
        due
    }

    pub(crate) fn used(&mut self, cookie: u64, resource: &Resource) {
        self.0.get_mut(&cookie).and_then(|namespace| namespace.trials.remove(resource));
    }

    pub(crate) fn ids(&mut self, cookie: u64) -> &mut Ids {
        &mut self.0.entry(cookie).or_default().ids
    }

    /// Forgets the other namespaces.
    pub(crate) fn retain(&mut self, seen: &BTreeSet<u64>) {
        self.0.retain(|cookie, _| seen.contains(cookie));
    }
}

impl Device {
    fn begin(&mut self, running: bool, now: Instant) {
        if !running {
            (self.was_down, self.waiting) = (true, None);
        } else if std::mem::take(&mut self.was_down) && !self.neighbours.is_empty() {
            let until = now + SOLICIT_TIMEOUT;
            // A carrier that flaps solicits no more often than one that stays.
            let next = self.solicited.map_or(now, |last| now.max(last + SOLICIT_INTERVAL));
            self.waiting = Some(Waiting { until, next, interval: SOLICIT_INTERVAL });
        }
    }

    /// Readiness of an interface that is operational.
    fn is_ready(&mut self, table: &[Neighbour], now: Instant) -> bool {
        if let Some(waiting) = self.waiting.take_if(|_| !table.iter().any(|one| one.reachable)) {
            if now < waiting.until {
                self.waiting = Some(waiting);
                return false;
            }
            // The next outage does not wait for them again.
            self.neighbours.clear();
        }
        self.waiting = None;
        let valid: BTreeSet<IpAddr> = table.iter().filter(|one| one.valid).map(|one| one.address).collect();
        if !valid.is_empty() {
            self.neighbours = valid.into_iter().take(MAX_NEIGHBOURS).collect();
        }
        true
    }

    /// Tests for a solicitation that is due; if so, begins the next interval.
    fn is_due(&mut self, now: Instant) -> bool {
        let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.next <= now) else { return false };
        (self.solicited, waiting.next) = (Some(now), now + waiting.interval);
        waiting.interval = (waiting.interval * 2).min(MAX_SOLICIT_INTERVAL);
        true
    }
}

impl Ids {
    /// Gives each endpoint without a number the one that it has, or had, or else the lowest that is free; 0 if none is. Numbers
    /// that the file has (`reserved`) are never given.
    pub(crate) fn number(&mut self, desired: &mut [Endpoint], there: &[Endpoint], reserved: &BTreeSet<u8>) {
        let has: BTreeMap<SocketAddr, u8> = there.iter().map(|one| (key(one), one.id)).collect();
        let mut taken: BTreeSet<u8> = there.iter().map(|one| one.id).collect();
        taken.extend(reserved);
        let mut kept: BTreeSet<u8> = self.0.values().copied().collect();
        for one in desired.iter_mut() {
            if one.id == 0 {
                let known = self.0.get(&key(one)).copied().filter(|id| !taken.contains(id));
                let free = || (1..=u8::MAX).find(|id| !taken.contains(id) && !kept.contains(id));
                // When all are taken or kept for others, those kept are not for ever.
                let any = || (1..=u8::MAX).find(|id| !taken.contains(id));
                let own = has.get(&key(one)).copied().filter(|id| !reserved.contains(id));
                let id = own.or(known).or_else(free).or_else(any);
                one.id = id.unwrap_or(0);
            }
            taken.insert(one.id);
            kept.insert(one.id);
            self.0.insert(key(one), one.id);
        }
        if self.0.len() > usize::from(u8::MAX) {
            let desired: BTreeSet<SocketAddr> = desired.iter().map(key).collect();
            self.0.retain(|one, _| desired.contains(one));
        }
    }
}

fn key(endpoint: &Endpoint) -> SocketAddr {
    SocketAddr::new(endpoint.address, endpoint.port.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(address: &str, valid: bool, reachable: bool) -> Neighbour {
        Neighbour { port: 2, address: address.parse().unwrap(), valid, reachable }
    }

    #[test]
    fn interface_is_ready_after_an_outage_when_a_neighbour_answers() {
        let (mut device, now) = (Device::default(), Instant::now());
        device.begin(true, now);
        assert!(device.is_ready(&[entry("10.0.0.2", true, true)], now), "nothing is known against it");
        device.begin(false, now);
        assert!(device.waiting.is_none());
        device.begin(true, now);
        assert!(!device.is_ready(&[], now) && device.is_due(now) && !device.is_due(now));
        let later = now + SOLICIT_INTERVAL;
        device.begin(true, later);
        assert!(!device.is_ready(&[entry("10.0.0.2", false, false)], later) && device.is_due(later));
        assert!(!device.is_due(later + SOLICIT_INTERVAL), "the interval grows");
        assert!(device.is_ready(&[entry("10.0.0.2", true, true)], later) && device.waiting.is_none());
    }

    #[test]
    fn interface_with_silent_neighbours_is_ready_after_the_timeout() {
        let (mut device, now) = (Device::default(), Instant::now());
        let outage = |device: &mut Device| {
            device.begin(false, now);
            device.begin(true, now);
            device.is_ready(&[], now)
        };
        assert!(outage(&mut device), "none is known");
        assert!(device.is_ready(&[entry("10.0.0.2", true, false)], now));
        assert!(!outage(&mut device));
        assert!(device.is_ready(&[], now + SOLICIT_TIMEOUT));
        assert!(outage(&mut device), "those that were silent so long are not waited for again");
    }

    #[test]
    fn carrier_that_flaps_solicits_once_per_interval() {
        let (mut device, began) = (Device::default(), Instant::now());
        assert!(device.is_ready(&[entry("10.0.0.2", true, true)], began));
        let mut solicited = 0;
        for flap in 0..100 {
            let now = began + SOLICIT_INTERVAL / 10 * flap;
            device.begin(false, now);
            device.begin(true, now);
            assert!(!device.is_ready(&[], now));
            solicited += u32::from(device.is_due(now));
        }
        assert_eq!(solicited, 10);
    }

    fn endpoint(address: &str, id: u8) -> Endpoint {
        Endpoint { id, address: address.parse().unwrap(), port: None, flags: 1, device: 2 }
    }

    fn numbered(ids: &mut Ids, desired: &[Endpoint], there: &[Endpoint]) -> Vec<u8> {
        let mut desired = desired.to_vec();
        let reserved = desired.iter().map(|one| one.id).filter(|id| *id != 0).collect();
        ids.number(&mut desired, there, &reserved);
        desired.iter().map(|one| one.id).collect()
    }

    #[test]
    fn endpoint_that_returns_gets_its_id_back() {
        let (a, b, c) = (endpoint("10.0.0.1", 0), endpoint("10.0.1.1", 0), endpoint("10.0.2.1", 0));
        let mut ids = Ids::default();
        let foreign = endpoint("10.0.9.1", 1);
        assert_eq!(numbered(&mut ids, &[a, b], &[foreign]), [2, 3]);
        assert_eq!(numbered(&mut ids, &[b], &[foreign]), [3]);
        assert_eq!(numbered(&mut ids, &[b, c], &[foreign]), [3, 4], "2 is kept");
        assert_eq!(numbered(&mut ids, &[a, b, c], &[foreign]), [2, 3, 4]);
        let moved = endpoint("10.0.0.1", 9);
        assert_eq!(numbered(&mut ids, &[a], &[moved]), [9], "it has one");
        assert_eq!(numbered(&mut ids, &[endpoint("10.0.1.1", 7), c], &[]), [7, 4], "the file says");
        assert_eq!(numbered(&mut ids, &[endpoint("10.0.3.1", 9), a], &[]), [9, 1], "its own is taken");
        let there = [endpoint("10.0.0.1", 1)];
        assert_eq!(numbered(&mut ids, &[endpoint("10.0.4.1", 1), a], &there), [1, 2], "the file reserves it");
    }

    #[test]
    fn reserved_ids_are_reused_when_none_is_free() {
        let mut ids = Ids::default();
        let all: Vec<Endpoint> = (0..=255_u8).map(|n| endpoint(&format!("10.0.1.{n}"), 0)).collect();
        let numbers = numbered(&mut ids, &all, &[]);
        assert_eq!((numbers[0], numbers[254], numbers[255]), (1, 255, 0));
        assert_eq!(numbered(&mut ids, &[endpoint("10.0.2.1", 0)], &[]), [1]);
    }
}
