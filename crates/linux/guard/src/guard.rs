//! The guard at work: reads requests, lists subflows, performs the commands of the [`Machine`] and reports.

use crate::action::GuardEvent;
use crate::journal::Journal;
use crate::machine::{Activity, Command, Machine, Outcome, Output, RequestCounts, Visit};
use crate::policy::Policy;
use crate::rollback::{self, ReportFn, listing_failed};
use crate::state::GuardState;
use crate::subflow::{self, Reopened};
use crate::topology::topology;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vmcc_bpf::close_requests::{CloseRequest, CloseRequests};
use vmcc_bpf::{ControlError, Loaded};
use vmcc_system::diag::{Diag, DiagError, Subflow};
use vmcc_system::netns;

/// Interval at which [`Guard::watch`] checks `stop`.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Readers of the requests of loaded algorithms, for one guard.
#[derive(Default)]
pub struct RequestReaders(Vec<CloseRequests>);

impl RequestReaders {
    /// Opens the requests of loaded algorithms; those that never request to close a path are passed over.
    ///
    /// # Errors
    /// The requests of one cannot be read.
    pub fn open<'a>(loaded: impl IntoIterator<Item = &'a Loaded>) -> Result<Self, ControlError> {
        let opened = loaded.into_iter().filter_map(|one| CloseRequests::open(one).transpose());
        opened.collect::<Result<_, _>>().map(Self)
    }

    fn activity(&self, say: ReportFn<'_>) -> Activity {
        let mut namespaces = Activity::new();
        for requests in &self.0 {
            match requests.activity() {
                Ok(read) => read.into_iter().for_each(|(netns, number)| {
                    let sum = namespaces.entry(netns).or_default();
                    *sum = sum.wrapping_add(number);
                }),
                Err(error) => say(Err(error)),
            }
        }
        namespaces
    }
}

/// Guard of the connections of some algorithms.
pub struct Guard {
    requests: RequestReaders,
    machine: Machine,
    journal: Journal,
    /// Origin of the machine's clock.
    began: Instant,
}

impl Guard {
    /// A guard by `policy` that continues the back-offs of an earlier one.
    pub fn new(requests: RequestReaders, policy: Policy, state: GuardState) -> Self {
        let guarded = requests.0.iter().map(CloseRequests::kernel_name).collect();
        let GuardState { began, backoffs } = state;
        let machine = Machine::new(policy, guarded, backoffs);
        Self { requests, machine, journal: Journal::default(), began }
    }

    /// Guards paths until `stop` is set, then rolls back temporary changes. Changes of killed guards are rolled back first. Calls
    /// `say` with each event and with each error: one path that cannot be closed does not end the guard.
    pub fn watch(mut self, stop: &AtomicBool, say: ReportFn<'_>) -> GuardState {
        rollback::undo_orphaned(say);
        while !stop.load(Ordering::SeqCst) {
            self.receive(STOP_POLL_INTERVAL, say);
            self.act(say);
        }
        self.end(say)
    }

    /// Waits up to `timeout` for requests.
    pub fn receive(&mut self, timeout: Duration, say: ReportFn<'_>) {
        let Ok(count @ 1..) = u32::try_from(self.requests.0.len()) else {
            return std::thread::sleep(timeout);
        };
        for requests in &self.requests.0 {
            match requests.poll(timeout / count) {
                Ok(read) => self.machine.enqueue(read, requests.kernel_name()),
                Err(error) => say(Err(error)),
            }
        }
    }

    /// Queues requests of the algorithm with this name in the kernel.
    pub fn enqueue(&mut self, requests: Vec<CloseRequest>, kernel_name: &str) {
        self.machine.enqueue(requests, kernel_name);
    }

    /// True if [`Self::act`] has paths to examine.
    pub fn is_due(&self) -> bool {
        self.machine.is_due(self.now())
    }

    /// Counts of the requests so far.
    pub fn counts(&self) -> RequestCounts {
        self.machine.counts()
    }

