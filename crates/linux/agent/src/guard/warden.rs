//! Scheduler of the guard: decides when and in which namespaces to act on paths; [`Visit`] acts.

use super::Did;
use super::debts;
use super::journal::Journal;
use super::memory::Memory;
use super::policy::Policy;
use super::visit::Visit;
use super::watched::Watched;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use vmcc_host::ControlError;
use vmcc_host::diag::{Diag, DiagError, Subflow};
use vmcc_host::guard::{self, CloseRequest, Guard};

/// Interval between scans of the paths.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of sockets that are remembered as reported.
const MAX_TOLD: usize = 4096;

/// A subflow that is a backup and is to be closed.
pub(super) struct Draining {
    pub(super) netns: u32,
    pub(super) subflow: Subflow,
    pub(super) reason: String,
    pub(super) request: Option<CloseRequest>,
    pub(super) until: Duration,
}

/// A request of an algorithm.
pub(super) struct Asked {
    pub(super) request: CloseRequest,
    pub(super) kernel_name: &'static str,
    /// Time until which another path may become alive; `None` if the request has not been examined yet.
    pub(super) until: Option<Duration>,
}

/// Callback for actions and errors.
pub(super) type Say<'a> = &'a mut dyn FnMut(Result<Did, ControlError>);

/// State between visits.
pub(super) struct Warden<'a> {
    pub(super) policy: Policy,
    looked: Option<Duration>,
    pub(super) draining: Vec<Draining>,
    pub(super) asked: Vec<Asked>,
    pub(super) memory: &'a mut Memory,
    pub(super) journal: Journal,
    pub(super) watched: BTreeMap<u32, Watched>,
    /// Sockets of which was told already what would be done, or cannot be.
    pub(super) told: BTreeSet<(u32, [u8; 8])>,
    /// The same of those that were spared.
    pub(super) spared: BTreeSet<(u32, [u8; 8])>,
    /// Of each namespace with guarded connections at the last look.
    activity: BTreeMap<u32, u64>,
}

impl<'a> Warden<'a> {
    pub(super) fn new(policy: Policy, memory: &'a mut Memory) -> Self {
        Self {
            policy,
            looked: None,
            draining: Vec::new(),
            asked: Vec::new(),
            memory,
            journal: Journal::default(),
            watched: BTreeMap::new(),
            told: BTreeSet::new(),
            spared: BTreeSet::new(),
            activity: BTreeMap::new(),
        }
    }

    /// An algorithm asks to close paths.
    pub(super) fn asked(&mut self, requests: Vec<CloseRequest>, kernel_name: &'static str) {
        self.asked.extend(requests.into_iter().map(|request| Asked { request, kernel_name, until: None }));
    }

    /// Performs the actions that are due. A namespace is entered, and its sockets are listed, once for all of them.
    pub(super) fn turn(&mut self, guards: &[Guard], say: Say<'_>) {
        let now = self.memory.now();
        let looks = self.looked.is_none_or(|then| now - then >= SCAN_INTERVAL);
        let mut namespaces: BTreeSet<u32> = self.draining.iter().map(|one| one.netns).collect();
        let due = self.asked.iter().filter(|one| looks || one.until.is_none());
        namespaces.extend(due.map(|one| one.request.netns));
        if looks {
            self.looked = Some(now);
            // One that could not be added again.
            debts::pay(&mut self.journal, debts::is_endpoint, say);
            namespaces.extend(self.looked_at(guards.iter().map(Guard::activity)));
        }
        let ours: Vec<&str> = guards.iter().map(Guard::kernel_name).collect();
        for netns in namespaces {
            match self.visit(netns, now, looks.then_some(&ours)) {
                Ok(done) => done.into_iter().for_each(&mut *say),
                Err(error) => self.lost(netns, error, say),
            }
        }
    }

