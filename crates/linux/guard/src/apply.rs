//! Applies actions to the paths of one network namespace: those that an algorithm or a scan has found. See [`Policy`].
//!
//! [`Policy`]: crate::policy::Policy

use crate::action::{Action, PathAction};
use crate::backoff::{Backoff, BackoffState, Seen};
use crate::guards::GuardEvent;
use crate::health::{Finding, is_alive, is_due};
use crate::judge::{Judged, judge};
use crate::rollback;
use crate::scheduler::{Draining, PendingRequest, Scheduler, failed, is_first_report};
use crate::subflow::{Reopened, reopen};
use crate::topology::topology;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use vmcc_host::ControlError;
use vmcc_host::close_requests::CloseRequest;
use vmcc_host::diag::{Diag, DiagError, Mptcp, Subflow};

/// Timeout while no other path is alive.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// One pass over a network namespace. Each action also updates `all`, so later decisions see its effect.
pub(crate) struct Applier<'a, 'm> {
    pub(crate) scheduler: &'a mut Scheduler<'m>,
    pub(crate) diag: Diag,
    pub(crate) netns: u32,
    pub(crate) now: Duration,
    /// The subflows that are there.
    pub(crate) all: Vec<Subflow>,
    pub(crate) done: Vec<Result<GuardEvent, ControlError>>,
}

impl Applier<'_, '_> {
    /// Handles the requests of algorithms; `again`: also those that could not be fulfilled before.
    pub(crate) fn handle_requests(&mut self, again: bool) {
        let here = |one: &PendingRequest| one.request.netns == self.netns && (again || one.until.is_none());
        let (here, left) = std::mem::take(&mut self.scheduler.pending).into_iter().partition(here);
        self.scheduler.pending = left;
        let here: Vec<PendingRequest> = here;
        let now = self.now;
        for one in here.into_iter().filter(|one| one.until.is_none_or(|until| until > now)) {
            match self.judge(&one) {
                Judged::Close(subflow) => {
                    let reason = format!("it shares a bottleneck with path {}", one.request.peer);
                    self.close(*subflow, reason, Some(one.request));
                }
                Judged::Retain(subflow) => self.retain(&subflow, one.request.peer),
                Judged::Gone => {}
                // Listed, it has a cookie now, if nobody had asked for one before.
                Judged::NothingToKeep(meant) => {
                    let cookie = u64::from_ne_bytes(meant.cookie);
                    self.defer(PendingRequest { request: CloseRequest { cookie, ..one.request }, ..one });
                }
            }
        }
    }

    /// Reports once that a path is retained: some algorithms repeat their request.
    fn retain(&mut self, subflow: &Subflow, peer: u16) {
        if is_first_report(&mut self.scheduler.retained, self.netns, subflow) {
            let least = self.scheduler.policy.min_paths;
            let reason = format!("it shares a bottleneck with path {peer}, and {least} paths are to stay");
            self.report(subflow, Action::Retained, &reason);
        }
    }

    /// Judges a request. In a dry run, paths that were reported as to be closed count as gone.
    fn judge(&self, one: &PendingRequest) -> Judged {
        let Scheduler { policy, reported, .. } = &*self.scheduler;
        let given_up = |s: &Subflow| policy.dry_run && reported.contains(&(self.netns, s.cookie));
        judge(&one.request, &self.all, one.kernel_name, policy.min_paths, given_up)
    }

    /// Defers a request: the path to keep may only wait for a timeout, and some algorithms ask once.
    fn defer(&mut self, one: PendingRequest) {
        let ends = |one: &PendingRequest| (one.request.netns, one.request.local, one.request.remote);
        let waits = |other: &PendingRequest| other.until.is_some() && ends(other) == ends(&one);
        if !self.scheduler.pending.iter().any(waits) {
            let until = Some(one.until.unwrap_or(self.now + ALIVE_TIMEOUT));
            self.scheduler.pending.push(PendingRequest { until, ..one });
        }
    }

