//! What is done about the paths that an algorithm or a look at them found: see [`Policy`].

use super::Did;
use super::debts;
use super::deed::{Action, Deed};
use super::journal::Journal;
use super::policy::Policy;
use super::resting::{Rest, Resting, Restings, Seen};
use super::topology::topology;
use super::watched::{Finding, Watched, is_alive, is_due};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use vmcc_host::ControlError;
use vmcc_host::diag::{Diag, DiagError, Subflow};
use vmcc_host::guard::{self, CloseRequest, Guard, Judged, Reopened};

/// How often paths are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How often it is asked which namespaces there are.
const NAMESPACES: Duration = Duration::from_secs(10);
/// How long it is waited for another path to be alive.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many sockets are remembered as told of.
const MAX_TOLD: usize = 4096;

/// A subflow that is a backup and is to be closed.
struct Draining {
    netns: u32,
    subflow: Subflow,
    reason: String,
    request: Option<CloseRequest>,
    until: Duration,
}

/// A request whose connection had nothing else that was alive.
struct Waiting {
    request: CloseRequest,
    kernel_name: &'static str,
    until: Duration,
}

/// Who is told what is done.
pub(super) type Say<'a> = &'a mut dyn FnMut(Result<Did, ControlError>);

pub(super) struct Warden {
    policy: Policy,
    began: Instant,
    looked: Option<Duration>,
    draining: Vec<Draining>,
    waiting: Vec<Waiting>,
    resting: Restings,
    journal: Journal,
    watched: BTreeMap<u32, Watched>,
    /// Sockets of which was told already what would be done, or cannot be.
    told: BTreeSet<(u32, [u8; 8])>,
    namespaces: Option<(Duration, BTreeSet<u32>)>,
}

