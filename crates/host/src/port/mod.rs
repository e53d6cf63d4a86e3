//! A port of a virtual switch: its rate, its service queues, and when they mark.
//!
//! | | |
//! |---|---|
//! | `plan` | what a configuration means on this port, in the kernel's units |
//! | `backend` | what schedules: HTB, or nothing of ours |
//! | `program` | the tc programs (`kernel/port.bpf.c`): classify, read the queue, mark |
//! | `budget` | ports of one VM that share its rate |
//! | `record` | who holds the port, and what was there before |
//!
//! A port is attached, changed and detached while traffic runs. Queues that go away are emptied first: their rate is
//! lifted, and they are removed when nothing waits in them.

mod backend;
mod budget;
mod error;
mod half;
mod held;
mod layout;
mod look;
#[cfg(test)]
mod marking;
mod plan;
mod program;
mod record;
mod site;

pub use error::PortError;
pub use look::{detach_orphans, forget_gone, peek};
pub use program::RunTime;

use crate::error::ControlError;
use crate::netns;
use backend::{Bpf, Htb, QueueCounters, Queues, Untouched};
use half::Found;
use held::Held;
use plan::{Plan, Rule};
use program::Program;
use record::{Content, Record};
use site::Site;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use vmcc_port::{Backend, ClassStats, PortConfig, PortStats};

/// A port that vmcc serves. Dropping it detaches; [`Port::keep`] leaves it served.
pub struct Port {
    netns: OwnedFd,
    /// `None` once it is detached or kept.
    served: Option<Held>,
}

/// What serving a port consists of.
struct Served {
    site: Mutex<Site>,
    index: i32,
    name: String,
    plan: Plan,
    program: Program,
    queues: Box<dyn Queues>,
    /// Locked; `None` when somebody only looks.
    record: Option<Record>,
}

impl Port {
    /// Serves `port` of the calling thread's network namespace.
    ///
    /// # Errors
    /// No such port, served already, a setting that cannot be had, or the kernel refuses. The port is as before.
    pub fn attach(port: &str, config: &PortConfig) -> Result<Self, PortError> {
        Self::attach_in(Path::new("/proc/thread-self/ns/net"), port, config)
    }

    /// Serves `port` of the network namespace at `netns` (`/run/netns/NAME`, `/proc/PID/ns/net`).
    ///
    /// # Errors
    /// As [`Port::attach`]; also when the namespace cannot be entered.
    pub fn attach_in(netns: &Path, port: &str, config: &PortConfig) -> Result<Self, PortError> {
        let netns = netns::open(netns)?;
        let served = netns::within(netns.as_fd(), || Held::begin(port, config))??;
        Ok(Self { netns, served: Some(served) })
    }

    /// Goes on with a port that [`Port::keep`] left, or a process that died.
    ///
    /// # Errors
    /// No such port, not served, or held by a process that is alive.
    pub fn adopt(port: &str) -> Result<Self, PortError> {
        let netns = netns::open(Path::new("/proc/thread-self/ns/net"))?;
        let served = netns::within(netns.as_fd(), || Held::adopt(port))??;
        Ok(Self { netns, served: Some(served) })
    }

    /// The port's name.
    pub fn name(&self) -> &str {
        self.served().name()
    }

    /// Changes everything to `config` while traffic runs.
    ///
    /// # Errors
    /// A setting that cannot be had (nothing has changed then), or the kernel refuses.
    pub fn reconfigure(&mut self, config: &PortConfig) -> Result<(), PortError> {
        let Self { netns, served } = self;
        let served = served.as_mut().expect("present until it is taken");
        netns::within(netns.as_fd(), || served.change(config))?
    }

    /// Counters since it was attached, and its state now. Of a port that shares its VM's budget: those of the budget.
    ///
    /// # Errors
    /// The kernel refuses; the port is gone.
    pub fn stats(&self) -> Result<PortStats, PortError> {
        match self.served() {
            Held::Own(served) => served.stats(),
            Held::Member(member) => {
                let vm = member.vm();
                netns::within(self.netns.as_fd(), || budget::stats(vm))?
            }
        }
    }

