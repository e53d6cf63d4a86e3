//! One visit of a network namespace: decisions on requests, on draining subflows and on what a scan finds.

use super::backoff::{Backoff, BackoffState, Seen};
use super::health::{Finding, is_alive, is_due};
use super::judge::{Judged, judge};
use super::{Draining, Machine, PendingRequest};
use crate::action::{Action, GuardEvent, PathAction};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;
use vmcc_bpf::close_requests::CloseRequest;
use vmcc_system::diag::{Mptcp, Subflow};

/// Timeout while no other path is alive.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Operation in the namespace of a visit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    /// Close the socket.
    Close(Box<Subflow>),
    /// Set or clear the backup flag.
    SetBackup(Box<Subflow>, bool),
    /// Open a subflow between the addresses of one that was closed.
    Reopen(Box<Subflow>),
    /// Remove and add the endpoint of this address, so that the kernel opens subflows from it; the subflow stands for all that were
    /// closed.
    Renew(IpAddr, Box<Subflow>),
}

/// Outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Performed; of [`Command::Reopen`] and [`Command::Renew`]: requested.
    Done,
    /// The socket of [`Command::Close`] has ended.
    NotFound,
    /// The kernel manages the connection's paths, so [`Command::SetBackup`] and [`Command::Reopen`] are not possible.
    KernelManaged,
    /// [`Command::Renew`]: there is no endpoint of this address.
    NoEndpoint,
    /// [`Command::Renew`]: other subflows use the endpoint, and would be closed.
    EndpointInUse,
    /// The kernel refuses.
    Failed,
}

/// Output of a visit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Output {
    /// To be performed now; [`Visit::outcome`] expects the result.
    Perform(Command),
    /// To be reported.
    Report(GuardEvent),
}

/// A subflow to be closed, and the cause.
#[derive(Debug, Clone)]
struct Close {
    subflow: Box<Subflow>,
    reason: String,
    request: Option<CloseRequest>,
}

/// Decision that is due.
enum Step {
    Request(Box<PendingRequest>),
    /// Examine the draining subflows.
    Drains,
    Drain(Draining),
    /// Scan for paths without a request.
    Scan,
    Act(Box<Subflow>, Finding),
    Close(Close),
    /// Try the paths again whose back-off is over.
    Retries,
    Retry(Box<Backoff>),
    /// Renew the endpoints of closed paths that the kernel manages.
    Renewals,
}

/// Command that is being performed, with what its outcome decides on.
enum Running {
    Close(Close),
    /// Made a backup, to be closed when it has drained.
    Drain(Close),
    Suppress(Box<Subflow>, String),
    Release(Box<Subflow>, String),
    Reopen(Box<Backoff>),
    Renew(IpAddr, Vec<Backoff>),
}

/// Visit of a network namespace.
pub(crate) struct Visit<'m> {
    machine: &'m mut Machine,
    now: Duration,
    netns: u32,
    /// The subflows that there are; every command that is performed updates them.
    all: Vec<Subflow>,
    topology: Option<u64>,
    steps: VecDeque<Step>,
    running: Option<Running>,
    events: VecDeque<GuardEvent>,
    /// Closed paths that only their address's endpoint can open.
    renewals: BTreeMap<IpAddr, Vec<Backoff>>,
}

impl<'m> Visit<'m> {
    pub(super) fn begin(
        machine: &'m mut Machine,
        now: Duration,
        netns: u32,
        all: Vec<Subflow>,
        topology: Option<u64>,
    ) -> Self {
        let requests = machine.take_requests(netns).into_iter().map(|one| Step::Request(Box::new(one)));
        let steps = requests.chain([Step::Drains]).chain(machine.scanning.then_some(Step::Scan)).collect();
        let (running, events, renewals) = (None, VecDeque::new(), BTreeMap::new());
        Self { machine, now, netns, all, topology, steps, running, events, renewals }
    }

