//! A path for every pair of addresses that has one, while addresses come and go.

use crate::address::{Changes, Source, sources};
use crate::connection::{Connection, PathEvent};
use crate::reach::{Attempt, Candidate, Target};
use crate::relay::{Relay, Relaying, Via};
use crate::slots::{self, Place};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use vmcc_transport::{PathError, PathReport, Route};

/// A pair that did not work is tried again after this time, and then after twice that, and so on.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// At most.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The same for a pair without a relay whose path has worked before, up to `MAX_QUICK_RETRIES`, or that may be cut only now, up to
/// `MAX_FIRST_RETRIES`. An attempt lasts about 3 s.
const QUICK_WAIT: Duration = Duration::from_secs(1);
const MAX_QUICK_RETRIES: u32 = 150;
const MAX_FIRST_RETRIES: u32 = 10;
/// Pairs of paths that worked, as far as they are remembered.
const MAX_WORKED: usize = 256;
/// Another path has to go first.
const SOON: Duration = Duration::from_millis(200);
/// Silence after which a path may give its place to another interface.
const DEAD_AFTER: Duration = Duration::from_secs(10);
/// Time between two paths that give way to others: the peer has to allow another path each time.
const ROOM_INTERVAL: Duration = Duration::from_secs(1);
/// The same for a pair that has failed before, and while the last place is not taken.
const RETRY_ROOM_INTERVAL: Duration = Duration::from_secs(10);
/// The handshake is to be confirmed, or the peer has not given connection ids yet: a round trip.
const AT_ONCE: Duration = Duration::from_millis(5);

/// Reason for which a relay is not asked again at once.
pub(crate) const FORGETFUL: &str =
    "it forgets again and again what it has given (437); ask its operator whether it is restarted";

/// Opens paths of a client's connection as long as it is held, and gives up those whose address is gone. It reads the connection's path
/// events.
pub struct Keeper {
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

    fn failed(&self, reason: &str) -> Attempt {
        let relay = self.relay.as_ref().map(Relay::to_string);
        Attempt { local: self.source, relay, remote: self.remote, reason: reason.to_owned() }
    }
}

/// A path that gave way to another.
struct Room {
    made: Instant,
    /// Paths that there were.
    paths: usize,
    /// The pair that it is for.
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
        let most = if worked { MAX_QUICK_RETRIES } else { MAX_FIRST_RETRIES };
        let (wait, quick) = match before {
            _ if is_direct && quick < most => (QUICK_WAIT, quick + 1),
            Some(before) => ((before.wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT), quick),
            None => (FIRST_WAIT, quick),
        };
        Failed { reason, wait, until: Instant::now() + wait, quick }
    }

    /// Allows a retry at once: something has changed.
    fn reset(&mut self, now: Instant) {
        (self.wait, self.until, self.quick) = (FIRST_WAIT / 2, now, 0);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Keeper {
    /// Begins at once, as a task of the current tokio runtime.
    pub fn start(connection: &Connection, target: Target) -> Keeper {
        Keeper::telling(connection, target, |_| {})
    }

    /// The same, and tells what is no path, once for each reason.
    pub fn telling(
        connection: &Connection,
        target: Target,
        tell: impl Fn(&Attempt) + Send + 'static,
    ) -> Keeper {
        let failed = Arc::new(Mutex::new(HashMap::new()));
        let work = Work {
            connection: connection.clone(),
            target,
            failed: failed.clone(),
            tell: Box::new(tell),
            opening: HashMap::new(),
            worked: HashSet::new(),
            lost: HashMap::new(),
            silent: HashMap::new(),
            room: None,
            places: None,
            news: 0,
            changes: 0,
            changed: true,
        };
        Keeper { task: tokio::spawn(work.run()), failed }
    }

    /// Pairs of addresses that are no path, and why.
    pub fn failed(&self) -> Vec<Attempt> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.iter().map(|(key, why)| key.failed(&why.reason)).collect()
    }
}

struct Work {
    connection: Connection,
    target: Target,
    failed: Arc<Mutex<HashMap<Key, Failed>>>,
    tell: Box<dyn Fn(&Attempt) + Send>,
    /// Paths by number, to know whose event it is.
    opening: HashMap<u32, (Key, Route, u64)>,
    /// Pairs of paths that worked.
    worked: HashSet<Key>,
    /// Times at which relays last had lost an allocation.
    lost: HashMap<(IpAddr, Relay, bool), Instant>,
    /// Beginnings of paths' silence.
    silent: HashMap<u32, Instant>,
    /// The last path that gave way to another.
    room: Option<Room>,
    /// Paths as they were when a candidate of this look found no room.
    places: Option<Vec<Place>>,
    /// News of relays that were looked at.
    news: u64,
    /// Times that something changed: a path that was opened before the last one may work now.
    changes: u64,
    /// Addresses may have changed since they were looked at.
    changed: bool,
}