    /// Scans for paths to act on without a request.
    pub(crate) fn scan(&mut self, ours: &[&str]) {
        let policy = self.scheduler.policy;
        if policy.scans() {
            let is_ours = |s: &Subflow| ours.contains(&s.algorithm.as_str());
            let health = self.scheduler.health.entry(self.netns).or_default();
            for (subflow, finding) in health.scan(self.now, &self.all, is_ours, &policy) {
                self.act_on(subflow, &finding);
            }
        }
        self.scheduler.state.backoffs.forget(self.netns, &self.all);
        if let Some(base) = policy.retry_interval() {
            let seen = Seen { netns: self.netns, all: &self.all, topology: topology() };
            let due = self.scheduler.state.backoffs.due(self.now, base, &seen);
            self.try_again(due);
        }
    }

    /// Acts on a finding of a scan.
    fn act_on(&mut self, subflow: Subflow, finding: &Finding) {
        let reason = finding.reason();
        match finding {
            Finding::Failed { .. } => self.close(subflow, reason, None),
            Finding::Useless { .. } => self.suppress(&subflow, &reason),
        }
    }

    fn suppress(&mut self, subflow: &Subflow, reason: &str) {
        if !self.survives(subflow) {
            return;
        }
        if self.scheduler.policy.dry_run {
            return self.report_once(subflow, Action::WouldSuppress, reason);
        }
        match rollback::set_backup(&mut self.scheduler.journal, subflow) {
            Ok(true) => {
                self.is_backup(subflow);
                self.scheduler.state.backoffs.begin(self.now, self.netns, subflow, BackoffState::Suppressed);
                self.report(subflow, Action::Suppressed, reason);
            }
            Ok(false) => self.close_now(subflow, reason, None),
            Err(error) => self.done.push(Err(error)),
        }
    }

    /// Closes a path, or begins to.
    fn close(&mut self, subflow: Subflow, reason: String, request: Option<CloseRequest>) {
        let drains = |one: &Draining| (one.netns, one.subflow.cookie) == (self.netns, subflow.cookie);
        if !self.survives(&subflow) || self.scheduler.draining.iter().any(drains) {
            return;
        }
        if self.scheduler.policy.dry_run {
            return self.report_once(&subflow, Action::WouldClose, &reason);
        }
        // On what has failed nothing drains.
        let drains = !self.scheduler.policy.drain.is_zero() && request.is_some();
        let begun =
            if drains { rollback::set_backup(&mut self.scheduler.journal, &subflow) } else { Ok(false) };
        match begun {
            Ok(true) => {
                self.is_backup(&subflow);
                self.report(&subflow, Action::Draining, &reason);
                let until = self.now + self.scheduler.policy.drain;
                self.scheduler.draining.push(Draining { netns: self.netns, subflow, reason, request, until });
            }
            Ok(false) => self.close_now(&subflow, &reason, request),
            Err(error) => self.done.push(Err(error)),
        }
    }

    fn close_now(&mut self, subflow: &Subflow, reason: &str, request: Option<CloseRequest>) {
        match self.diag.destroy(subflow) {
            Err(DiagError::NotFound { .. }) => {}
            Err(error) => return self.done.push(Err(failed(error))),
            Ok(()) => {
                self.scheduler.state.backoffs.begin(self.now, self.netns, subflow, BackoffState::Closed);
                match request {
                    Some(request) => self.done.push(Ok(GuardEvent::Closed(request))),
                    None => self.report(subflow, Action::Closed, reason),
                }
            }
        }
        self.forget(subflow);
        self.all.retain(|s| s.cookie != subflow.cookie);
    }

    /// Closes what is empty, or has had its time; what has become the last path is used again.
    pub(crate) fn drain(&mut self) {
        for one in std::mem::take(&mut self.scheduler.draining) {
            if one.netns != self.netns {
                self.scheduler.draining.push(one);
                continue;
            }
            let subflow = self.all.iter().find(|s| s.cookie == one.subflow.cookie).cloned();
            match subflow {
                // It has ended by itself.
                None => self.forget(&one.subflow),
                Some(subflow) if !self.survives(&subflow) => self.release(&subflow, "no other path is left"),
                Some(subflow) if self.now >= one.until || !is_due(&subflow) => {
                    self.close_now(&subflow, &one.reason, one.request);
                }
                Some(_) => self.scheduler.draining.push(one),
            }
        }
    }

