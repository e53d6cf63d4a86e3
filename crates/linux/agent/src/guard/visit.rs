//! Actions on the paths of one network namespace that an algorithm or a scan has found: see [`Policy`].
//!
//! [`Policy`]: super::policy::Policy

use super::Did;
use super::debts;
use super::deed::{Action, Deed};
use super::resting::{Rest, Resting, Seen};
use super::topology::topology;
use super::warden::{Asked, Draining, Warden, failed, is_new};
use super::watched::{Finding, is_alive, is_due};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use vmcc_host::ControlError;
use vmcc_host::diag::{Diag, DiagError, Mptcp, Subflow};
use vmcc_host::guard::{self, CloseRequest, Judged, Reopened};

/// Timeout while no other path is alive.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// In the namespace. What is done is done in `all`, too, so that each decision is made by what is left by then.
pub(super) struct Visit<'a, 'm> {
    pub(super) warden: &'a mut Warden<'m>,
    pub(super) diag: Diag,
    pub(super) netns: u32,
    pub(super) now: Duration,
    /// The subflows that are there.
    pub(super) all: Vec<Subflow>,
    pub(super) done: Vec<Result<Did, ControlError>>,
}

impl Visit<'_, '_> {
    /// Handles the requests of algorithms; `again`: also those that could not be fulfilled before.
    pub(super) fn requests(&mut self, again: bool) {
        let here = |one: &Asked| one.request.netns == self.netns && (again || one.until.is_none());
        let (here, left) = std::mem::take(&mut self.warden.asked).into_iter().partition(here);
        self.warden.asked = left;
        let here: Vec<Asked> = here;
        let now = self.now;
        for one in here.into_iter().filter(|one| one.until.is_none_or(|until| until > now)) {
            match self.judge(&one) {
                Judged::Close(subflow) => {
                    let reason = format!("it shares a bottleneck with path {}", one.request.peer);
                    self.close(*subflow, reason, Some(one.request));
                }
                Judged::Spared(subflow) => self.spare(&subflow, one.request.peer),
                Judged::Gone => {}
                // Listed, it has a cookie now, if nobody had asked for one before.
                Judged::NothingToKeep(meant) => {
                    let cookie = u64::from_ne_bytes(meant.cookie);
                    self.wait_for(Asked { request: CloseRequest { cookie, ..one.request }, ..one });
                }
            }
        }
    }

    /// Some algorithms ask again and again.
    fn spare(&mut self, subflow: &Subflow, peer: u16) {
        if is_new(&mut self.warden.spared, self.netns, subflow) {
            let least = self.warden.policy.min_paths;
            let reason = format!("it shares a bottleneck with path {peer}, and {least} paths are to stay");
            self.tell(subflow, Action::Spared, &reason);
        }
    }

    /// Of what was told that it would be closed nothing is left.
    fn judge(&self, one: &Asked) -> Judged {
        let Warden { policy, told, .. } = &*self.warden;
        let given_up = |s: &Subflow| policy.dry_run && told.contains(&(self.netns, s.cookie));
        one.request.judge(&self.all, one.kernel_name, policy.min_paths, given_up)
    }

    /// The path that was to be kept may only wait for a timeout, and some algorithms ask once.
    fn wait_for(&mut self, one: Asked) {
        let ends = |one: &Asked| (one.request.netns, one.request.local, one.request.remote);
        let waits = |other: &Asked| other.until.is_some() && ends(other) == ends(&one);
        if !self.warden.asked.iter().any(waits) {
            let until = Some(one.until.unwrap_or(self.now + ALIVE_TIMEOUT));
            self.warden.asked.push(Asked { until, ..one });
        }
    }

    /// Scans for paths to act on without a request.
    pub(super) fn look(&mut self, ours: &[&str]) {
        let policy = self.warden.policy;
        if policy.looks() {
            let is_ours = |s: &Subflow| ours.contains(&s.algorithm.as_str());
            let watched = self.warden.watched.entry(self.netns).or_default();
            for (subflow, finding) in watched.look(self.now, &self.all, is_ours, &policy) {
                self.found(subflow, &finding);
            }
        }
        self.warden.memory.resting.forget(self.netns, &self.all);
        if let Some(base) = policy.tries_again() {
            let seen = Seen { netns: self.netns, all: &self.all, topology: topology() };
            let due = self.warden.memory.resting.due(self.now, base, &seen);
            self.try_again(due);
        }
    }

    fn found(&mut self, subflow: Subflow, finding: &Finding) {
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
        if self.warden.policy.dry_run {
            return self.tell_once(subflow, Action::WouldSuppress, reason);
        }
        match debts::back_up(&mut self.warden.journal, subflow) {
            Ok(true) => {
                self.is_backup(subflow);
                self.warden.memory.resting.begin(self.now, self.netns, subflow, Rest::Suppressed);
                self.tell(subflow, Action::Suppressed, reason);
            }
            Ok(false) => self.close_now(subflow, reason, None),
            Err(error) => self.done.push(Err(error)),
        }
    }

