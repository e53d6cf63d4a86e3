//! One port from its beginning to its end.

use super::backend::{Bpf, Htb, Queues, Removed, Untouched};
use super::counted::{Counted, Dropped};
use super::error::PortError;
use super::half::{self, Found};
use super::plan::Plan;
use super::program::{Note, Program};
use super::record::{Content, Record};
use super::site::Site;
use super::{budget, hold, layout, signed};
use std::sync::{Mutex, PoisonError};
use vmcc_port::{Backend, PortConfig, PortStats};

/// How long what waits in the old queue may take to leave, in milliseconds.
const OLD_QUEUE_STEPS: u32 = 1_000;

/// What serving a port consists of.
pub(super) struct Served {
    pub(super) site: Mutex<Site>,
    pub(super) index: i32,
    pub(super) name: String,
    pub(super) plan: Plan,
    pub(super) program: Program,
    pub(super) queues: Box<dyn Queues>,
    dropped: Dropped,
    /// A change was under way when it was looked at.
    pub(super) half: bool,
    /// Locked; `None` when somebody only looks.
    pub(super) record: Option<Record>,
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

impl Served {
    pub(super) fn begin(port: &str, config: &PortConfig) -> Result<Self, PortError> {
        let mut site = Site::open(port)?;
        let frame = site.frame()?;
        let plan = Plan::new(port, config, site.facts)?;
        let mut queues = choose(port, config, &plan)?;
        let record = Record::lock(port, site.index)?;
        let index = signed(site.index);
        if let Found::Whole(..) | Found::Member(_) = half::settle(&mut site, &record)? {
            return Err(PortError::AlreadyAttached { port: port.to_owned() });
        }
        budget::check_parts(&site, config)?;
        Untouched::check(&mut site, &plan)?;
        site.remember_clsact()?;
        if plan.queues {
            site.remember()?;
        }
        let mut program = Program::load(queues.source(), frame)?;
        configure(port, config, &plan, queues.as_ref(), &program)?;
        queues.prepare(&site, &plan, &program)?;
        // From here on there is something to undo; the record says what, should this process die.
        let dropped = Dropped::default();
        let content = content(port, config, queues.as_ref(), &plan, &site, &dropped);
        write(&record, &program, &content)?;
        let (made, undone) = exchange(&mut site, &plan, |site, held| {
            if held {
                // What waits in the old queue leaves before it goes; one that does not tell goes at once.
                let _ = site.wait_until_empty(OLD_QUEUE_STEPS);
            }
            let made = queues.install(site, &plan, &program).and_then(|()| program.attach(port, index));
            let undone = made.is_ok() || take_off(site, index, &plan, queues.as_mut()).is_ok();
            (made, undone)
        });
        if let Err(error) = made {
            // The first error tells more than one about undoing it. The record stays where undoing failed too.
            if undone {
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
            dropped,
            half: false,
            record: Some(record),
        })
    }