    /// What its programs took: for packets that leave, for packets that come in. Nothing for a port that shares its
    /// VM's budget, which is not where those sit.
    ///
    /// # Errors
    /// The port's network namespace cannot be entered.
    pub fn run_times(&self) -> Result<[RunTime; 2], PortError> {
        let Held::Own(served) = self.served() else { return Ok([RunTime::default(); 2]) };
        let index = served.index;
        Ok(netns::within(self.netns.as_fd(), || program::run_times(index))?)
    }

    /// Stops serving the port: what was there before is back. A port that is gone is not an error.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn detach(mut self) -> Result<PortStats, PortError> {
        let served = self.served.take().expect("present until it is taken");
        netns::within(self.netns.as_fd(), || {
            let stats = served.stats();
            served.end()?;
            stats
        })?
    }

    /// Leaves the port served when this process ends; [`Port::adopt`] goes on with it.
    pub fn keep(mut self) {
        if let Some(served) = self.served.take() {
            served.mark_kept();
        }
    }

    /// Whether an earlier process left the port on purpose ([`Port::keep`]); not one that was killed while it held it.
    pub fn is_kept(&self) -> bool {
        self.served().record().and_then(Record::read).is_some_and(|content| content.kept)
    }

    fn served(&self) -> &Held {
        self.served.as_ref().expect("present until it is taken")
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Some(served) = self.served.take() {
            // Nobody is left to tell; the record stays, and the next `adopt` finds it.
            let _ = netns::within(self.netns.as_fd(), || served.end());
        }
    }
}

/// The ports of the calling thread's network namespace that vmcc serves.
///
/// # Errors
/// The ports cannot be listed.
pub fn attached() -> Result<Vec<String>, PortError> {
    let ports = nix::net::if_::if_nameindex().map_err(|e| ControlError::kernel("list ports", e))?;
    let mut names = Vec::new();
    for port in &ports {
        let name = port.name().to_string_lossy();
        if program::is_attached(signed(port.index())) {
            // The device of a budget is no port.
            names.extend((!budget::is_bucket(&name)).then(|| name.into_owned()));
        } else if record::peek(port.index())?.is_some_and(|content| content.member.is_some()) {
            names.push(name.into_owned());
        }
    }
    Ok(names)
}

/// Loads the programs and forgets them.
pub(crate) fn try_load() -> Result<(), PortError> {
    Program::load(backend::Source::Leaf).map(drop)
}

/// Whether this kernel takes a backend.
///
/// # Errors
/// Why it does not.
pub fn usable(backend: Backend) -> Result<(), String> {
    match backend {
        Backend::Bpf => Bpf::try_load(),
        Backend::Auto | Backend::Htb => Ok(()),
    }
}

/// The kind of queues that a plan needs.
fn choose(port: &str, config: &PortConfig, plan: &Plan) -> Result<Box<dyn Queues>, PortError> {
    match config.backend {
        _ if !plan.queues => Ok(Box::new(Untouched)),
        Backend::Bpf => Ok(Box::new(Bpf::default())),
        Backend::Auto if Bpf::check(port, plan).is_ok() && Bpf::try_load().is_ok() => {
            Ok(Box::new(Bpf::default()))
        }
        Backend::Auto | Backend::Htb => Ok(Box::new(Htb)),
    }
}

fn signed(index: u32) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}