    /// The next output, or `None` at the end. A command without an outcome counts as failed.
    pub(crate) fn poll(&mut self) -> Option<Output> {
        if self.running.is_some() {
            self.outcome(Outcome::Failed);
        }
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(Output::Report(event));
            }
            let step = self.steps.pop_front()?;
            if let Some((running, command)) = self.decide(step) {
                self.running = Some(running);
                return Some(Output::Perform(command));
            }
        }
    }

    /// The subflows that there are, as far as known.
    pub(crate) fn subflows(&self) -> &[Subflow] {
        &self.all
    }

    /// Takes the outcome of the command that [`Self::poll`] returned last.
    pub(crate) fn outcome(&mut self, outcome: Outcome) {
        match self.running.take() {
            None => {}
            Some(Running::Close(close)) => self.closed(close, outcome),
            Some(Running::Drain(close)) => self.drains(close, outcome),
            Some(Running::Suppress(subflow, reason)) => self.suppressed(subflow, reason, outcome),
            Some(Running::Release(subflow, reason)) if outcome == Outcome::Done => {
                self.report(&subflow, Action::Released, &reason);
            }
            Some(Running::Release(..)) => {}
            Some(Running::Reopen(one)) => self.reopened(*one, outcome),
            Some(Running::Renew(address, due)) => self.renewed(address, due, outcome),
        }
    }

    fn decide(&mut self, step: Step) -> Option<(Running, Command)> {
        match step {
            Step::Request(one) => self.request(*one),
            Step::Drains => {
                let here = self.machine.take_draining(self.netns);
                here.into_iter().rev().for_each(|one| self.steps.push_front(Step::Drain(one)));
                None
            }
            Step::Drain(one) => self.drain(one),
            Step::Scan => {
                self.scan();
                None
            }
            Step::Act(subflow, finding) => self.act_on(subflow, &finding),
            Step::Close(close) => Some(perform_close(close)),
            Step::Retries => {
                self.retries();
                None
            }
            Step::Retry(one) => Some(Self::retry(one)),
            Step::Renewals => self.renewal(),
        }
    }

    /// Decides on a request of an algorithm.
    fn request(&mut self, one: PendingRequest) -> Option<(Running, Command)> {
        if one.until.is_some_and(|until| until <= self.now) {
            self.machine.counts.nothing_to_keep += 1;
            return None;
        }
        let judged =
            judge(&one.request, &self.all, &one.kernel_name, self.machine.policy.min_paths, |subflow| {
                self.is_given_up(subflow)
            });
        match judged {
            Judged::Close(subflow) => {
                let reason = format!("it shares a bottleneck with path {}", one.request.peer);
                return self.close(Close { subflow, reason, request: Some(one.request) });
            }
            Judged::Retain(subflow) => self.retain(&subflow, one.request.peer),
            Judged::Gone => self.machine.counts.gone += 1,
            // Listed, it has a cookie now, if none had been read before.
            Judged::NothingToKeep(meant) => {
                let cookie = u64::from_ne_bytes(meant.cookie);
                self.defer(PendingRequest { request: CloseRequest { cookie, ..one.request }, ..one });
            }
        }
        None
    }

    /// True for a path that a dry run would have closed.
    fn is_given_up(&self, subflow: &Subflow) -> bool {
        self.machine.policy.dry_run && self.machine.reported.contains(self.netns, subflow)
    }

    /// Reports once that a path is retained: some algorithms repeat their request.
    fn retain(&mut self, subflow: &Subflow, peer: u16) {
        self.machine.counts.retained += 1;
        if self.machine.retained.is_first(self.netns, subflow) {
            let least = self.machine.policy.min_paths;
            let reason = format!("it shares a bottleneck with path {peer}, and {least} paths are to stay");
            self.report(subflow, Action::Retained, &reason);
        }
    }

    /// Defers a request: the path to keep may only wait for a timeout, and some algorithms request once.
    fn defer(&mut self, one: PendingRequest) {
        let ends = |one: &PendingRequest| (one.request.netns, one.request.local, one.request.remote);
        let waits = |other: &PendingRequest| other.until.is_some() && ends(other) == ends(&one);
        if !self.machine.pending.iter().any(waits) {
            let until = Some(one.until.unwrap_or(self.now + ALIVE_TIMEOUT));
            self.machine.pending.push(PendingRequest { until, ..one });
        }
    }

    /// Scans for paths to act on without a request.
    fn scan(&mut self) {
        let policy = self.machine.policy;
        if policy.scans() {
            let health = self.machine.health.entry(self.netns).or_default();
            let guarded = &self.machine.guarded;
            let is_guarded = |s: &Subflow| guarded.contains(&s.algorithm.as_str());
            let found = health.scan(self.now, &self.all, is_guarded, &policy).into_iter();
            self.steps.extend(found.map(|(subflow, finding)| Step::Act(Box::new(subflow), finding)));
        }
        self.steps.push_back(Step::Retries);
    }

    /// Acts on a finding of a scan.
    fn act_on(&mut self, subflow: Box<Subflow>, finding: &Finding) -> Option<(Running, Command)> {
        let reason = finding.reason();
        match finding {
            Finding::Failed { .. } => self.close(Close { subflow, reason, request: None }),
            Finding::Useless { .. } => self.suppress(subflow, reason),
        }
    }

    fn suppress(&mut self, subflow: Box<Subflow>, reason: String) -> Option<(Running, Command)> {
        if !self.survives(&subflow) {
            return None;
        }
        if self.machine.policy.dry_run {
            self.report_once(&subflow, Action::WouldSuppress, &reason);
            return None;
        }
        let command = Command::SetBackup(subflow.clone(), true);
        Some((Running::Suppress(subflow, reason), command))
    }

    fn suppressed(&mut self, subflow: Box<Subflow>, reason: String, outcome: Outcome) {
        match outcome {
            Outcome::Done => {
                self.is_backup(&subflow);
                self.machine.backoffs.begin(self.now, self.netns, &subflow, BackoffState::Suppressed);
                self.report(&subflow, Action::Suppressed, &reason);
            }
            Outcome::KernelManaged => {
                self.steps.push_front(Step::Close(Close { subflow, reason, request: None }));
            }
            _ => {}
        }
    }

    /// Closes a path, or begins to drain it.
    fn close(&mut self, close: Close) -> Option<(Running, Command)> {
        let Close { subflow, reason, request } = &close;
        if !self.survives(subflow) {
            self.machine.counts.nothing_to_keep += u64::from(request.is_some());
            return None;
        }
        let same = |one: &Draining| (one.netns, one.subflow.cookie) == (self.netns, subflow.cookie);
        if self.machine.draining.iter().any(same) {
            return None;
        }
        if self.machine.policy.dry_run {
            self.report_once(subflow, Action::WouldClose, reason);
            return None;
        }
        // On what has failed nothing drains.
        if self.machine.policy.drain.is_zero() || request.is_none() {
            return Some(perform_close(close));
        }
        let command = Command::SetBackup(subflow.clone(), true);
        Some((Running::Drain(close), command))
    }

    fn drains(&mut self, close: Close, outcome: Outcome) {
        match outcome {
            Outcome::Done => {
                let Close { subflow, reason, request } = close;
                self.is_backup(&subflow);
                self.report(&subflow, Action::Draining, &reason);
                let until = self.now + self.machine.policy.drain;
                let netns = self.netns;
                self.machine.draining.push(Draining { netns, subflow, reason, request, until });
            }
            Outcome::KernelManaged => self.steps.push_front(Step::Close(close)),
            _ => self.machine.counts.failed += u64::from(close.request.is_some()),
        }
    }

    fn closed(&mut self, close: Close, outcome: Outcome) {
        let Close { subflow, reason, request } = close;
        let requested = u64::from(request.is_some());
        match outcome {
            Outcome::Done => {
                self.machine.counts.closed += requested;
                self.machine.backoffs.begin(self.now, self.netns, &subflow, BackoffState::Closed);
                match request {
                    Some(request) => self.events.push_back(GuardEvent::Closed(request)),
                    None => self.report(&subflow, Action::Closed, &reason),
                }
            }
            Outcome::NotFound => self.machine.counts.gone += requested,
            _ => {
                self.machine.counts.failed += requested;
                return;
            }
        }
        self.all.retain(|s| s.cookie != subflow.cookie);
    }

    /// Closes a subflow that is empty, or has had its time; one that has become the last path is used again.
    fn drain(&mut self, one: Draining) -> Option<(Running, Command)> {
        let requested = u64::from(one.request.is_some());
        let Some(subflow) = self.all.iter().find(|s| s.cookie == one.subflow.cookie).cloned().map(Box::new)
        else {
            // It has ended by itself.
            self.machine.counts.gone += requested;
            return None;
        };
        if !self.survives(&subflow) {
            self.machine.counts.nothing_to_keep += requested;
            return Some(perform_release(subflow, "no other path is left"));
        }
        if self.now >= one.until || !is_due(&subflow) {
            return Some(perform_close(Close { subflow, reason: one.reason, request: one.request }));
        }
        self.machine.draining.push(one);
        None
    }

    /// Finds the paths whose back-off is over.
    fn retries(&mut self) {
        self.machine.backoffs.forget(self.netns, &self.all);
        let Some(base) = self.machine.policy.retry_interval() else { return };
        let seen = Seen { netns: self.netns, all: &self.all, topology: self.topology.unwrap_or_default() };
        let due = self.machine.backoffs.due(self.now, base, &seen).into_iter();
        self.steps.extend(due.map(|one| Step::Retry(Box::new(one))));
        self.steps.push_back(Step::Renewals);
    }

    fn retry(one: Box<Backoff>) -> (Running, Command) {
        let subflow = Box::new(one.subflow.clone());
        if one.state == BackoffState::Suppressed {
            return perform_release(subflow, BACKOFF_IS_OVER);
        }
        (Running::Reopen(one), Command::Reopen(subflow))
    }

    fn reopened(&mut self, one: Backoff, outcome: Outcome) {
        match outcome {
            Outcome::Done => self.report(&one.subflow, Action::TriedAgain, BACKOFF_IS_OVER),
            Outcome::KernelManaged => {
                self.renewals.entry(one.subflow.local.ip().to_canonical()).or_default().push(one);
            }
            _ => {}
        }
    }

    /// Renews the next endpoint: once for all connections, each of which joins by it.
    fn renewal(&mut self) -> Option<(Running, Command)> {
        let (address, due) = self.renewals.pop_first()?;
        self.steps.push_front(Step::Renewals);
        let subflow = Box::new(due.first()?.subflow.clone());
        Some((Running::Renew(address, due), Command::Renew(address, subflow)))
    }

    fn renewed(&mut self, address: IpAddr, due: Vec<Backoff>, outcome: Outcome) {
        let reason = match outcome {
            Outcome::Done => {
                let others = self.machine.backoffs.with(self.now, self.netns, address);
                due.iter().for_each(|one| self.report(&one.subflow, Action::TriedAgain, BACKOFF_IS_OVER));
                let reason = "the back-off of a path from its address is over";
                return others.iter().for_each(|one| self.report(&one.subflow, Action::TriedAgain, reason));
            }
            Outcome::NoEndpoint => "the kernel manages its paths and has no endpoint of this address",
            Outcome::EndpointInUse => "the kernel would close the other subflows from this address",
            _ => return,
        };
        for one in due {
            self.report_once(&one.subflow, Action::NotTriedAgain, reason);
            self.machine.backoffs.not_tried(self.now, one);
        }
    }

    fn is_backup(&mut self, subflow: &Subflow) {
        for one in self.all.iter_mut().filter(|s| s.cookie == subflow.cookie) {
            one.mptcp = one.mptcp.map(|mptcp| Mptcp { backup: true, ..mptcp });
        }
    }

    /// True if the subflow exists and its connection has another one that is alive. Paths that a dry run would have closed do not
    /// count.
    fn survives(&self, subflow: &Subflow) -> bool {
        let token = |s: &Subflow| s.mptcp.map(|mptcp| mptcp.token_local);
        let is_other = |s: &Subflow| s.cookie != subflow.cookie && token(s) == token(subflow);
        self.all.iter().any(|s| s.cookie == subflow.cookie)
            && self.all.iter().any(|s| is_other(s) && is_alive(s) && !self.is_given_up(s))
    }

    fn report(&mut self, subflow: &Subflow, action: Action, reason: &str) {
        self.events.push_back(GuardEvent::Action(PathAction::to(subflow, self.netns, action, reason)));
    }

    fn report_once(&mut self, subflow: &Subflow, action: Action, reason: &str) {
        if self.machine.reported.is_first(self.netns, subflow) {
            self.report(subflow, action, reason);
        }
    }
}

const BACKOFF_IS_OVER: &str = "its back-off is over";

fn perform_close(close: Close) -> (Running, Command) {
    let command = Command::Close(close.subflow.clone());
    (Running::Close(close), command)
}

fn perform_release(subflow: Box<Subflow>, reason: &str) -> (Running, Command) {
    let command = Command::SetBackup(subflow.clone(), false);
    (Running::Release(subflow, reason.to_owned()), command)
}