impl Work {
    async fn run(mut self) {
        // Where nobody tells of changes, there is still what happens to paths.
        let mut changes = Changes::open().ok();
        loop {
            let again = self.look().unwrap_or_else(|| Instant::now() + LONGEST_WAIT);
            let told = async {
                match &mut changes {
                    Some(changes) => changes.changed().await,
                    None => std::future::pending().await,
                }
            };
            let mut news = self.news;
            // Nobody waits where there is none: who does is kept until there are news.
            let relays = !self.target.relays.is_empty();
            tokio::select! {
                biased;
                event = self.connection.path_event() => match event {
                    Ok(event) => self.on_event(event),
                    Err(_) => return,
                },
                () = self.connection.endpoint().relay_news(&mut news), if relays => {
                    self.news = news;
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

    /// A relay may have been started again. One that forgets every time would be asked without end.
    fn forgives(&mut self, key: &Key) -> bool {
        let Some(relay) = key.relay.clone() else { return true };
        let before = self.lost.insert((key.source, relay, key.remote.is_ipv6()), Instant::now());
        before.is_none_or(|before| before.elapsed() >= LONGEST_WAIT)
    }

    /// Opens what can be opened and gives up what is gone; when to look again, if not at the next event.
    fn look(&mut self) -> Option<Instant> {
        if !self.connection.is_confirmed() {
            return Some(Instant::now() + AT_ONCE);
        }
        if !self.connection.is_multipath() {
            return None;
        }
        let candidates = self.target.candidates().ok()?;
        if std::mem::take(&mut self.changed) {
            self.give_up_gone(&candidates);
            let keys: HashSet<Key> = candidates.iter().map(Key::of).collect();
            self.failed().retain(|key, _| keys.contains(key));
        }
        self.open_new(self.by_failures(candidates))
    }

    /// Orders candidates: first the one that room was made for, then those that have not failed, then those that wait longest. Bridges of
    /// containers, for one, never work and are tried again and again.
    fn by_failures(&self, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
        let failed = self.failed();
        candidates.sort_by_cached_key(|one| {
            let key = Key::of(one);
            let waits = self.room.as_ref().is_none_or(|room| room.key != key);
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

    fn give_up_gone(&mut self, candidates: &[Candidate]) {
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
        self.places = None;
        let mut alive = paths.iter().filter(|(_, failed)| !failed).count();
        let mut again: Option<Instant> = self.changed.then(|| Instant::now() + SOON);
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
                Relaying::Ready(local) => Ok(local),
                // It answers, and is asked anew by the next look.
                Relaying::Lost if self.forgives(&key) => return Some(Instant::now() + AT_ONCE),
                Relaying::Lost => {
                    self.fail_all_by(candidate, FORGETFUL);
                    Err(FORGETFUL.to_owned())
                }
                Relaying::Waiting => {
                    *alive += 1;
                    return None;
                }
                Relaying::Refused(reason) => Err(reason),
                Relaying::Failed(reason) => {
                    self.fail_all_by(candidate, &reason);
                    Err(reason)
                }
            },
        };
        let route = match bound {
            Ok(local) => Route { local, remote: candidate.remote },
            Err(reason) => {
                self.fail(key, reason);
                return Some(Instant::now() + FIRST_WAIT);
            }
        };
        match self.connection.open_path(route) {
            Ok(path) => {
                *alive += 1;
                self.opening.insert(path, (key, route, self.changes));
                None
            }
            Err(PathError::NoIds | PathError::TooEarly) => Some(Instant::now() + AT_ONCE),
            Err(PathError::Limit) => self.make_room(candidate, key),
            Err(_) => None,
        }
    }

    /// Makes room for a candidate, where there are as many paths as both ends allow. The time of the next attempt; without one, the end of a path is
    /// an event.
    fn make_room(&mut self, candidate: &Candidate, key: Key) -> Option<Instant> {
        if candidate.relay.is_some() {
            return None;
        }
        let places = self.places.take().unwrap_or_else(|| self.places_now());
        let tried = self.failed().contains_key(&key);
        let path = slots::victim(&places, &candidate.link(), tried);
        let (now, count) = (Instant::now(), places.len());
        self.places = Some(places);
        let path = path?;
        if let Some(room) = &self.room {
            let waits = tried || count < room.paths;
            let interval = if waits { RETRY_ROOM_INTERVAL } else { ROOM_INTERVAL };
            if room.made + interval > now {
                return Some(room.made + interval);
            }
        }
        self.connection.abandon_path(path).ok()?;
        // It did not fail: its pair may be opened again.
        self.opening.remove(&path);
        self.places = None;
        self.room = Some(Room { made: now, paths: count, key });
        Some(now + SOON)
    }

    fn places_now(&self) -> Vec<Place> {
        let own = sources().unwrap_or_default();
        let dead = |path| self.silent.get(&path).is_some_and(|since| since.elapsed() >= DEAD_AFTER);
        let place = |path: &PathReport| {
            let Key { source, relay, remote } = self.key_of(path);
            let interface = Candidate { source: Source::at(source, &own), relay, remote }.link();
            Place { path: path.id, interface, dead: dead(path.id) }
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
        for _ in 0..MAX_QUICK_RETRIES + 10 {
            let failed = Failed::new(before.as_ref(), String::new(), is_direct, worked);
            all.push(failed.wait.as_secs());
            before = Some(failed);
        }
        all
    }

    #[test]
    fn pair_that_worked_is_retried_quickly_and_no_pair_for_ever() {
        let worked = waits(true, true);
        assert!(worked[..MAX_QUICK_RETRIES as usize].iter().all(|&wait| wait == 1));
        for (name, slow) in [
            ("worked", &worked[MAX_QUICK_RETRIES as usize..]),
            ("never worked", &waits(true, false)[MAX_FIRST_RETRIES as usize..]),
            ("relay", &waits(false, true)),
        ] {
            assert_eq!(slow[..6], [5, 10, 20, 40, 60, 60], "{name}");
        }
    }

    #[test]
    fn change_of_the_network_begins_anew() {
        let mut failed = Failed::new(None, String::new(), false, false);
        failed.reset(Instant::now());
        assert_eq!(Failed::new(Some(&failed), String::new(), false, false).wait, FIRST_WAIT);
        assert_eq!(Failed::new(Some(&failed), String::new(), true, true).wait, QUICK_WAIT);
    }
}