    /// Closes a path, or begins to.
    fn close(&mut self, subflow: Subflow, reason: String, request: Option<CloseRequest>) {
        let drains = |one: &Draining| (one.netns, one.subflow.cookie) == (self.netns, subflow.cookie);
        if !self.survives(&subflow) || self.warden.draining.iter().any(drains) {
            return;
        }
        if self.warden.policy.dry_run {
            return self.tell_once(&subflow, Action::WouldClose, &reason);
        }
        // On what has failed nothing drains.
        let drains = !self.warden.policy.drain.is_zero() && request.is_some();
        let begun = if drains { debts::back_up(&mut self.warden.journal, &subflow) } else { Ok(false) };
        match begun {
            Ok(true) => {
                self.is_backup(&subflow);
                self.tell(&subflow, Action::Draining, &reason);
                let until = self.now + self.warden.policy.drain;
                self.warden.draining.push(Draining { netns: self.netns, subflow, reason, request, until });
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
                self.warden.memory.resting.begin(self.now, self.netns, subflow, Rest::Closed);
                match request {
                    Some(request) => self.done.push(Ok(Did::Closed(request))),
                    None => self.tell(subflow, Action::Closed, reason),
                }
            }
        }
        self.forget(subflow);
        self.all.retain(|s| s.cookie != subflow.cookie);
    }

    /// Closes what is empty, or has had its time; what has become the last path is used again.
    pub(super) fn drain(&mut self) {
        for one in std::mem::take(&mut self.warden.draining) {
            if one.netns != self.netns {
                self.warden.draining.push(one);
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
                Some(_) => self.warden.draining.push(one),
            }
        }
    }

    fn try_again(&mut self, due: Vec<Resting>) {
        let mut by_address: BTreeMap<IpAddr, Vec<Resting>> = BTreeMap::new();
        for one in due {
            if one.rest == Rest::Suppressed {
                self.release(&one.subflow, "its back-off is over");
                continue;
            }
            match guard::reopen(&one.subflow) {
                Ok(true) => self.tell(&one.subflow, Action::TriedAgain, "its back-off is over"),
                Ok(false) => {
                    by_address.entry(one.subflow.local.ip().to_canonical()).or_default().push(one);
                }
                Err(error) => self.done.push(Err(error)),
            }
        }
        by_address.into_iter().for_each(|(address, due)| self.renew(address, due));
    }

    /// An endpoint is made anew once for all connections: each of them joins by it.
    fn renew(&mut self, address: IpAddr, due: Vec<Resting>) {
        let reason = match debts::renew(&mut self.warden.journal, address, &due, &self.all) {
            Ok(Reopened::Asked) => {
                let with = self.warden.memory.resting.with(self.now, self.netns, address);
                let reason = "the back-off of a path from its address is over";
                due.iter()
                    .for_each(|one| self.tell(&one.subflow, Action::TriedAgain, "its back-off is over"));
                return with.iter().for_each(|one| self.tell(&one.subflow, Action::TriedAgain, reason));
            }
            Ok(Reopened::NoEndpoint) => "the kernel manages its paths and has no endpoint of this address",
            Ok(Reopened::InUse) => "the kernel would close the other subflows from this address",
            Err(error) => return self.done.push(Err(error)),
        };
        for one in due {
            self.tell_once(&one.subflow, Action::NotTriedAgain, reason);
            self.warden.memory.resting.not_tried(self.now, one);
        }
    }

    /// Lets data on a subflow again.
    fn release(&mut self, subflow: &Subflow, reason: &str) {
        match debts::release(&mut self.warden.journal, subflow) {
            Ok(true) => self.tell(subflow, Action::Released, reason),
            Ok(false) => {}
            Err(error) => self.done.push(Err(error)),
        }
    }

    /// There is nothing to be taken back of it.
    fn forget(&mut self, subflow: &Subflow) {
        if let Err(error) = debts::forget(&mut self.warden.journal, subflow) {
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
        let told = &self.warden.told;
        let dry_run = self.warden.policy.dry_run;
        survives(subflow, &self.all, |s| dry_run && told.contains(&(self.netns, s.cookie)))
    }

    fn tell(&mut self, subflow: &Subflow, action: Action, reason: &str) {
        self.done.push(Ok(Did::Deed(Deed::to(subflow, self.netns, action, reason))));
    }

    fn tell_once(&mut self, subflow: &Subflow, action: Action, reason: &str) {
        if is_new(&mut self.warden.told, self.netns, subflow) {
            self.tell(subflow, action, reason);
        }
    }
}

/// True if the subflow exists and its connection continues without it and without those that are `given_up`.
pub(super) fn survives(subflow: &Subflow, all: &[Subflow], given_up: impl Fn(&Subflow) -> bool) -> bool {
    let token = |s: &Subflow| s.mptcp.map(|mptcp| mptcp.token_local);
    let is_other = |s: &Subflow| s.cookie != subflow.cookie && token(s) == token(subflow);
    all.iter().any(|s| s.cookie == subflow.cookie)
        && all.iter().any(|s| is_other(s) && is_alive(s) && !given_up(s))
}
