//! A path for every pair of addresses that has one, while addresses come and go.

use crate::address::{Changes, Source, sources};
use crate::connection::{Connection, PathEvent};
use crate::reach::{Attempt, Target};
use std::collections::HashMap;
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
/// Another path has to go first.
const SOON: Duration = Duration::from_millis(200);
/// The handshake is to be confirmed, or the peer has not given connection ids yet: a round trip.
const AT_ONCE: Duration = Duration::from_millis(5);

/// Opens paths of a client's connection as long as it is held, and gives up those whose address is gone. It reads the connection's path
/// events.
pub struct Keeper {
    task: JoinHandle<()>,
    failed: Arc<Mutex<HashMap<Pair, Failed>>>,
}

type Pair = (IpAddr, SocketAddr);

/// A pair that did not become a path, or no longer is one.
#[derive(Clone, Debug)]
struct Failed {
    reason: String,
    wait: Duration,
    until: Instant,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Keeper {
    /// Begins at once, as a task of the current tokio runtime.
    pub fn start(connection: &Connection, target: Target) -> Keeper {
        let failed = Arc::new(Mutex::new(HashMap::new()));
        let work = Work {
            connection: connection.clone(),
            target,
            failed: failed.clone(),
            opening: HashMap::new(),
            changes: 0,
            changed: true,
        };
        Keeper { task: tokio::spawn(work.run()), failed }
    }

    /// Pairs of addresses that are no path, and why.
    pub fn failed(&self) -> Vec<Attempt> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = |(pair, why): (&Pair, &Failed)| Attempt {
            local: pair.0,
            remote: pair.1,
            reason: why.reason.clone(),
        };
        failed.iter().map(attempt).collect()
    }
}

struct Work {
    connection: Connection,
    target: Target,
    failed: Arc<Mutex<HashMap<Pair, Failed>>>,
    /// Paths by number, to know whose event it is.
    opening: HashMap<u32, (Route, u64)>,
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
            tokio::select! {
                biased;
                event = self.connection.path_event() => match event {
                    Ok(event) => self.on_event(event),
                    Err(_) => return,
                },
                () = told => {
                    self.changed = true;
                    self.changes += 1;
                    // What did not work may do so now.
                    self.failed().clear();
                }
                () = sleep_until(again) => {}
            }
        }
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, HashMap<Pair, Failed>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_event(&mut self, event: PathEvent) {
        match event {
            PathEvent::Opened(path) => {
                if let Some((route, _)) = self.opening.get(&path) {
                    let pair = (route.local.ip(), route.remote);
                    self.failed().remove(&pair);
                }
            }
            PathEvent::Closed { path, .. } => {
                if let Some((route, _)) = self.opening.remove(&path).filter(|(_, at)| *at == self.changes) {
                    let refusal = self.connection.refusal(route);
                    self.fail(route, refusal.unwrap_or_else(|| "no answer".to_owned()));
                }
            }
            _ => {}
        }
    }

    fn fail(&mut self, route: Route, reason: String) {
        let mut failed = self.failed();
        let before = failed.get(&(route.local.ip(), route.remote)).map(|failed| failed.wait);
        let wait = before.map_or(FIRST_WAIT, |wait| (wait * 2).min(LONGEST_WAIT));
        let until = Instant::now() + wait;
        failed.insert((route.local.ip(), route.remote), Failed { reason, wait, until });
    }

    /// Opens what can be opened and gives up what is gone; when to look again, if not at the next event.
    fn look(&mut self) -> Option<Instant> {
        if !self.connection.is_confirmed() {
            return Some(Instant::now() + AT_ONCE);
        }
        if !self.connection.is_multipath() {
            return None;
        }
        let pairs = self.target.pairs().ok()?;
        if std::mem::take(&mut self.changed) {
            self.give_up_gone(&pairs);
        }
        self.open_new(pairs)
    }

    fn give_up_gone(&mut self, pairs: &[(Source, SocketAddr)]) {
        let endpoint = self.connection.endpoint().clone();
        let here = |ip: IpAddr| pairs.iter().any(|(source, _)| source.ip == ip);
        for path in self.connection.paths().iter().filter(|path| !here(path.route.local.ip())) {
            endpoint.unbind(path.route.local);
            // The last one stays, suspected, until another is open.
            if self.connection.abandon_path(path.id).is_err() {
                self.changed = true;
            }
        }
        if let Ok(own) = sources() {
            endpoint.close_stale(&own);
        }
    }

    fn open_new(&mut self, pairs: Vec<(Source, SocketAddr)>) -> Option<Instant> {
        let paths = self.connection.paths();
        let is_path = |ip: IpAddr, remote: SocketAddr| {
            paths.iter().any(|path: &PathReport| path.route.local.ip() == ip && path.route.remote == remote)
        };
        let mut again: Option<Instant> = self.changed.then(|| Instant::now() + SOON);
        for (source, remote) in pairs {
            if is_path(source.ip, remote) {
                continue;
            }
            let until = self.failed().get(&(source.ip, remote)).map(|failed| failed.until);
            let wait = match until.filter(|until| *until > Instant::now()) {
                Some(until) => Some(until),
                None => self.open(&source, remote),
            };
            again = [again, wait].into_iter().flatten().min();
        }
        again
    }

    /// Opens a path; when to try again if that is not possible now.
    fn open(&mut self, source: &Source, remote: SocketAddr) -> Option<Instant> {
        let local = match self.connection.endpoint().bind_source(source, 0) {
            Ok(local) => local,
            Err(error) => {
                let route = Route { local: SocketAddr::new(source.ip, 0), remote };
                self.fail(route, format!("no socket at {}: {error}", source.ip));
                return Some(Instant::now() + FIRST_WAIT);
            }
        };
        let route = Route { local, remote };
        match self.connection.open_path(route) {
            Ok(path) => {
                self.opening.insert(path, (route, self.changes));
                None
            }
            Err(PathError::NoIds | PathError::TooEarly) => Some(Instant::now() + AT_ONCE),
            // There are as many as both ends allow: a place is free when one of them ends, which is an event.
            Err(_) => None,
        }
    }
}