    /// Namespaces whose paths are looked at unasked: those with guarded connections to which something happened since the last
    /// look, or which had something under way then. An idle one costs a lookup in a table.
    fn looked_at(&mut self, of_guards: impl Iterator<Item = BTreeMap<u32, u64>>) -> BTreeSet<u32> {
        let mut all: BTreeSet<u32> = self.memory.resting.namespaces().collect();
        let mut activity = BTreeMap::new();
        if self.policy.looks() {
            for (netns, number) in of_guards.flatten() {
                let sum: &mut u64 = activity.entry(netns).or_default();
                *sum = sum.wrapping_add(number);
            }
            let is_busy = |netns: &u32| self.watched.get(netns).is_some_and(Watched::is_busy);
            let changed = activity.iter().filter(|(netns, now)| self.activity.get(netns) != Some(now));
            let busy = activity.keys().filter(|netns| is_busy(netns));
            all.extend(changed.map(|(netns, _)| *netns).chain(busy.copied()).chain(vmcc_host::netns::own()));
        }
        self.watched.retain(|netns, _| all.contains(netns) || activity.contains_key(netns));
        self.activity = activity;
        all
    }

    /// Visits a namespace and returns the actions. With `ours`, the guarded algorithms, it also scans for paths without a request.
    fn visit(
        &mut self,
        netns: u32,
        now: Duration,
        ours: Option<&Vec<&str>>,
    ) -> Result<Vec<Result<Did, ControlError>>, ControlError> {
        guard::within(
            netns,
            || "guard paths".to_owned(),
            || {
                let mut diag = Diag::open().map_err(failed)?;
                let all = diag.subflows_and_attempts().map_err(failed)?;
                debts::forget_gone(&mut self.journal, &all)?;
                let mut visit = Visit { warden: self, diag, netns, now, all, done: Vec::new() };
                visit.requests(ours.is_some());
                visit.drain();
                if let Some(ours) = ours {
                    visit.look(ours);
                }
                Ok(visit.done)
            },
        )?
    }

    /// It is gone, and with it its connections.
    fn lost(&mut self, netns: u32, error: ControlError, say: Say<'_>) {
        self.memory.resting.forget(netns, &[]);
        let was_asked = self.asked.iter().any(|one| one.request.netns == netns && one.until.is_none());
        self.asked.retain(|one| one.request.netns != netns);
        if was_asked {
            say(Err(error));
        }
        let (gone, left) = std::mem::take(&mut self.draining).into_iter().partition(|one| one.netns == netns);
        self.draining = left;
        let gone: Vec<Draining> = gone;
        for one in gone {
            if let Err(error) = debts::forget(&mut self.journal, &one.subflow) {
                say(Err(error));
            }
        }
    }

    /// Takes back what is done only for a time: nobody would be there to end it.
    pub(super) fn end(mut self, say: Say<'_>) {
        debts::pay(&mut self.journal, |_| true, say);
        let now = self.memory.now();
        self.memory.resting.release(now);
    }
}

/// True for the first report of a socket: repeated findings are reported once.
pub(super) fn is_new(told: &mut BTreeSet<(u32, [u8; 8])>, netns: u32, subflow: &Subflow) -> bool {
    if told.len() >= MAX_TOLD {
        told.clear();
    }
    told.insert((netns, subflow.cookie))
}

pub(super) fn failed(error: DiagError) -> ControlError {
    ControlError::Kernel { action: "guard paths".to_owned(), cause: error.to_string() }
}

pub(super) fn listed() -> Result<Vec<Subflow>, ControlError> {
    Diag::open().and_then(|mut diag| diag.subflows_and_attempts()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_enter_no_idle_namespace_however_many_there_are() {
        let own = vmcc_host::netns::own().unwrap();
        for count in [1000, 4000] {
            let mut memory = Memory::default();
            let policy = Policy {
                dry_run: false,
                drain: Duration::ZERO,
                min_paths: 1,
                failed: Some(3.0),
                useless: None,
                retry: None,
            };
            let mut warden = Warden::new(policy, &mut memory);
            let idle: BTreeMap<u32, u64> = (1..=count).map(|netns| (netns, 7)).collect();
            let mut look = |activity: &BTreeMap<u32, u64>| warden.looked_at([activity.clone()].into_iter());
            assert_eq!(look(&idle).len(), count as usize + 1, "each is new");
            assert_eq!(look(&idle), [own].into(), "of {count}");
            let mut one_is_active = idle.clone();
            one_is_active.insert(count / 2, 8);
            assert_eq!(look(&one_is_active), [count / 2, own].into(), "of {count}");
            assert_eq!(look(&one_is_active), [own].into(), "of {count}");
        }
    }
}
