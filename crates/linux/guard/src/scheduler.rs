//! Scheduler of the guard: decides when and in which namespaces to act on paths; [`Applier`] acts.

use crate::apply::Applier;
use crate::guards::GuardEvent;
use crate::health::PathHealth;
use crate::journal::Journal;
use crate::policy::Policy;
use crate::rollback;
use crate::state::GuardState;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use vmcc_host::ControlError;
use vmcc_host::close_requests::{CloseRequest, CloseRequests};
use vmcc_host::diag::{Diag, DiagError, Subflow};
use vmcc_host::netns;

/// Interval between scans of the paths.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of sockets that are remembered as reported.
const MAX_REPORTED: usize = 4096;

/// A subflow that is a backup and is to be closed.
pub(crate) struct Draining {
    pub(crate) netns: u32,
    pub(crate) subflow: Subflow,
    pub(crate) reason: String,
    pub(crate) request: Option<CloseRequest>,
    pub(crate) until: Duration,
}

/// A request of an algorithm.
pub(crate) struct PendingRequest {
    pub(crate) request: CloseRequest,
    pub(crate) kernel_name: &'static str,
    /// Time until which another path may become alive; `None` if the request has not been examined yet.
    pub(crate) until: Option<Duration>,
}

/// Callback for actions and errors.
pub(crate) type ReportFn<'a> = &'a mut dyn FnMut(Result<GuardEvent, ControlError>);

/// State between passes over the namespaces.
pub(crate) struct Scheduler<'a> {
    pub(crate) policy: Policy,
    last_scan: Option<Duration>,
    pub(crate) draining: Vec<Draining>,
    pub(crate) pending: Vec<PendingRequest>,
    pub(crate) state: &'a mut GuardState,
    pub(crate) journal: Journal,
    pub(crate) health: BTreeMap<u32, PathHealth>,
    /// Sockets already reported: actions of a dry run, and actions that are not possible.
    pub(crate) reported: BTreeSet<(u32, [u8; 8])>,
    /// Sockets already reported as retained.
    pub(crate) retained: BTreeSet<(u32, [u8; 8])>,
    /// Activity counter of each namespace with guarded connections at the last scan.
    activity: BTreeMap<u32, u64>,
}

impl<'a> Scheduler<'a> {
    pub(crate) fn new(policy: Policy, state: &'a mut GuardState) -> Self {
        Self {
            policy,
            last_scan: None,
            draining: Vec::new(),
            pending: Vec::new(),
            state,
            journal: Journal::default(),
            health: BTreeMap::new(),
            reported: BTreeSet::new(),
            retained: BTreeSet::new(),
            activity: BTreeMap::new(),
        }
    }

    /// Queues an algorithm's requests to close paths.
    pub(crate) fn enqueue(&mut self, requests: Vec<CloseRequest>, kernel_name: &'static str) {
        self.pending.extend(requests.into_iter().map(|request| PendingRequest {
            request,
            kernel_name,
            until: None,
        }));
    }

    /// Performs the actions that are due. A namespace is entered, and its sockets are listed, once for all of them.
    pub(crate) fn run_due(&mut self, requests: &[CloseRequests], say: ReportFn<'_>) {
        let now = self.state.now();
        let scans = self.last_scan.is_none_or(|then| now - then >= SCAN_INTERVAL);
        let mut namespaces: BTreeSet<u32> = self.draining.iter().map(|one| one.netns).collect();
        let due = self.pending.iter().filter(|one| scans || one.until.is_none());
        namespaces.extend(due.map(|one| one.request.netns));
        if scans {
            self.last_scan = Some(now);
            // One that could not be added again.
            rollback::undo(&mut self.journal, rollback::is_endpoint, say);
            namespaces.extend(self.namespaces_to_scan(requests.iter().map(CloseRequests::activity)));
        }
        let ours: Vec<&str> = requests.iter().map(CloseRequests::kernel_name).collect();
        for netns in namespaces {
            match self.apply(netns, now, scans.then_some(&ours)) {
                Ok(done) => done.into_iter().for_each(&mut *say),
                Err(error) => self.namespace_gone(netns, error, say),
            }
        }
    }