impl Warden {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            policy,
            began: Instant::now(),
            looked: None,
            draining: Vec::new(),
            waiting: Vec::new(),
            resting: Restings::default(),
            journal: Journal::default(),
            watched: BTreeMap::new(),
            told: BTreeSet::new(),
            namespaces: None,
        }
    }

    /// An algorithm asks to close a path.
    pub(super) fn asked(&mut self, request: &CloseRequest, kernel_name: &'static str, say: Say<'_>) {
        match request.judge(kernel_name) {
            Ok(Judged::Close(subflow)) => {
                let reason = format!("it shares a bottleneck with path {}", request.peer);
                self.close(request.netns, *subflow, reason, Some(*request), say);
            }
            Ok(Judged::Gone) => {}
            // Listed, it has a cookie now, if nobody had asked for one before.
            Ok(Judged::NothingToKeep(meant)) => {
                let request = CloseRequest { cookie: u64::from_ne_bytes(meant.cookie), ..*request };
                self.wait_for(request, kernel_name);
            }
            Err(error) => say(Err(error)),
        }
    }

    /// The path that was to be kept may only wait for a timeout, and some algorithms ask once.
    fn wait_for(&mut self, request: CloseRequest, kernel_name: &'static str) {
        let now = self.began.elapsed();
        self.waiting.retain(|one| one.until > now);
        let ends = |request: &CloseRequest| (request.netns, request.local, request.remote);
        if self.waiting.len() < MAX_TOLD
            && !self.waiting.iter().any(|one| ends(&one.request) == ends(&request))
        {
            self.waiting.push(Waiting { request, kernel_name, until: now + PATIENCE });
        }
    }

    /// Requests that could not be followed are judged again.
    fn ask_again(&mut self, now: Duration, say: Say<'_>) {
        for one in std::mem::take(&mut self.waiting).into_iter().filter(|one| one.until > now) {
            match one.request.judge(one.kernel_name) {
                Ok(Judged::NothingToKeep(_)) => self.waiting.push(one),
                Ok(Judged::Close(_)) => self.asked(&one.request, one.kernel_name, say),
                Ok(Judged::Gone) | Err(_) => {}
            }
        }
    }

    /// What is due now.
    pub(super) fn turn(&mut self, guards: &[Guard], say: Say<'_>) {
        let now = self.began.elapsed();
        self.drain(now, say);
        if self.looked.is_some_and(|then| now - then < LOOK) {
            return;
        }
        self.looked = Some(now);
        self.ask_again(now, say);
        // One that could not be added again.
        debts::pay(&mut self.journal, debts::is_endpoint, say);
        let mut namespaces: BTreeSet<u32> = self.resting.namespaces().collect();
        if self.policy.looks() {
            namespaces.extend(self.namespaces(now, guards));
        }
        self.watched.retain(|netns, _| namespaces.contains(netns));
        for netns in namespaces {
            match look(netns, &mut self.journal) {
                Ok((all, topology)) => self.seen(now, &Seen { netns, all: &all, topology }, guards, say),
                // It is gone, and with it its connections.
                Err(_) => self.resting.forget(netns, &[]),
            }
        }
    }

    fn namespaces(&mut self, now: Duration, guards: &[Guard]) -> BTreeSet<u32> {
        if let Some((then, known)) = &self.namespaces
            && now - *then < NAMESPACES
        {
            return known.clone();
        }
        let all: BTreeSet<u32> =
            guards.iter().flat_map(Guard::namespaces).chain(vmcc_host::netns::own()).collect();
        self.namespaces = Some((now, all.clone()));
        all
    }

    fn seen(&mut self, now: Duration, seen: &Seen<'_>, guards: &[Guard], say: Say<'_>) {
        let ours = |s: &&Subflow| guards.iter().any(|guard| guard.kernel_name() == s.algorithm);
        let all: Vec<Subflow> = seen.all.iter().filter(ours).cloned().collect();
        if self.policy.looks() {
            let watched = self.watched.entry(seen.netns).or_default();
            for (subflow, finding) in watched.look(now, &all, &self.policy) {
                self.found(seen, subflow, &finding, say);
            }
        }
        self.resting.forget(seen.netns, seen.all);
        if let Some(base) = self.policy.retry {
            for one in self.resting.due(now, base, seen) {
                self.try_again(now, &one, say);
            }
        }
    }

    fn found(&mut self, seen: &Seen<'_>, subflow: Subflow, finding: &Finding, say: Say<'_>) {
        let reason = finding.reason();
        match finding {
            Finding::Failed { .. } => self.close(seen.netns, subflow, reason, None, say),
            Finding::Useless { .. } => self.suppress(seen.netns, subflow, reason, say),
        }
    }

    fn suppress(&mut self, netns: u32, subflow: Subflow, reason: String, say: Say<'_>) {
        if self.policy.dry_run {
            return self.tell_once(netns, &subflow, Action::WouldSuppress, &reason, say);
        }
        let journal = &mut self.journal;
        match within(netns, || with_survivor(&subflow, || debts::back_up(journal, &subflow))) {
            Ok(Some(true)) => {
                self.resting.begin(self.began.elapsed(), netns, &subflow, Rest::Suppressed);
                say(Ok(Did::Deed(Deed::to(&subflow, netns, Action::Suppressed, &reason))));
            }
            Ok(Some(false)) => self.close_now(netns, &subflow, &reason, None, say),
            Ok(None) => {}
            Err(error) => say(Err(error)),
        }
    }

    /// Closes a path, or begins to.
    fn close(
        &mut self,
        netns: u32,
        subflow: Subflow,
        reason: String,
        request: Option<CloseRequest>,
        say: Say<'_>,
    ) {
        if self.policy.dry_run {
            return self.tell_once(netns, &subflow, Action::WouldClose, &reason, say);
        }
        if self.draining.iter().any(|one| (one.netns, one.subflow.cookie) == (netns, subflow.cookie)) {
            return;
        }
        // On what has failed nothing drains.
        let drains = !self.policy.drain.is_zero() && request.is_some();
        let journal = &mut self.journal;
        let begin = || Ok(drains && debts::back_up(journal, &subflow)?);
        match within(netns, || with_survivor(&subflow, begin)) {
            Ok(Some(true)) => {
                say(Ok(Did::Deed(Deed::to(&subflow, netns, Action::Draining, &reason))));
                let until = self.began.elapsed() + self.policy.drain;
                self.draining.push(Draining { netns, subflow, reason, request, until });
            }
            Ok(Some(false)) => self.close_now(netns, &subflow, &reason, request, say),
            Ok(None) => {}
            Err(error) => say(Err(error)),
        }
    }

    fn close_now(
        &mut self,
        netns: u32,
        subflow: &Subflow,
        reason: &str,
        request: Option<CloseRequest>,
        say: Say<'_>,
    ) {
        match within(netns, || with_survivor(subflow, || destroy(subflow))) {
            Ok(Some(true)) => {
                self.resting.begin(self.began.elapsed(), netns, subflow, Rest::Closed);
                self.forget(subflow, say);
                let deed = || Did::Deed(Deed::to(subflow, netns, Action::Closed, reason));
                say(Ok(request.map_or_else(deed, Did::Closed)));
            }
            Ok(_) => {}
            Err(error) => say(Err(error)),
        }
    }

    /// Closes what is empty, or has had its time; what has become the last path is used again.
    fn drain(&mut self, now: Duration, say: Say<'_>) {
        for one in std::mem::take(&mut self.draining) {
            let found = within(one.netns, || {
                let all = listed()?;
                let subflow = all.iter().find(|s| s.cookie == one.subflow.cookie).cloned();
                Ok(subflow.map(|s| (survives(&s, &all), s)))
            });
            match found {
                Ok(Some((true, subflow))) if now >= one.until || !is_due(&subflow) => {
                    self.close_now(one.netns, &subflow, &one.reason, one.request, say);
                }
                Ok(Some((true, _))) => self.draining.push(one),
                Ok(Some((false, subflow))) => self.release(one.netns, &subflow, "no other path is left", say),
                // It has ended by itself, or with its namespace.
                Ok(None) | Err(_) => self.forget(&one.subflow, say),
            }
        }
    }

    fn try_again(&mut self, now: Duration, one: &Resting, say: Say<'_>) {
        let (netns, subflow) = (one.netns, &one.subflow);
        if one.rest == Rest::Suppressed {
            return self.release(netns, subflow, "its back-off is over", say);
        }
        let journal = &mut self.journal;
        let (action, reason) = match within(netns, || debts::reopen(journal, subflow)) {
            Ok(Reopened::Asked) => (Action::TriedAgain, "its back-off is over"),
            Ok(Reopened::NoEndpoint) => {
                (Action::NotTriedAgain, "the kernel manages its paths and has no endpoint of this address")
            }
            Ok(Reopened::InUse) => {
                (Action::NotTriedAgain, "the kernel would close the other subflows from this address")
            }
            Err(error) => return say(Err(error)),
        };
        if action == Action::TriedAgain {
            return say(Ok(Did::Deed(Deed::to(subflow, netns, action, reason))));
        }
        self.resting.begin(now, netns, subflow, Rest::Closed);
        self.tell_once(netns, subflow, action, reason, say);
    }

    /// Lets data on a subflow again.
    fn release(&mut self, netns: u32, subflow: &Subflow, reason: &str, say: Say<'_>) {
        let journal = &mut self.journal;
        match within(netns, || debts::release(journal, subflow)) {
            Ok(true) => say(Ok(Did::Deed(Deed::to(subflow, netns, Action::Released, reason)))),
            Ok(false) => {}
            Err(error) => say(Err(error)),
        }
    }

    /// There is nothing to be taken back of it.
    fn forget(&mut self, subflow: &Subflow, say: Say<'_>) {
        if let Err(error) = debts::forget(&mut self.journal, subflow) {
            say(Err(error));
        }
    }

    /// Takes back what is done only for a time: nobody would be there to end it.
    pub(super) fn end(mut self, say: Say<'_>) {
        debts::pay(&mut self.journal, |_| true, say);
    }

    /// What is found again and again is said once.
    fn tell_once(&mut self, netns: u32, subflow: &Subflow, action: Action, reason: &str, say: Say<'_>) {
        if self.told.len() >= MAX_TOLD {
            self.told.clear();
        }
        if self.told.insert((netns, subflow.cookie)) {
            say(Ok(Did::Deed(Deed::to(subflow, netns, action, reason))));
        }
    }
}