    /// Performs the actions that are due. A namespace is entered, and its sockets are listed, once for all of them.
    pub fn act(&mut self, say: ReportFn<'_>) {
        let now = self.now();
        if self.machine.is_scan_due(now) {
            // An endpoint that could not be added again.
            rollback::undo(&mut self.journal, rollback::is_endpoint, say);
        }
        let requests = &self.requests;
        for netns in self.machine.begin(now, || requests.activity(&mut *say)) {
            match self.visit(netns, now) {
                Ok(done) => done.into_iter().for_each(&mut *say),
                Err(error) => self.drop_namespace(netns, error, say),
            }
        }
    }

    /// Rolls back temporary changes. The next guard continues the back-offs.
    pub fn end(mut self, say: ReportFn<'_>) -> GuardState {
        rollback::undo(&mut self.journal, |_| true, say);
        let now = self.now();
        GuardState { began: self.began, backoffs: self.machine.end(now) }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Acts on the paths of a namespace; returns events and errors.
    fn visit(
        &mut self,
        netns: u32,
        now: Duration,
    ) -> Result<Vec<Result<GuardEvent, ControlError>>, ControlError> {
        let (machine, journal) = (&mut self.machine, &mut self.journal);
        let act = || {
            let mut diag = Diag::open().map_err(listing_failed)?;
            let all = diag.subflows_and_attempts().map_err(listing_failed)?;
            rollback::prune(journal, &all)?;
            let topology = machine.needs_topology().then(topology);
            Ok(perform(machine.visit(now, netns, all, topology), &mut diag, journal))
        };
        netns::within_inode(netns, || "guard paths".to_owned(), act)?
    }

    fn drop_namespace(&mut self, netns: u32, error: ControlError, say: ReportFn<'_>) {
        let dropped = self.machine.drop_namespace(netns);
        if dropped.had_request {
            say(Err(error));
        }
        for subflow in dropped.draining {
            if let Err(error) = rollback::forget_backup(&mut self.journal, &subflow) {
                say(Err(error));
            }
        }
    }
}

/// Performs the commands of a visit in the calling thread's namespace; returns events and errors.
fn perform(
    mut visit: Visit<'_>,
    diag: &mut Diag,
    journal: &mut Journal,
) -> Vec<Result<GuardEvent, ControlError>> {
    let mut done = Vec::new();
    while let Some(output) = visit.poll() {
        match output {
            Output::Report(event) => done.push(Ok(event)),
            Output::Perform(command) => {
                let outcome = execute(&command, visit.subflows(), diag, journal, &mut done);
                visit.outcome(outcome.unwrap_or_else(|error| {
                    done.push(Err(error));
                    Outcome::Failed
                }));
            }
        }
    }
    done
}

fn execute(
    command: &Command,
    all: &[Subflow],
    diag: &mut Diag,
    journal: &mut Journal,
    done: &mut Vec<Result<GuardEvent, ControlError>>,
) -> Result<Outcome, ControlError> {
    let managed = |done: bool| if done { Outcome::Done } else { Outcome::KernelManaged };
    match command {
        Command::Close(subflow) => {
            let outcome = match diag.destroy(subflow) {
                Err(DiagError::NotFound { .. }) => Outcome::NotFound,
                other => other.map(|()| Outcome::Done).map_err(listing_failed)?,
            };
            // The path is closed, whatever becomes of the journal.
            done.extend(rollback::forget_backup(journal, subflow).err().map(Err));
            Ok(outcome)
        }
        Command::SetBackup(subflow, true) => rollback::set_backup(journal, subflow).map(managed),
        Command::SetBackup(subflow, false) => rollback::clear_backup(journal, subflow).map(managed),
        Command::Reopen(subflow) => subflow::reopen(subflow).map(managed),
        Command::Renew(address, subflow) => Ok(match rollback::renew(journal, *address, subflow, all)? {
            Reopened::Requested => Outcome::Done,
            Reopened::NoEndpoint => Outcome::NoEndpoint,
            Reopened::InUse => Outcome::EndpointInUse,
        }),
    }
}
