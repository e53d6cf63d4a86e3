//! Agent: reconciles the host with a config file; restores the previous state on exit.
//!
//! | | |
//! |---|---|
//! | `resource` | resources that are set; reads and writes their values as text |
//! | `record` | journal on disk of the values from before; lock of the agent |
//! | `apply` | applies a desired value and rolls it back; safe against a kill at any point |
//! | `desired` | desired state of a namespace, from the configuration |
//! | `cgroups` | finding them |
//! | `reconcile` | one pass over every namespace and resource |
//! | `settling` | endpoints that are backups until subflows have joined |
//! | `readiness` | interfaces whose addresses are usable as endpoints, endpoints' numbers, times to announce them again |
//! | `usage` | connections that end with an endpoint, which is kept |
//! | `contention` | back-off for values that another program keeps changing |
//! | `event_loop` | waits for signals, changes and timeouts |
//! | `event` | events, for people and for machines |
//! | `guard_thread` | the guard, in a thread of its own |
//! | `metrics`, `steal` | Prometheus metrics |
//! | `suspend` | times for which this machine did not run |
//! | `control` | control socket: status and events |
//! | `notify` | notifications to the service manager |
//! | `down` | ends an agent; rolls back the changes of a killed one |

mod apply;
mod cgroups;
mod contention;
mod control;
mod desired;
mod down;
mod event;
mod event_loop;
mod guard_thread;
mod metrics;
mod notify;
mod readiness;
mod reconcile;
mod record;
mod resource;
mod settling;
mod steal;
mod suspend;
mod usage;

pub use control::view;
pub(crate) use control::{listen, timestamped};
pub use down::{RollbackReport, roll_back};
pub use event::Event;
pub(crate) use event_loop::poll;

use crate::closed::Closed;
use crate::config::Config;
use crate::{Error, needs_root};
use control::Control;
use event_loop::{EventLoop, Wake};
use guard_thread::GuardThread;
use metrics::{AgentStats, Metrics};
use nix::sys::signal::Signal;
use notify::notify;
use reconcile::{ReconcileState, Reconciler};
use record::Record;
use sd_notify::NotifyState;
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use suspend::SuspendMonitor;
use vmcc_guard::{Action, GuardState};

/// Interval at which events of the guard are polled.
const GUARD_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of closed paths in the status document.
const MAX_CLOSED: usize = 64;

/// Reason for which the agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was told to, and everything is as before, but for what it said.
    Restored {
        /// By SIGINT, as from a keyboard.
        interrupted: bool,
        /// Number of values that could not be restored. They stay in the journal.
        problems: usize,
    },
    /// A request to keep everything as it is, for the next agent.
    HandedOver,
}

/// Keeps this host as the file says, until a signal ends that. `say` hears what is done and found.
///
/// # Errors
/// The file is not usable, another agent runs, or the host lacks what any agent needs. What only cannot be set is said, and
/// tried again.
pub fn run(path: &Path, say: &mut dyn FnMut(&Event)) -> Result<Ended, Error> {
    needs_root("up --config: only root can change what a host keeps")?;
    let config = Config::load(path)?;
    // Each network namespace takes one. With fewer it goes on, and says where they do not suffice.
    vmcc_config::allow_open_files();
    let event_loop = EventLoop::new().map_err(Error::Wait)?;
    let record = Record::lock()?;
    let control = Control::open().map_err(Error::Socket)?;
    Agent {
        path: path.to_owned(),
        config,
        record,
        event_loop,
        control,
        reconcile_state: ReconcileState::default(),
        problems: BTreeSet::new(),
        warnings: BTreeSet::new(),
        guard_thread: None,
        guard_state: GuardState::default(),
        closed: VecDeque::new(),
        metrics: None,
        suspend: SuspendMonitor::start(),
        own: AgentStats::default(),
    }
    .run(say)
}

struct Agent {
    path: PathBuf,
    config: Config,
    record: Record,
    event_loop: EventLoop,
    /// State between rounds.
    reconcile_state: ReconcileState,
    /// Reported problems: values that cannot be set.
    problems: BTreeSet<String>,
    /// Warnings that were given and still hold.
    warnings: BTreeSet<String>,
    control: Control,
    guard_thread: Option<GuardThread>,
    /// State of the last guard, while none runs.
    guard_state: GuardState,
    /// The paths that the guard closed last.
    closed: VecDeque<Closed>,
    metrics: Option<Metrics>,
    suspend: SuspendMonitor,
    own: AgentStats,
}