fn look(netns: u32, journal: &mut Journal) -> Result<(Vec<Subflow>, u64), ControlError> {
    within(netns, || {
        let all = listed()?;
        debts::forget_gone(journal, &all)?;
        Ok((all, topology()))
    })
}

fn within<T: Send>(
    netns: u32,
    act: impl FnOnce() -> Result<T, ControlError> + Send,
) -> Result<T, ControlError> {
    guard::within(netns, || "guard paths".to_owned(), act)?
}

fn failed(error: DiagError) -> ControlError {
    ControlError::Kernel { action: "guard paths".to_owned(), cause: error.to_string() }
}

pub(super) fn listed() -> Result<Vec<Subflow>, ControlError> {
    Diag::open().and_then(|mut diag| diag.subflows()).map_err(failed)
}

/// Does it if the subflow is there and the connection has another one that is alive; else nothing.
fn with_survivor<T>(
    subflow: &Subflow,
    act: impl FnOnce() -> Result<T, ControlError>,
) -> Result<Option<T>, ControlError> {
    let all = listed()?;
    let is_there = all.iter().any(|s| s.cookie == subflow.cookie);
    if is_there && survives(subflow, &all) { act().map(Some) } else { Ok(None) }
}

/// Whether the connection survives without this subflow.
fn survives(subflow: &Subflow, all: &[Subflow]) -> bool {
    let token = |s: &Subflow| s.mptcp.map(|mptcp| mptcp.token_local);
    all.iter().any(|s| s.cookie != subflow.cookie && token(s) == token(subflow) && is_alive(s))
}

/// `false` if it is gone already.
fn destroy(subflow: &Subflow) -> Result<bool, ControlError> {
    match Diag::open().and_then(|mut diag| diag.destroy(subflow)) {
        Err(DiagError::NotFound { .. }) => Ok(false),
        done => done.map(|()| true).map_err(failed),
    }
}
