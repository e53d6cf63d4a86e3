//! State machine of the guard, without I/O.
//!
//! | | |
//! |---|---|
//! | inputs | requests of algorithms ([`Machine::enqueue`]), the time, activity of namespaces ([`Machine::begin`]), a namespace's subflows ([`Machine::visit`]), outcomes of commands ([`Visit::outcome`]) |
//! | outputs | namespaces to visit, commands and events ([`Visit::poll`]), counts of requests |
//!
//! A decision is made when it is polled, with the outcomes of all commands before it. So of two paths that request to close each other
//! one survives.

mod backoff;
mod health;
mod judge;
#[cfg(test)]
mod tests;
mod visit;

pub(crate) use backoff::Backoffs;
pub(crate) use visit::{Command, Outcome, Output, Visit};

use crate::policy::Policy;
use health::PathHealth;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use vmcc_bpf::close_requests::CloseRequest;
use vmcc_system::diag::Subflow;

/// Interval between scans of the paths.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);

/// Number of requests of algorithms, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// The path was closed.
    pub closed: u64,
    /// There was no such path (any more).
    pub gone: u64,
    /// The path to keep was gone, waited for a timeout, or was a backup, and remained so.
    pub nothing_to_keep: u64,
    /// The path stayed, because too few others were in use.
    pub retained: u64,
    /// The path could not be closed.
    pub failed: u64,
    /// Waits for another path to become alive, or for the path to drain.
    pub pending: u64,
}

/// Network namespaces with guarded connections, each with a number that changes with any activity of these.
pub(crate) type Activity = BTreeMap<u32, u64>;

/// A subflow that is a backup and is to be closed.
struct Draining {
    netns: u32,
    subflow: Box<Subflow>,
    reason: String,
    request: Option<CloseRequest>,
    until: Duration,
}

/// A request of an algorithm.
struct PendingRequest {
    request: CloseRequest,
    kernel_name: String,
    /// Time until which another path may become alive; `None` if the request has not been examined yet.
    until: Option<Duration>,
}

/// Remains of a namespace that is gone.
pub(crate) struct Dropped {
    /// True if a request of it had not been examined.
    pub(crate) had_request: bool,
    /// Subflows that were backups, to be closed.
    pub(crate) draining: Vec<Subflow>,
}

/// State between visits of namespaces.
pub(crate) struct Machine {
    policy: Policy,
    /// Algorithms whose paths are scanned, by their names in the kernel.
    guarded: Vec<&'static str>,
    last_scan: Option<Duration>,
    /// True if the visits of this round scan for paths without a request.
    scanning: bool,
    draining: Vec<Draining>,
    pending: Vec<PendingRequest>,
    backoffs: Backoffs,
    health: BTreeMap<u32, PathHealth>,
    /// Reported actions of a dry run, and actions that are not possible.
    reported: Reported,
    /// Reported as retained.
    retained: Reported,
    /// Activity at the last scan.
    activity: Activity,
    counts: RequestCounts,
}

impl Machine {
    /// `backoffs`: those of an earlier guard, which this one continues.
    pub(crate) fn new(policy: Policy, guarded: Vec<&'static str>, backoffs: Backoffs) -> Self {
        Self {
            policy,
            guarded,
            last_scan: None,
            scanning: false,
            draining: Vec::new(),
            pending: Vec::new(),
            backoffs,
            health: BTreeMap::new(),
            reported: Reported::default(),
            retained: Reported::default(),
            activity: Activity::new(),
            counts: RequestCounts::default(),
        }
    }

    /// Queues requests of the algorithm with this name in the kernel.
    pub(crate) fn enqueue(&mut self, requests: Vec<CloseRequest>, kernel_name: &str) {
        let pending = |request| PendingRequest { request, kernel_name: kernel_name.to_owned(), until: None };
        self.pending.extend(requests.into_iter().map(pending));
    }

    /// Counts of the requests so far.
    pub(crate) fn counts(&self) -> RequestCounts {
        let draining = self.draining.iter().filter(|one| one.request.is_some()).count();
        RequestCounts { pending: (self.pending.len() + draining) as u64, ..self.counts }
    }

    /// True if the next round scans for paths without a request.
    pub(crate) fn is_scan_due(&self, now: Duration) -> bool {
        self.last_scan.is_none_or(|then| now.saturating_sub(then) >= SCAN_INTERVAL)
    }