    fn try_again(&mut self, due: Vec<Backoff>) {
        let mut by_address: BTreeMap<IpAddr, Vec<Backoff>> = BTreeMap::new();
        for one in due {
            if one.state == BackoffState::Suppressed {
                self.release(&one.subflow, "its back-off is over");
                continue;
            }
            match reopen(&one.subflow) {
                Ok(true) => self.report(&one.subflow, Action::TriedAgain, "its back-off is over"),
                Ok(false) => {
                    by_address.entry(one.subflow.local.ip().to_canonical()).or_default().push(one);
                }
                Err(error) => self.done.push(Err(error)),
            }
        }
        by_address.into_iter().for_each(|(address, due)| self.renew(address, due));
    }

    /// An endpoint is made anew once for all connections: each of them joins by it.
    fn renew(&mut self, address: IpAddr, due: Vec<Backoff>) {
        let reason = match rollback::renew(&mut self.scheduler.journal, address, &due, &self.all) {
            Ok(Reopened::Asked) => {
                let with = self.scheduler.state.backoffs.with(self.now, self.netns, address);
                let reason = "the back-off of a path from its address is over";
                due.iter()
                    .for_each(|one| self.report(&one.subflow, Action::TriedAgain, "its back-off is over"));
                return with.iter().for_each(|one| self.report(&one.subflow, Action::TriedAgain, reason));
            }
            Ok(Reopened::NoEndpoint) => "the kernel manages its paths and has no endpoint of this address",
            Ok(Reopened::InUse) => "the kernel would close the other subflows from this address",
            Err(error) => return self.done.push(Err(error)),
        };
        for one in due {
            self.report_once(&one.subflow, Action::NotTriedAgain, reason);
            self.scheduler.state.backoffs.not_tried(self.now, one);
        }
    }

    /// Lets data on a subflow again.
    fn release(&mut self, subflow: &Subflow, reason: &str) {
        match rollback::clear_backup(&mut self.scheduler.journal, subflow) {
            Ok(true) => self.report(subflow, Action::Released, reason),
            Ok(false) => {}
            Err(error) => self.done.push(Err(error)),
        }
    }

    /// Removes the pending undo of a subflow.
    fn forget(&mut self, subflow: &Subflow) {
        if let Err(error) = rollback::forget_backup(&mut self.scheduler.journal, subflow) {
            self.done.push(Err(error));
        }
    }

    fn is_backup(&mut self, subflow: &Subflow) {
        for one in self.all.iter_mut().filter(|s| s.cookie == subflow.cookie) {
            one.mptcp = one.mptcp.map(|mptcp| Mptcp { backup: true, ..mptcp });
        }
    }

    /// True if the subflow exists and its connection has another one that is alive. In a dry run those do not count that were
    /// reported as to be closed.
    fn survives(&self, subflow: &Subflow) -> bool {
        let reported = &self.scheduler.reported;
        let dry_run = self.scheduler.policy.dry_run;
        survives(subflow, &self.all, |s| dry_run && reported.contains(&(self.netns, s.cookie)))
    }

    fn report(&mut self, subflow: &Subflow, action: Action, reason: &str) {
        self.done.push(Ok(GuardEvent::Action(PathAction::to(subflow, self.netns, action, reason))));
    }

    fn report_once(&mut self, subflow: &Subflow, action: Action, reason: &str) {
        if is_first_report(&mut self.scheduler.reported, self.netns, subflow) {
            self.report(subflow, action, reason);
        }
    }
}

/// True if the subflow exists and its connection continues without it and without those that are `given_up`.
pub(crate) fn survives(subflow: &Subflow, all: &[Subflow], given_up: impl Fn(&Subflow) -> bool) -> bool {
    let token = |s: &Subflow| s.mptcp.map(|mptcp| mptcp.token_local);
    let is_other = |s: &Subflow| s.cookie != subflow.cookie && token(s) == token(subflow);
    all.iter().any(|s| s.cookie == subflow.cookie)
        && all.iter().any(|s| is_other(s) && is_alive(s) && !given_up(s))
}