    pub(super) fn adopt(port: &str) -> Result<Self, PortError> {
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

    /// Undoes what is there of a port, and serves it as before.
    pub(super) fn serve_again(
        mut site: Site,
        record: Record,
        content: Content,
        program: Option<&Program>,
    ) -> Result<Self, PortError> {
        let config = content.config.clone();
        if content.queues && !site.has_our_queues()? {
            // Refused while everything is as it is.
            site.remember()?;
        }
        half::undo_recorded(&mut site, content, program)?;
        // It stays until the next takes its place: should that fail, it still says what is wanted.
        drop(record);
        Self::begin(&site.name, &config)
    }

    /// [`Served::serve_again`] from what is known of a port.
    pub(super) fn repair(port: &str) -> Result<Self, PortError> {
        let mut site = Site::open(port)?;
        let record = Record::lock(port, site.index)?;
        match half::peek(&mut site)? {
            (Some(content), program) => Self::serve_again(site, record, content, program.as_ref()),
            (None, _) => Err(PortError::NotAttached { port: port.to_owned() }),
        }
    }

    /// As it is, whoever holds it.
    pub(super) fn look(port: &str) -> Result<Self, PortError> {
        let mut site = Site::open(port)?;
        let (Some(content), Some(program)) = half::peek(&mut site)? else {
            return Err(PortError::NotAttached { port: port.to_owned() });
        };
        Self::open_as(site, content, program, None)
    }

    /// What a record speaks of.
    pub(super) fn open_as(
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
        let (dropped, half) = (content.dropped, content.half);
        Ok(Self { site: Mutex::new(site), index, name: port, plan, program, queues, dropped, half, record })
    }

    /// How many packets were dropped with classes that are gone.
    pub(super) fn change(&mut self, config: &PortConfig) -> Result<u64, PortError> {
        let site = self.site.get_mut().unwrap_or_else(PoisonError::into_inner);
        let plan = Plan::new(&self.name, config, site.facts)?;
        budget::check_parts(site, config)?;
        if plan.queues != self.plan.queues {
            return Err(PortError::OtherQueues { port: self.name.clone(), queues: self.plan.queues });
        }
        Untouched::check(site, &plan)?;
        let queues = self.queues.as_mut();
        // Built before anything changes: a setting that cannot be had is found here.
        let bytes = layout::config(&self.name, config, &plan, queues)?;
        set_cgroups(&self.name, config, &self.program)?;
        let Some(record) = &self.record else { return Ok(0) };
        let before = known(record, &self.program);
        if let Some(content) = &before {
            // Should this process die in the middle, or the kernel refuse there.
            write(record, &self.program, &Content { half: true, ..content.clone() })?;
        }
        let program = &self.program;
        let mut switch = || program.configure(&bytes);
        let changed = queues.change(site, &self.plan, &plan, &mut switch);
        if let (Err(PortError::Config { .. }), Some(content)) = (&changed, &before) {
            // Nothing has changed.
            write(record, &self.program, content)?;
        }
        let removed = changed?;
        self.plan = plan;
        self.dropped.add(&removed);
        let content = content(&self.name, config, self.queues.as_ref(), &self.plan, site, &self.dropped);
        write(record, &self.program, &content)?;
        Ok(removed.iter().map(|Removed { counters, .. }| counters.backlog_packets).sum())
    }

    pub(super) fn stats(&self) -> Result<PortStats, PortError> {
        let differences = self.differences()?;
        let mut site = self.site.lock().unwrap_or_else(PoisonError::into_inner);
        // What is set says nothing where it is not there.
        let in_place = !self.plan.queues || site.has_our_queues()?;
        let counted = Counted {
            passed: self.program.counters()?,
            queues: self.queues.counters(&mut site, &self.plan)?,
            state: self.program.state()?,
        };
        let classes = counted.classes(&self.plan, &self.dropped);
        Ok(PortStats {
            port: self.name.clone(),
            backend: if in_place { self.queues.kind() } else { Backend::Auto },
            rate_bps: (self.plan.capped && in_place).then(|| self.plan.rate.saturating_mul(8)),
            rtt_ns: classes.iter().filter_map(|class| class.rtt_ns).min(),
            rtt_samples: counted.state.rtt_samples.iter().sum(),
            unclassified: counted.passed.iter().map(|class| class.unclassified).sum(),
            removed: counted.removed(&self.plan, &self.dropped),
            classes,
            members: Vec::new(),
            differences,
        })
    }

    pub(super) fn recorded(&self) -> Option<Content> {
        known(self.record.as_ref()?, &self.program)
    }

    pub(super) fn site_index(&self) -> u32 {
        self.index.unsigned_abs()
    }

    /// Whoever comes next knows that the port was left served on purpose.
    pub(super) fn mark_kept(&self) {
        if let (Some(record), Some(content)) = (&self.record, self.recorded()) {
            // Without it `vmcc clean` takes the port for a leftover; that is all.
            let _ = write(record, &self.program, &Content { kept: true, ..content });
        }
    }

    pub(super) fn end(self) -> Result<(), PortError> {
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
pub(super) fn undo(
    site: &mut Site,
    index: i32,
    plan: &Plan,
    queues: &mut dyn Queues,
) -> Result<(), PortError> {
    exchange(site, plan, |site, _| take_off(site, index, plan, queues))
}

/// Runs what makes the kernel take the port's queue out of use, while packets wait if that is possible.
fn exchange<T>(site: &mut Site, plan: &Plan, action: impl FnOnce(&mut Site, bool) -> T) -> T {
    if plan.queues || site.made_clsact { hold::during(site, None, action) } else { action(site, false) }
}

/// [`undo`] while the port's packets wait.
fn take_off(site: &mut Site, index: i32, plan: &Plan, queues: &mut dyn Queues) -> Result<(), PortError> {
    queues.remove(site, plan)?;
    Program::detach(&site.name, index)?;
    site.restore_clsact()
}

/// The queues that a record speaks of; `program` is the one on the port, if it is there.
pub(super) fn queues_of(content: &Content, program: Option<&Program>) -> Result<Box<dyn Queues>, PortError> {
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

/// What is on record about a port that is held.
fn known(record: &Record, program: &Program) -> Option<Content> {
    program.note.as_ref().and_then(Note::read).or_else(|| record.read())
}

/// Writes the record, and what the port says itself.
fn write(record: &Record, program: &Program, content: &Content) -> Result<(), PortError> {
    record.write(content)?;
    program.note.as_ref().map_or(Ok(()), |note| note.write(content))
}

fn content(
    port: &str,
    config: &PortConfig,
    queues: &dyn Queues,
    plan: &Plan,
    site: &Site,
    dropped: &Dropped,
) -> Content {
    Content {
        port: port.to_owned(),
        config: config.clone(),
        backend: queues.kind(),
        queues: plan.queues,
        previous: site.previous.clone(),
        made_clsact: site.made_clsact,
        kept: false,
        half: false,
        member: None,
        dropped: dropped.clone(),
        pid: std::process::id(),
    }
}