impl Agent {
    fn run(mut self, say: &mut dyn FnMut(&Event)) -> Result<Ended, Error> {
        self.reconcile(say);
        self.unheeded(say);
        let ready = Event::Ready { values: self.record.len(), problems: self.problems.len() };
        self.publish(&[ready], say);
        notify(&[NotifyState::Ready]);
        let mut last = Instant::now();
        loop {
            notify(&[NotifyState::Watchdog]);
            let until_due = self.until_due(last);
            let wait_timeout = self.wait_timeout(until_due);
            let wake = self
                .event_loop
                .wait(&mut self.reconcile_state.watches, self.control.as_raw_fd(), wait_timeout)
                .map_err(Error::Wait)?;
            match wake {
                Wake::Time if !self.until_due(last).is_zero() => {}
                Wake::Time | Wake::Changed => {
                    self.reconcile(say);
                    last = Instant::now();
                }
                Wake::Reload => self.reload(say),
                Wake::HandOver => return Ok(Ended::HandedOver),
                Wake::End(signal) => return Ok(self.end(signal, say)),
            }
            self.publish_guard_events(say);
            self.update_metrics();
            // Not as a method, which would borrow what it changes.
            let (path, record) = (&self.path, &self.record);
            let said = (&self.problems, &self.warnings);
            let (closed, guard_thread, suspend) = (&self.closed, &self.guard_thread, &self.suspend);
            self.control.serve(|| view_of(path, guard_thread.as_ref(), record, said, closed, suspend));
        }
    }

    /// Passes events to `say` and to the subscribers.
    fn publish(&mut self, events: &[Event], say: &mut dyn FnMut(&Event)) {
        for one in events {
            say(one);
            self.control.publish(one);
            match one {
                Event::Closed { request } => self.record_closed(request.into()),
                Event::Guard { path_action } if path_action.action == Action::Closed => {
                    self.record_closed(path_action.into())
                }
                _ => {}
            }
        }
    }

    fn record_closed(&mut self, path: Closed) {
        self.own.paths_closed += 1;
        self.closed.truncate(MAX_CLOSED - 1);
        self.closed.push_front(path);
    }

    /// Time until the next round is due; the last was at `last`.
    fn until_due(&self, last: Instant) -> Duration {
        let due = self.reconcile_state.due().map(|at| at.saturating_duration_since(Instant::now()));
        due.into_iter().fold(self.config.interval.saturating_sub(last.elapsed()), Duration::min)
    }

    /// Longest time to wait if nothing happens.
    fn wait_timeout(&self, until_due: Duration) -> Duration {
        let guard = self.guard_thread.is_some().then_some(GUARD_POLL_INTERVAL);
        let watchdog = sd_notify::watchdog_enabled().map(|most| most / 2);
        guard.into_iter().chain(watchdog).fold(until_due, Duration::min)
    }

    fn reconcile(&mut self, say: &mut dyn FnMut(&Event)) {
        let mut reconciler = Reconciler::new(&mut self.record, &mut self.reconcile_state);
        reconciler.reconcile(&self.config);
        let (mut events, mut problems, warnings) =
            (reconciler.events, reconciler.problems, reconciler.warnings);
        problems.extend(self.serve_metrics());
        let appeared = problems.difference(&self.problems);
        events.extend(appeared.map(|text| Event::Problem { text: text.clone() }));
        let solved = self.problems.difference(&problems);
        events.extend(solved.map(|text| Event::Solved { text: text.clone() }));
        self.problems = problems;
        let appeared = warnings.difference(&self.warnings);
        events.extend(appeared.map(|text| Event::Warning { text: text.clone() }));
        let solved = self.warnings.difference(&warnings);
        events.extend(solved.map(|text| Event::Solved { text: text.clone() }));
        self.warnings = warnings;
        self.own.rounds += 1;
        // Before anybody hears that this is ready, and asks.
        self.update_metrics();
        self.publish(&events, say);
        self.guard(say);
    }

    /// Updates the agent's own metrics.
    fn update_metrics(&mut self) {
        self.own.values = self.record.len() as u64;
        self.own.problems = self.problems.len() as u64;
        if let Some(metrics) = &self.metrics {
            metrics.set(&self.own);
        }
    }

