//! The agent: keeps a host as a file says until it is told to end, and then puts back what was there.
//!
//! | | |
//! |---|---|
//! | `item` | one thing that is set: reading and writing it as a text |
//! | `record` | what was there before, on disk; the lock of which there is one |
//! | `keep` | setting one thing and putting it back, so that the process may end anywhere |
//! | `wanted` | what the file means in a namespace as it is now |
//! | `namespaces`, `cgroups` | finding them |
//! | `round` | once over everything |
//! | `settling` | endpoints that are backups until subflows have joined |
//! | `readiness` | when an interface's addresses can be endpoints, and with which numbers |
//! | `contention` | what somebody else changes again and again |
//! | `wait` | until something has happened |
//! | `guarding` | the guard, beside all that |
//! | `metrics`, `taken` | figures for Prometheus |
//! | `asleep` | for how long this machine was off |
//! | `control` | asking the agent, and being told |
//! | `notify` | telling the service manager |
//! | `down` | ending an agent, and doing the rest for one that was killed |

mod asleep;
mod cgroups;
mod contention;
mod control;
mod down;
mod guarding;
mod item;
mod keep;
mod metrics;
pub(crate) mod namespaces;
mod news;
mod notify;
mod readiness;
mod record;
mod round;
mod settling;
mod taken;
mod wait;
mod wanted;

pub use control::view;
pub(crate) use control::{listen, now};
pub use down::{Undone, undo};
pub use news::News;
pub(crate) use wait::poll;

use crate::closed::Closed;
use crate::config::Config;
use crate::guard::{Action, Memory};
use crate::{Error, needs_root};
use asleep::Asleep;
use control::Control;
use guarding::Guarding;
use metrics::{Metrics, Own};
use nix::sys::signal::Signal;
use notify::notify;
use record::Record;
use round::{Memory as Rounds, Round};
use sd_notify::NotifyState;
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wait::{Waiter, Wake};

/// Interval at which events of the guard are polled.
const GUARD_NEWS: Duration = Duration::from_secs(1);

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
    /// It was told to leave everything as it is, to whoever comes next.
    HandedOver,
}

/// Keeps this host as the file says, until a signal ends that. `say` hears what is done and found.
///
/// # Errors
/// The file is not usable, another agent runs, or the host lacks what any agent needs. What only cannot be set is said, and
/// tried again.
pub fn run(path: &Path, say: &mut dyn FnMut(&News)) -> Result<Ended, Error> {
    needs_root("up --config: only root can change what a host keeps")?;
    let config = Config::load(path)?;
    // Each network namespace takes one. With fewer it goes on, and says where they do not suffice.
    vmcc_config::allow_open_files();
    let waiter = Waiter::new().map_err(Error::Wait)?;
    let record = Record::lock()?;
    let control = Control::open().map_err(Error::Socket)?;
    Agent {
        path: path.to_owned(),
        config,
        record,
        waiter,
        control,
        rounds: Rounds::default(),
        problems: BTreeSet::new(),
        warnings: BTreeSet::new(),
        guarding: None,
        guard_memory: Memory::default(),
        closed: VecDeque::new(),
        metrics: None,
        asleep: Asleep::start(),
        own: Own::default(),
    }
    .run(say)
}

struct Agent {
    path: PathBuf,
    config: Config,
    record: Record,
    waiter: Waiter,
    /// State between rounds.
    rounds: Rounds,
    /// Reported problems: values that cannot be set.
    problems: BTreeSet<String>,
    /// Warnings that were given and still hold.
    warnings: BTreeSet<String>,
    control: Control,
    guarding: Option<Guarding>,
    /// State of the last guard, while none runs.
    guard_memory: Memory,
    /// The paths that the guard closed last.
    closed: VecDeque<Closed>,
    metrics: Option<Metrics>,
    asleep: Asleep,
    own: Own,
}

impl Agent {
    fn run(mut self, say: &mut dyn FnMut(&News)) -> Result<Ended, Error> {
        self.round(say);
        self.unheeded(say);
        let ready = News::Ready { values: self.record.entries().len(), problems: self.problems.len() };
        self.tell(&[ready], say);
        notify(&[NotifyState::Ready]);
        let mut last = Instant::now();
        loop {
            notify(&[NotifyState::Watchdog]);
            let rest = self.rest(last);
            let patience = self.patience(rest);
            let wake = self
                .waiter
                .wait(&mut self.rounds.watches, self.control.as_raw_fd(), patience)
                .map_err(Error::Wait)?;
            match wake {
                Wake::Time if !self.rest(last).is_zero() => {}
                Wake::Time | Wake::Changed => {
                    self.round(say);
                    last = Instant::now();
                }
                Wake::Reload => self.reload(say),
                Wake::HandOver => return Ok(Ended::HandedOver),
                Wake::End(signal) => return Ok(self.end(signal, say)),
            }
            self.guard_news(say);
            self.show_figures();
            // Not as a method, which would borrow what it changes.
            let (path, record) = (&self.path, &self.record);
            let said = (&self.problems, &self.warnings);
            let (closed, guarding, asleep) = (&self.closed, &self.guarding, &self.asleep);
            self.control.serve(|| view_of(path, guarding.as_ref(), record, said, closed, asleep));
        }
    }

    /// Tells whoever started it, and whoever listens.
    fn tell(&mut self, news: &[News], say: &mut dyn FnMut(&News)) {
        for one in news {
            say(one);
            self.control.tell(one);
            match one {
                News::Closed { request } => self.has_closed(request.into()),
                News::Guard { deed } if deed.action == Action::Closed => self.has_closed(deed.into()),
                _ => {}
            }
        }
    }

    fn has_closed(&mut self, path: Closed) {
        self.own.paths_closed += 1;
        self.closed.truncate(MAX_CLOSED - 1);
        self.closed.push_front(path);
    }