impl Served {
    fn begin(port: &str, config: &PortConfig) -> Result<Self, PortError> {
        let mut site = Site::open(port)?;
        let plan = Plan::new(port, config, site.facts)?;
        let mut queues = choose(port, config, &plan)?;
        let record = Record::lock(port, site.index)?;
        let index = signed(site.index);
        budget::check_parts(&site, config)?;
        if let Found::Whole(..) | Found::Member(_) = half::settle(&mut site, &record)? {
            return Err(PortError::AlreadyAttached { port: port.to_owned() });
        }
        site.remember_clsact()?;
        if plan.queues {
            site.remember()?;
        }
        let mut program = Program::load(queues.source())?;
        configure(port, config, &plan, queues.as_ref(), &program)?;
        // From here on there is something to undo; the record says what, should this process die.
        write(&record, port, config, queues.as_ref(), &plan, &site)?;
        let made = queues.install(&mut site, &plan, &program).and_then(|()| program.attach(port, index));
        if let Err(error) = made {
            // The first error tells more than one about undoing it. The record stays where undoing failed too.
            if undo(&mut site, index, &plan, queues.as_mut()).is_ok() {
                record.remove();
            }
            return Err(error);
        }
        Ok(Self {
            site: Mutex::new(site),
            index,
            name: port.to_owned(),
            plan,
            program,
            queues,
            record: Some(record),
        })
    }

    fn adopt(port: &str) -> Result<Self, PortError> {
        let mut site = Site::open(port)?;
        let record = Record::lock(port, site.index)?;
        match half::settle(&mut site, &record)? {
            Found::Whole(content, program) => Self::open_as(site, *content, *program, Some(record)),
            Found::Member(_) => Err(PortError::NotAttached { port: port.to_owned() }),
            Found::Nothing | Found::Undone => {
                record.remove();
                Err(PortError::NotAttached { port: port.to_owned() })
            }
        }
    }

    /// As it is, whoever holds it.
    fn look(port: &str) -> Result<Self, PortError> {
        let site = Site::open(port)?;
        let content = record::peek(site.index)?;
        let (Some(content), Some(program)) = (content, Program::find(signed(site.index))?) else {
            return Err(PortError::NotAttached { port: port.to_owned() });
        };
        Self::open_as(site, content, program, None)
    }

    /// What a record speaks of.
    fn open_as(
        mut site: Site,
        content: Content,
        program: Program,
        record: Option<Record>,
    ) -> Result<Self, PortError> {
        let port = site.name.clone();
        let index = signed(site.index);
        let plan = Plan::new(&port, &content.config, site.facts)?;
        let queues = queues_of(&content, Some(&program))?;
        site.previous = content.previous;
        site.made_clsact = content.made_clsact;
        Ok(Self { site: Mutex::new(site), index, name: port, plan, program, queues, record })
    }

    fn change(&mut self, config: &PortConfig) -> Result<(), PortError> {
        let site = self.site.get_mut().unwrap_or_else(PoisonError::into_inner);
        let plan = Plan::new(&self.name, config, site.facts)?;
        budget::check_parts(site, config)?;
        if plan.queues != self.plan.queues {
            let problem = "a port with queues of vmcc's own (a rate, or several classes) cannot become one without, nor \
                           the reverse; unmark it first";
            return Err(PortError::config(&self.name, "rate", problem));
        }
        let queues = self.queues.as_mut();
        // Built before anything changes: a setting that cannot be had is found here.
        let bytes = layout::config(&self.name, config, &plan, queues)?;
        set_cgroups(&self.name, config, &self.program)?;
        let Some(record) = &self.record else { return Ok(()) };
        let before = record.read();
        if let Some(content) = &before {
            // Should this process die in the middle, or the kernel refuse there.
            record.write(&Content { half: true, ..content.clone() })?;
        }
        let program = &self.program;
        let mut switch = || program.configure(&bytes);
        let changed = queues.change(site, &self.plan, &plan, &mut switch);
        if let (Err(PortError::Config { .. }), Some(content)) = (&changed, &before) {
            // Nothing has changed.
            record.write(content)?;
        }
        changed?;
        self.plan = plan;
        write(record, &self.name, config, self.queues.as_ref(), &self.plan, site)
    }