    /// Serves metrics as configured; returns the error if that fails.
    fn serve_metrics(&mut self) -> Option<String> {
        if self.metrics.as_ref().map(|metrics| metrics.at) == self.config.metrics {
            return None;
        }
        // The one that was there ends first: it may have the same port.
        self.metrics = None;
        match Metrics::start(self.config.metrics?, self.suspend.times()) {
            Ok(metrics) => {
                self.metrics = Some(metrics);
                None
            }
            Err(error) => Some(format!("metrics: cannot listen at {}: {error}", self.config.metrics?)),
        }
    }

    fn guard(&mut self, say: &mut dyn FnMut(&Event)) {
        let algorithms = &self.config.algorithms;
        let wanted = self.config.guard;
        let is_so =
            |guard_thread: &GuardThread| wanted.is_some_and(|policy| guard_thread.guards(algorithms, policy));
        if self.guard_thread.as_ref().is_some_and(is_so) {
            return;
        }
        // The one that was there ends first: both would read one ring.
        self.end_guard(say);
        if let Some(policy) = wanted {
            let state = std::mem::take(&mut self.guard_state);
            self.guard_thread = Some(GuardThread::start(&self.config.algorithms, policy, state));
        }
    }

    fn end_guard(&mut self, say: &mut dyn FnMut(&Event)) {
        if let Some(guard_thread) = self.guard_thread.take() {
            let (state, events) = guard_thread.end();
            self.guard_state = state;
            self.publish(&events, say);
        }
    }

    fn unheeded(&mut self, say: &mut dyn FnMut(&Event)) {
        let texts = self.config.unheeded.clone();
        let events: Vec<Event> = texts.into_iter().map(|text| Event::Unheeded { text }).collect();
        self.publish(&events, say);
    }

    /// Publishes the events of the guard since the last call.
    fn publish_guard_events(&mut self, say: &mut dyn FnMut(&Event)) {
        let events = self.guard_thread.as_ref().map_or_else(Vec::new, GuardThread::events);
        self.publish(&events, say);
    }

    fn reload(&mut self, say: &mut dyn FnMut(&Event)) {
        // Where the clock cannot be read systemd takes it for a plain start.
        let now = NotifyState::monotonic_usec_now();
        notify(&[NotifyState::Reloading].into_iter().chain(now).collect::<Vec<_>>());
        match Config::load(&self.path) {
            Ok(config) => {
                self.config = config;
                self.own.file_refused = false;
                self.reconcile(say);
                self.unheeded(say);
                self.publish(&[Event::Reloaded], say);
            }
            Err(fault) => {
                self.own.reloads_refused += 1;
                self.own.file_refused = true;
                self.publish(&[Event::ReloadRefused { text: fault.to_string() }], say);
            }
        }
        notify(&[NotifyState::Ready]);
    }

    fn end(mut self, signal: Signal, say: &mut dyn FnMut(&Event)) -> Ended {
        notify(&[NotifyState::Stopping]);
        // It holds the algorithms.
        self.end_guard(say);
        let mut reconciler = Reconciler::new(&mut self.record, &mut self.reconcile_state);
        reconciler.restore();
        let (mut events, problems) = (reconciler.events, reconciler.problems.len());
        events.extend(reconciler.retained);
        events.extend(reconciler.problems.into_iter().map(|text| Event::Problem { text }));
        self.publish(&events, say);
        self.record.close();
        Ended::Restored { interrupted: signal == Signal::SIGINT, problems }
    }
}

/// Values on record that an ended agent left, for `vmcc down` or the next agent. A record that cannot be read is reported by those.
pub(crate) fn left() -> Vec<Value> {
    Record::left().unwrap_or_default().iter().map(value_of).collect()
}

fn value_of(entry: &record::Entry) -> Value {
    json!({
        "place": entry.place.name,
        "what": entry.resource.to_string(),
        "value": entry.ours.last(),
        "before": entry.before,
    })
}

/// Status document of the agent.
fn view_of(
    path: &Path,
    guard_thread: Option<&GuardThread>,
    record: &Record,
    (problems, warnings): (&BTreeSet<String>, &BTreeSet<String>),
    closed: &VecDeque<Closed>,
    suspend: &SuspendMonitor,
) -> Value {
    json!({
        "pid": std::process::id(),
        "file": path,
        // One that could not begin, because somebody else has the algorithm, guards nothing whatever the file says.
        "guard": guard_thread.is_some_and(GuardThread::is_running),
        "values": record.entries().map(value_of).collect::<Vec<_>>(),
        "problems": problems,
        "warnings": warnings,
        "closed": closed,
        "off": suspend.view(),
    })
}