    /// Namespaces to scan without a request: those with activity on guarded connections since the last scan, or with data
    /// outstanding then. An idle one costs a lookup in a table.
    fn namespaces_to_scan(&mut self, of_guards: impl Iterator<Item = BTreeMap<u32, u64>>) -> BTreeSet<u32> {
        let mut all: BTreeSet<u32> = self.state.backoffs.namespaces().collect();
        let mut activity = BTreeMap::new();
        if self.policy.scans() {
            for (netns, number) in of_guards.flatten() {
                let sum: &mut u64 = activity.entry(netns).or_default();
                *sum = sum.wrapping_add(number);
            }
            let is_busy = |netns: &u32| self.health.get(netns).is_some_and(PathHealth::is_busy);
            let changed = activity.iter().filter(|(netns, now)| self.activity.get(netns) != Some(now));
            let busy = activity.keys().filter(|netns| is_busy(netns));
            all.extend(changed.map(|(netns, _)| *netns).chain(busy.copied()).chain(vmcc_host::netns::own()));
        }
        self.health.retain(|netns, _| all.contains(netns) || activity.contains_key(netns));
        self.activity = activity;
        all
    }

    /// Acts on the paths of a namespace and returns the actions. With `ours`, the guarded algorithms, it also scans for paths
    /// without a request.
    fn apply(
        &mut self,
        netns: u32,
        now: Duration,
        ours: Option<&Vec<&str>>,
    ) -> Result<Vec<Result<GuardEvent, ControlError>>, ControlError> {
        netns::within_inode(
            netns,
            || "guard paths".to_owned(),
            || {
                let mut diag = Diag::open().map_err(failed)?;
                let all = diag.subflows_and_attempts().map_err(failed)?;
                rollback::prune(&mut self.journal, &all)?;
                let mut applier = Applier { scheduler: self, diag, netns, now, all, done: Vec::new() };
                applier.handle_requests(ours.is_some());
                applier.drain();
                if let Some(ours) = ours {
                    applier.scan(ours);
                }
                Ok(applier.done)
            },
        )?
    }

    /// Drops the state of a namespace that is gone, and with it its connections.
    fn namespace_gone(&mut self, netns: u32, error: ControlError, say: ReportFn<'_>) {
        self.state.backoffs.forget(netns, &[]);
        let was_asked = self.pending.iter().any(|one| one.request.netns == netns && one.until.is_none());
        self.pending.retain(|one| one.request.netns != netns);
        if was_asked {
            say(Err(error));
        }
        let (gone, left) = std::mem::take(&mut self.draining).into_iter().partition(|one| one.netns == netns);
        self.draining = left;
        let gone: Vec<Draining> = gone;
        for one in gone {
            if let Err(error) = rollback::forget_backup(&mut self.journal, &one.subflow) {
                say(Err(error));
            }
        }
    }

    /// Rolls back all temporary changes.
    pub(crate) fn end(mut self, say: ReportFn<'_>) {
        rollback::undo(&mut self.journal, |_| true, say);
        let now = self.state.now();
        self.state.backoffs.release(now);
    }
}

/// True for the first report of a socket: repeated findings are reported once.
pub(crate) fn is_first_report(
    reported: &mut BTreeSet<(u32, [u8; 8])>,
    netns: u32,
    subflow: &Subflow,
) -> bool {
    if reported.len() >= MAX_REPORTED {
        reported.clear();
    }
    reported.insert((netns, subflow.cookie))
}

pub(crate) fn failed(error: DiagError) -> ControlError {
    ControlError::Kernel { action: "guard paths".to_owned(), cause: error.to_string() }
}

pub(crate) fn list_subflows() -> Result<Vec<Subflow>, ControlError> {
    Diag::open().and_then(|mut diag| diag.subflows_and_attempts()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn scans_enter_no_idle_namespace() {
        let own = vmcc_host::netns::own().unwrap();
        for count in [1000, 4000] {
            let mut state = GuardState::default();
            let policy = Policy {
                dry_run: false,
                drain: Duration::ZERO,
                min_paths: 1,
                failed: Some(3.0),
                useless: None,
                retry: None,
            };
            let mut scheduler = Scheduler::new(policy, &mut state);
            let idle: BTreeMap<u32, u64> = (1..=count).map(|netns| (netns, 7)).collect();
            let mut scan =
                |activity: &BTreeMap<u32, u64>| scheduler.namespaces_to_scan([activity.clone()].into_iter());
            assert_eq!(scan(&idle).len(), count as usize + 1, "each is new");
            assert_eq!(scan(&idle), [own].into(), "of {count}");
            let mut one_is_active = idle.clone();
            one_is_active.insert(count / 2, 8);
            assert_eq!(scan(&one_is_active), [count / 2, own].into(), "of {count}");
            assert_eq!(scan(&one_is_active), [own].into(), "of {count}");
        }
    }
}