    fn stats(&self) -> Result<PortStats, PortError> {
        let mut site = self.site.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = self.program.counters()?;
        let state = self.program.state()?;
        let queues = self.queues.counters(&mut site, &self.plan)?;
        let classes = self.plan.classes.iter().enumerate().map(|(index, class)| {
            let counted = counters.get(index).copied().unwrap_or_default();
            let QueueCounters { backlog_bytes, backlog_packets, drops_full, drops_other } =
                queues.get(index).copied().unwrap_or_default();
            ClassStats {
                name: class.name.clone(),
                packets: counted.packets,
                bytes: counted.bytes,
                marked: counted.marked,
                not_ect: counted.not_ect,
                drops_full,
                drops_other,
                backlog_bytes,
                backlog_packets,
                max_backlog_bytes: counted.max_backlog_bytes,
                threshold_bytes: match class.rule {
                    Rule::Never => None,
                    Rule::Length(bytes) => Some(bytes),
                    Rule::Share(_) | Rule::Sojourn(_) => state.threshold(index),
                },
            }
        });
        Ok(PortStats {
            port: self.name.clone(),
            backend: self.queues.kind(),
            rate_bps: self.plan.capped.then(|| self.plan.rate.saturating_mul(8)),
            rtt_ns: self.plan.fixed_rtt().or(Some(state.rtt_ns).filter(|ns| *ns > 0)),
            rtt_samples: state.rtt_samples,
            unclassified: counters.iter().map(|class| class.unclassified).sum(),
            classes: classes.collect(),
            members: Vec::new(),
        })
    }

    fn recorded(&self) -> Option<Content> {
        self.record.as_ref()?.read()
    }

    fn site_index(&self) -> u32 {
        self.index.unsigned_abs()
    }

    /// Whoever comes next knows that it was no accident.
    fn mark_kept(&self) {
        if let (Some(record), Some(content)) = (&self.record, self.recorded()) {
            // Without it `vmcc clean` takes the port for a leftover; that is all.
            let _ = record.write(&Content { kept: true, ..content });
        }
    }

    fn end(self) -> Result<(), PortError> {
        let Self { site, index, plan, mut queues, record, .. } = self;
        let mut site = site.into_inner().unwrap_or_else(PoisonError::into_inner);
        undo(&mut site, index, &plan, queues.as_mut())?;
        if let Some(record) = record {
            record.remove();
        }
        Ok(())
    }
}

/// Brings back what was there before.
fn undo(site: &mut Site, index: i32, plan: &Plan, queues: &mut dyn Queues) -> Result<(), PortError> {
    queues.remove(site, plan)?;
    Program::detach(&site.name, index)?;
    site.restore_clsact()
}

/// The queues that a record speaks of; `program` is the one on the port, if it is there.
fn queues_of(content: &Content, program: Option<&Program>) -> Result<Box<dyn Queues>, PortError> {
    Ok(match (content.backend, program) {
        _ if !content.queues => Box::new(Untouched),
        (Backend::Bpf, Some(program)) => Box::new(Bpf::find(&content.port, program)?),
        (Backend::Bpf, None) => Box::new(Bpf::default()),
        (Backend::Auto | Backend::Htb, _) => Box::new(Htb),
    })
}

fn configure(
    port: &str,
    config: &PortConfig,
    plan: &Plan,
    queues: &dyn Queues,
    program: &Program,
) -> Result<(), PortError> {
    let bytes = layout::config(port, config, plan, queues)?;
    set_cgroups(port, config, program)?;
    program.configure(&bytes)
}

fn set_cgroups(port: &str, config: &PortConfig, program: &Program) -> Result<(), PortError> {
    for (index, class) in config.classes.iter().enumerate() {
        if let Some(path) = &class.cgroup {
            program.set_cgroup(port, index, path)?;
        }
    }
    Ok(())
}

fn write(
    record: &Record,
    port: &str,
    config: &PortConfig,
    queues: &dyn Queues,
    plan: &Plan,
    site: &Site,
) -> Result<(), PortError> {
    record.write(&Content {
        port: port.to_owned(),
        config: config.clone(),
        backend: queues.kind(),
        queues: plan.queues,
        previous: site.previous.clone(),
        made_clsact: site.made_clsact,
        kept: false,
        half: false,
        member: None,
        pid: std::process::id(),
    })
}
