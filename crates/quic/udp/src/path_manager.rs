//! Path manager: opens a path for every usable address pair, follows address changes, and retries failed pairs with back-off.

use crate::address::{Changes, Source, sources};
use crate::connect::{Candidate, FailedAttempt, Target};
use crate::connection::Connection;
use crate::event::PathEvent;
use crate::relay::{ALLOCATION_LOST, Relay, RelayState, Via};
use crate::slots::{self, PathSlot};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use vmcc_transport::{PathError, PathReport, Route};

/// First retry delay of a failed pair; it doubles with each failure.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Longest retry delay.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// The same for a pair without a relay whose path has worked before, up to `MAX_FAST_RETRIES`, or that may be cut only now, up to
/// `MAX_INITIAL_RETRIES`. An attempt lasts about 3 s.
const FAST_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_FAST_RETRIES: u32 = 150;
const MAX_INITIAL_RETRIES: u32 = 10;
/// Pairs of paths that worked, as far as they are remembered.
const MAX_WORKED: usize = 256;
/// Time for an evicted path to close before its successor is opened.
const EVICTION_DELAY: Duration = Duration::from_millis(200);
/// Silence after which a path may be evicted for another interface.
const DEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two evictions: the peer has to allow another path each time.
const EVICTION_INTERVAL: Duration = Duration::from_secs(1);
/// The same for a pair that has failed before, and while the last freed slot is not taken.
const RETRY_EVICTION_INTERVAL: Duration = Duration::from_secs(10);
/// Delay until the handshake is confirmed or the peer has issued connection ids: a round trip.
const RECHECK_DELAY: Duration = Duration::from_millis(5);

/// Path manager of a client's connection, until it is dropped: opens paths, and abandons those whose address is gone. It consumes the
/// connection's path events.
pub struct PathManager {
    task: JoinHandle<()>,
    failed: Arc<Mutex<HashMap<Key, Failed>>>,
}

/// Identity of a candidate: its ends, and the relay.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: IpAddr,
    relay: Option<Relay>,
    remote: SocketAddr,
}

impl Key {
    fn of(candidate: &Candidate) -> Key {
        let Candidate { source, relay, remote } = candidate;
        Key { source: source.ip, relay: relay.clone(), remote: *remote }
    }

    fn failed(&self, reason: &str) -> FailedAttempt {
        let relay = self.relay.as_ref().map(Relay::to_string);
        FailedAttempt { local: self.source, relay, remote: self.remote, reason: reason.to_owned() }
    }
}

/// Eviction of a path for another one.
struct Eviction {
    at: Instant,
    /// Number of paths before it.
    paths: usize,
    /// Pair that the slot is for.
    key: Key,
}

/// A pair that did not become a path, or no longer is one.
#[derive(Clone, Debug)]
struct Failed {
    reason: String,
    wait: Duration,
    until: Instant,
    /// Retries that did not have to wait for long.
    quick: u32,
}

impl Failed {
    /// The failure after `before`. A pair that `worked`, and is cut, is to be used soon after it heals.
    fn new(before: Option<&Failed>, reason: String, is_direct: bool, worked: bool) -> Failed {
        let quick = before.map_or(0, |before| before.quick);
        let most = if worked { MAX_FAST_RETRIES } else { MAX_INITIAL_RETRIES };
        let (wait, quick) = match before {
            _ if is_direct && quick < most => (FAST_RETRY_DELAY, quick + 1),
            Some(before) => ((before.wait * 2).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY), quick),
            None => (MIN_RETRY_DELAY, quick),
        };
        Failed { reason, wait, until: Instant::now() + wait, quick }
    }

    /// Allows a retry at once: something has changed.
    fn reset(&mut self, now: Instant) {
        (self.wait, self.until, self.quick) = (MIN_RETRY_DELAY / 2, now, 0);
    }
}

impl Drop for PathManager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PathManager {
    /// Begins at once, as a task of the current tokio runtime.
    pub fn start(connection: &Connection, target: Target) -> PathManager {
        PathManager::start_with_callback(connection, target, |_| {})
    }

    /// Starts as [`start`](Self::start) does, and calls `tell` for failed pairs, once per reason.
    pub fn start_with_callback(
        connection: &Connection,
        target: Target,
        tell: impl Fn(&FailedAttempt) + Send + 'static,
    ) -> PathManager {
        let failed = Arc::new(Mutex::new(HashMap::new()));
        let work = PathManagerTask {
            connection: connection.clone(),
            target,
            failed: failed.clone(),
            tell: Box::new(tell),
            opening: HashMap::new(),
            worked: HashSet::new(),
            lost: HashMap::new(),
            silent: HashMap::new(),
            eviction: None,
            slots: None,
            relay_version: 0,
            changes: 0,
            changed: true,
        };
        PathManager { task: tokio::spawn(work.run()), failed }
    }