    /// True if the next round visits namespaces, as far as that is known without their activity.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        let scans = self.is_scan_due(now);
        let has_request = self.pending.iter().any(|one| scans || one.until.is_none());
        let looks = self.policy.scans() || self.backoffs.namespaces().next().is_some();
        !self.draining.is_empty() || has_request || scans && looks
    }

    /// True if visits need the topology of the namespace.
    pub(crate) fn needs_topology(&self) -> bool {
        self.scanning && self.policy.retry_interval().is_some()
    }

    /// Begins a round and returns the namespaces to visit. `activity` is read only where that is needed.
    pub(crate) fn begin(&mut self, now: Duration, activity: impl FnOnce() -> Activity) -> BTreeSet<u32> {
        self.scanning = self.is_scan_due(now);
        let mut namespaces: BTreeSet<u32> = self.draining.iter().map(|one| one.netns).collect();
        let due = self.pending.iter().filter(|one| self.scanning || one.until.is_none());
        namespaces.extend(due.map(|one| one.request.netns));
        if self.scanning {
            self.last_scan = Some(now);
            namespaces.extend(self.backoffs.namespaces());
            let activity = if self.policy.scans() { activity() } else { Activity::new() };
            namespaces.extend(self.namespaces_to_scan(activity));
        }
        namespaces
    }

    /// Namespaces to scan without a request: those with activity on guarded connections since the last scan, and those with data
    /// outstanding then. An idle one costs a lookup in a table.
    fn namespaces_to_scan(&mut self, namespaces: Activity) -> BTreeSet<u32> {
        let is_busy = |netns: &u32| self.health.get(netns).is_some_and(PathHealth::is_busy);
        let changed = |netns: &u32, number: &u64| self.activity.get(netns) != Some(number);
        let due = namespaces.iter().filter(|(netns, number)| changed(netns, number) || is_busy(netns));
        let due: BTreeSet<u32> = due.map(|(netns, _)| *netns).collect();
        self.health.retain(|netns, _| namespaces.contains_key(netns));
        self.activity = namespaces;
        due
    }

    /// Visits a namespace with these subflows. `topology`: hash of its topology, if [`Self::needs_topology`].
    pub(crate) fn visit(
        &mut self,
        now: Duration,
        netns: u32,
        all: Vec<Subflow>,
        topology: Option<u64>,
    ) -> Visit<'_> {
        Visit::begin(self, now, netns, all, topology)
    }

    /// Removes from the queue the requests of a namespace that are to be examined now.
    fn take_requests(&mut self, netns: u32) -> Vec<PendingRequest> {
        let scanning = self.scanning;
        let is_due = |one: &PendingRequest| one.request.netns == netns && (scanning || one.until.is_none());
        let (due, left) = std::mem::take(&mut self.pending).into_iter().partition(is_due);
        self.pending = left;
        due
    }

    /// Removes the draining subflows of a namespace.
    fn take_draining(&mut self, netns: u32) -> Vec<Draining> {
        let (here, left) = std::mem::take(&mut self.draining).into_iter().partition(|one| one.netns == netns);
        self.draining = left;
        here
    }

    /// Drops the state of a namespace that is gone, and with it its connections.
    pub(crate) fn drop_namespace(&mut self, netns: u32) -> Dropped {
        self.backoffs.forget(netns, &[]);
        let had_request = self.pending.iter().any(|one| one.request.netns == netns && one.until.is_none());
        let before = self.pending.len();
        self.pending.retain(|one| one.request.netns != netns);
        let draining = self.take_draining(netns);
        let requested = draining.iter().filter(|one| one.request.is_some()).count();
        self.counts.gone += (before - self.pending.len() + requested) as u64;
        Dropped { had_request, draining: draining.into_iter().map(|one| *one.subflow).collect() }
    }

    /// Back-offs for the next guard. No path is suppressed any more: the end of a guard rolls back its changes.
    pub(crate) fn end(mut self, now: Duration) -> Backoffs {
        self.backoffs.release(now);
        self.backoffs
    }
}

/// Sockets that were reported, so that repeated findings are reported once.
#[derive(Default)]
struct Reported(BTreeSet<(u32, [u8; 8])>);

/// Maximum number of sockets that are remembered as reported.
const MAX_REPORTED: usize = 4096;

impl Reported {
    /// True for the first report of a socket.
    fn is_first(&mut self, netns: u32, subflow: &Subflow) -> bool {
        if self.0.len() >= MAX_REPORTED {
            self.0.clear();
        }
        self.0.insert((netns, subflow.cookie))
    }

    fn contains(&self, netns: u32, subflow: &Subflow) -> bool {
        self.0.contains(&(netns, subflow.cookie))
    }
}