    /// Time until the next round is due; the last was at `last`.
    fn rest(&self, last: Instant) -> Duration {
        let due = self.rounds.due().map(|at| at.saturating_duration_since(Instant::now()));
        due.into_iter().fold(self.config.interval.saturating_sub(last.elapsed()), Duration::min)
    }

    /// Longest time to wait if nothing happens.
    fn patience(&self, rest: Duration) -> Duration {
        let guard = self.guarding.is_some().then_some(GUARD_NEWS);
        let watchdog = sd_notify::watchdog_enabled().map(|most| most / 2);
        guard.into_iter().chain(watchdog).fold(rest, Duration::min)
    }

    fn round(&mut self, say: &mut dyn FnMut(&News)) {
        let mut round = Round::new(&mut self.record, &mut self.rounds);
        round.everything(&self.config);
        let (mut news, mut problems, warnings) = (round.news, round.problems, round.warnings);
        problems.extend(self.serve_metrics());
        let appeared = problems.difference(&self.problems);
        news.extend(appeared.map(|text| News::Problem { text: text.clone() }));
        let solved = self.problems.difference(&problems);
        news.extend(solved.map(|text| News::Solved { text: text.clone() }));
        self.problems = problems;
        let appeared = warnings.difference(&self.warnings);
        news.extend(appeared.map(|text| News::Warning { text: text.clone() }));
        let solved = self.warnings.difference(&warnings);
        news.extend(solved.map(|text| News::Solved { text: text.clone() }));
        self.warnings = warnings;
        self.own.rounds += 1;
        // Before anybody hears that this is ready, and asks.
        self.show_figures();
        self.tell(&news, say);
        self.guard(say);
    }

    /// Gives whoever asks for figures what is counted now.
    fn show_figures(&mut self) {
        self.own.values = self.record.entries().len() as u64;
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
        match Metrics::start(self.config.metrics?, self.asleep.times()) {
            Ok(metrics) => {
                self.metrics = Some(metrics);
                None
            }
            Err(error) => Some(format!("metrics: cannot listen at {}: {error}", self.config.metrics?)),
        }
    }

    fn guard(&mut self, say: &mut dyn FnMut(&News)) {
        let algorithms = &self.config.algorithms;
        let wanted = self.config.guard;
        let is_so = |guarding: &Guarding| wanted.is_some_and(|policy| guarding.guards(algorithms, policy));
        if self.guarding.as_ref().is_some_and(is_so) {
            return;
        }
        // The one that was there ends first: both would read one ring.
        self.end_guard(say);
        if let Some(policy) = wanted {
            let memory = std::mem::take(&mut self.guard_memory);
            self.guarding = Some(Guarding::start(&self.config.algorithms, policy, memory));
        }
    }

    fn end_guard(&mut self, say: &mut dyn FnMut(&News)) {
        if let Some(guarding) = self.guarding.take() {
            let (memory, news) = guarding.end();
            self.guard_memory = memory;
            self.tell(&news, say);
        }
    }

    fn unheeded(&mut self, say: &mut dyn FnMut(&News)) {
        let texts = self.config.unheeded.clone();
        let news: Vec<News> = texts.into_iter().map(|text| News::Unheeded { text }).collect();
        self.tell(&news, say);
    }

    fn guard_news(&mut self, say: &mut dyn FnMut(&News)) {
        let news = self.guarding.as_ref().map_or_else(Vec::new, Guarding::news);
        self.tell(&news, say);
    }

    fn reload(&mut self, say: &mut dyn FnMut(&News)) {
        // Where the clock cannot be read systemd takes it for a plain start.
        let now = NotifyState::monotonic_usec_now();
        notify(&[NotifyState::Reloading].into_iter().chain(now).collect::<Vec<_>>());
        match Config::load(&self.path) {
            Ok(config) => {
                self.config = config;
                self.own.file_refused = false;
                self.round(say);
                self.unheeded(say);
                self.tell(&[News::Reloaded], say);
            }
            Err(fault) => {
                self.own.reloads_refused += 1;
                self.own.file_refused = true;
                self.tell(&[News::ReloadRefused { text: fault.to_string() }], say);
            }
        }
        notify(&[NotifyState::Ready]);
    }

    fn end(mut self, signal: Signal, say: &mut dyn FnMut(&News)) -> Ended {
        notify(&[NotifyState::Stopping]);
        // It holds the algorithms.
        self.end_guard(say);
        let mut round = Round::new(&mut self.record, &mut self.rounds);
        round.restore();
        let (mut news, problems) = (round.news, round.problems.len());
        news.extend(round.problems.into_iter().map(|text| News::Problem { text }));
        self.tell(&news, say);
        self.record.close();
        Ended::Restored { interrupted: signal == Signal::SIGINT, problems }
    }
}

/// Status document of the agent.
fn view_of(
    path: &Path,
    guarding: Option<&Guarding>,
    record: &Record,
    (problems, warnings): (&BTreeSet<String>, &BTreeSet<String>),
    closed: &VecDeque<Closed>,
    asleep: &Asleep,
) -> Value {
    let value = |entry: &record::Entry| {
        json!({
            "place": entry.place.name,
            "what": entry.item.to_string(),
            "value": entry.ours.last(),
            "before": entry.before,
        })
    };
    json!({
        "pid": std::process::id(),
        "file": path,
        // One that could not begin, because somebody else has the algorithm, guards nothing whatever the file says.
        "guard": guarding.is_some_and(Guarding::is_on),
        "values": record.entries().iter().map(value).collect::<Vec<_>>(),
        "problems": problems,
        "warnings": warnings,
        "closed": closed,
        "off": asleep.view(),
    })
}