    /// Address pairs that have no path, with the reasons.
    pub fn failed(&self) -> Vec<FailedAttempt> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.iter().map(|(key, why)| key.failed(&why.reason)).collect()
    }
}

struct PathManagerTask {
    connection: Connection,
    target: Target,
    failed: Arc<Mutex<HashMap<Key, Failed>>>,
    tell: Box<dyn Fn(&FailedAttempt) + Send>,
    /// Paths by number, to know whose event it is.
    opening: HashMap<u32, (Key, Route, u64)>,
    /// Pairs of paths that worked.
    worked: HashSet<Key>,
    /// Times at which relays last had lost an allocation.
    lost: HashMap<(IpAddr, Relay, bool), Instant>,
    /// Beginnings of paths' silence.
    silent: HashMap<u32, Instant>,
    /// The last eviction.
    eviction: Option<Eviction>,
    /// Path slots as they were when a candidate of this update found none free.
    slots: Option<Vec<PathSlot>>,
    /// News of relays that were looked at.
    relay_version: u64,
    /// Times that something changed: a path that was opened before the last one may work now.
    changes: u64,
    /// Addresses may have changed since they were looked at.
    changed: bool,
}

impl PathManagerTask {
    async fn run(mut self) {
        // Where nobody tells of changes, there is still what happens to paths.
        let mut changes = Changes::open().ok();
        loop {
            let again = self.update_paths().unwrap_or_else(|| Instant::now() + MAX_RETRY_DELAY);
            let told = async {
                match &mut changes {
                    Some(changes) => changes.changed().await,
                    None => std::future::pending().await,
                }
            };
            let mut relay_version = self.relay_version;
            // Only with relays: the wait ends at their next change.
            let relays = !self.target.relays.is_empty();
            tokio::select! {
                biased;
                event = self.connection.path_event() => match event {
                    Ok(event) => self.on_event(event),
                    Err(_) => return,
                },
                () = self.connection.endpoint().wait_relay_change(&mut relay_version), if relays => {
                    self.relay_version = relay_version;
                    // Paths by one that is over are gone.
                    self.changed = true;
                }
                () = told => {
                    self.changed = true;
                    self.changes += 1;
                    // What did not work may do so now, but what was not tried yet comes first.
                    let now = Instant::now();
                    self.failed().values_mut().for_each(|failed| failed.reset(now));
                }
                () = sleep_until(again) => {}
            }
        }
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Failed>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_event(&mut self, event: PathEvent) {
        match event {
            PathEvent::Opened(path) => {
                if let Some((key, _, _)) = self.opening.get(&path) {
                    self.failed().remove(key);
                    if self.worked.len() >= MAX_WORKED {
                        self.worked.clear();
                    }
                    self.worked.insert(key.clone());
                }
            }
            PathEvent::Suspected(path) => {
                self.silent.insert(path, Instant::now());
                let paths = self.connection.paths();
                if let Some(path) = paths.iter().find(|one| one.id == path) {
                    self.connection.endpoint().check_relay(path.route.local);
                }
            }
            PathEvent::Closed { path, .. } => {
                self.silent.remove(&path);
                if let Some((key, route, _)) =
                    self.opening.remove(&path).filter(|(_, _, at)| *at == self.changes)
                {
                    let refusal = self.connection.refusal(route);
                    self.fail(key, refusal.unwrap_or_else(|| "no answer".to_owned()));
                }
            }
            PathEvent::Revived(path) => drop(self.silent.remove(&path)),
            PathEvent::Available => {}
        }
    }

    fn fail(&mut self, key: Key, reason: String) {
        let mut failed = self.failed();
        let before = failed.get(&key);
        if before.is_none_or(|before| before.reason != reason) {
            (self.tell)(&key.failed(&reason));
        }
        let next = Failed::new(before, reason, key.relay.is_none(), self.worked.contains(&key));
        failed.insert(key, next);
    }

    /// A relay that fails does so for every peer.
    fn fail_all_by(&mut self, candidate: &Candidate, reason: &str) {
        let same = |to: &SocketAddr| to.is_ipv4() == candidate.remote.is_ipv4() && *to != candidate.remote;
        let others: Vec<_> = self.target.addresses.iter().copied().filter(same).collect();
        for remote in others {
            self.fail(Key { remote, ..Key::of(candidate) }, reason.to_owned());
        }
    }

    /// Allows another allocation at a relay that may have restarted, but not at one that loses it every time.
    fn may_reallocate(&mut self, key: &Key) -> bool {
        let Some(relay) = key.relay.clone() else { return true };
        let before = self.lost.insert((key.source, relay, key.remote.is_ipv6()), Instant::now());
        before.is_none_or(|before| before.elapsed() >= MAX_RETRY_DELAY)
    }

    /// Opens missing paths and abandons removed ones. Returns the time of the next update, if that is not the next event.
    fn update_paths(&mut self) -> Option<Instant> {
        if !self.connection.is_confirmed() {
            return Some(Instant::now() + RECHECK_DELAY);
        }
        if !self.connection.is_multipath() {
            return None;
        }
        let candidates = self.target.candidates().ok()?;
        if std::mem::take(&mut self.changed) {
            self.abandon_removed(&candidates);
            let keys: HashSet<Key> = candidates.iter().map(Key::of).collect();
            self.failed().retain(|key, _| keys.contains(key));
        }
        self.open_new(self.order_candidates(candidates))
    }

    /// Orders candidates: first the one that room was made for, then those that have not failed, then those that wait longest. Bridges of
    /// containers, for one, never work and are tried again and again.
    fn order_candidates(&self, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
        let failed = self.failed();
        candidates.sort_by_cached_key(|one| {
            let key = Key::of(one);
            let waits = self.eviction.as_ref().is_none_or(|eviction| eviction.key != key);
            (one.relay.is_some(), waits, failed.get(&key).map(|failed| failed.until))
        });
        candidates
    }

    /// Candidate that a path is an instance of.
    fn key_of(&self, path: &PathReport) -> Key {
        let Route { local, remote } = path.route;
        match self.connection.endpoint().via(local) {
            Some(via) => Key { source: via.source, relay: Some(via.relay), remote },
            None => Key { source: local.ip(), relay: None, remote },
        }
    }

    fn abandon_removed(&mut self, candidates: &[Candidate]) {
        let endpoint = self.connection.endpoint().clone();
        let here =
            |key: &Key| candidates.iter().any(|one| one.source.ip == key.source && one.relay == key.relay);
        for path in self.connection.paths() {
            let key = self.key_of(&path);
            if here(&key) {
                continue;
            }
            endpoint.unbind(path.route.local);
            // The last one stays, suspected, until another is open.
            match self.connection.abandon_path(path.id) {
                // Why it is gone is known, and no fault of the pair.
                Ok(()) => drop(self.opening.remove(&path.id)),
                Err(_) => self.changed = true,
            }
        }
        if let Ok(own) = sources() {
            endpoint.close_stale(&own);
        }
    }

    fn open_new(&mut self, candidates: Vec<Candidate>) -> Option<Instant> {
        let paths: Vec<(Key, bool)> =
            self.connection.paths().iter().map(|path| (self.key_of(path), path.failed)).collect();
        self.slots = None;
        let mut alive = paths.iter().filter(|(_, failed)| !failed).count();
        let mut again: Option<Instant> = self.changed.then(|| Instant::now() + EVICTION_DELAY);
        let mut wanted: Vec<Key> = paths.iter().map(|(key, _)| key.clone()).collect();
        for candidate in candidates {
            let key = Key::of(&candidate);
            let enough = candidate.relay.is_some() && alive >= self.target.most;
            if enough || paths.iter().any(|(path, _)| *path == key) {
                continue;
            }
            let until = self.failed().get(&key).map(|failed| failed.until);
            let wait = match until.filter(|until| *until > Instant::now()) {
                Some(until) => Some(until),
                None => {
                    wanted.push(key);
                    self.open(&candidate, &mut alive)
                }
            };
            again = [again, wait].into_iter().flatten().min();
        }
        let wants = |via: &Via| {
            wanted.iter().any(|key| key.source == via.source && key.relay.as_ref() == Some(&via.relay))
        };
        self.connection.endpoint().close_idle_relays(wants);
        again
    }

    /// Opens a path; when to try again if that is not possible now.
    fn open(&mut self, candidate: &Candidate, alive: &mut usize) -> Option<Instant> {
        let key = Key::of(candidate);
        let endpoint = self.connection.endpoint().clone();
        let bound = match &candidate.relay {
            None => endpoint
                .bind_source(&candidate.source, 0)
                .map_err(|error| format!("no socket at {}: {error}", candidate.source.ip)),
            Some(relay) => match endpoint.relay(&candidate.source, relay, candidate.remote) {
                RelayState::Ready(local) => Ok(local),
                // It answers, and is probed again by the next scan.
                RelayState::Lost if self.may_reallocate(&key) => return Some(Instant::now() + RECHECK_DELAY),
                RelayState::Lost => {
                    self.fail_all_by(candidate, ALLOCATION_LOST);
                    Err(ALLOCATION_LOST.to_owned())
                }
                RelayState::Waiting => {
                    *alive += 1;
                    return None;
                }
                RelayState::Refused(reason) => Err(reason),
                RelayState::Failed(reason) => {
                    self.fail_all_by(candidate, &reason);
                    Err(reason)
                }
            },
        };
        let route = match bound {
            Ok(local) => Route { local, remote: candidate.remote },
            Err(reason) => {
                self.fail(key, reason);
                return Some(Instant::now() + MIN_RETRY_DELAY);
            }
        };
        match self.connection.open_path(route) {
            Ok(path) => {
                *alive += 1;
                self.opening.insert(path, (key, route, self.changes));
                None
            }
            Err(PathError::NoIds | PathError::TooEarly) => Some(Instant::now() + RECHECK_DELAY),
            Err(PathError::Limit) => self.evict_path(candidate, key),
            Err(_) => None,
        }
    }

    /// Evicts a path for a candidate where both ends allow no more paths. Returns the time of the next attempt; without one, the end of a
    /// path is an event.
    fn evict_path(&mut self, candidate: &Candidate, key: Key) -> Option<Instant> {
        if candidate.relay.is_some() {
            return None;
        }
        let slots = self.slots.take().unwrap_or_else(|| self.current_slots());
        let tried = self.failed().contains_key(&key);
        let path = slots::victim(&slots, &candidate.link(), tried);
        let (now, count) = (Instant::now(), slots.len());
        self.slots = Some(slots);
        let path = path?;
        if let Some(eviction) = &self.eviction {
            let waits = tried || count < eviction.paths;
            let interval = if waits { RETRY_EVICTION_INTERVAL } else { EVICTION_INTERVAL };
            if eviction.at + interval > now {
                return Some(eviction.at + interval);
            }
        }
        self.connection.abandon_path(path).ok()?;
        // It did not fail: its pair may be opened again.
        self.opening.remove(&path);
        self.slots = None;
        self.eviction = Some(Eviction { at: now, paths: count, key });
        Some(now + EVICTION_DELAY)
    }

    fn current_slots(&self) -> Vec<PathSlot> {
        let own = sources().unwrap_or_default();
        let dead = |path| self.silent.get(&path).is_some_and(|since| since.elapsed() >= DEAD_TIMEOUT);
        let place = |path: &PathReport| {
            let Key { source, relay, remote } = self.key_of(path);
            let interface = Candidate { source: Source::at(source, &own), relay, remote }.link();
            PathSlot { path: path.id, interface, dead: dead(path.id) }
        };
        self.connection.paths().iter().map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits of a pair that fails again and again.
    fn waits(is_direct: bool, worked: bool) -> Vec<u64> {
        let (mut all, mut before) = (Vec::new(), None);
        for _ in 0..MAX_FAST_RETRIES + 10 {
            let failed = Failed::new(before.as_ref(), String::new(), is_direct, worked);
            all.push(failed.wait.as_secs());
            before = Some(failed);
        }
        all
    }

    #[test]
    fn pair_that_worked_is_retried_fast_for_a_limited_time() {
        let worked = waits(true, true);
        assert!(worked[..MAX_FAST_RETRIES as usize].iter().all(|&wait| wait == 1));
        for (name, slow) in [
            ("worked", &worked[MAX_FAST_RETRIES as usize..]),
            ("never worked", &waits(true, false)[MAX_INITIAL_RETRIES as usize..]),
            ("relay", &waits(false, true)),
        ] {
            assert_eq!(slow[..6], [5, 10, 20, 40, 60, 60], "{name}");
        }
    }

    #[test]
    fn network_change_resets_backoff() {
        let mut failed = Failed::new(None, String::new(), false, false);
        failed.reset(Instant::now());
        assert_eq!(Failed::new(Some(&failed), String::new(), false, false).wait, MIN_RETRY_DELAY);
        assert_eq!(Failed::new(Some(&failed), String::new(), true, true).wait, FAST_RETRY_DELAY);
    }
}
