//! A port with queues of its own, from attaching to detaching.

pub(super) mod leftover;
mod undo;

use super::backend::{Bpf, Htb, MarkOnly, Queues};
use super::device::{Device, is_shared_device};
use super::error::PortError;
use super::program::{self, Program, RecordMap};
use super::record::{self, Content, Record};
use super::statistics::{Dropped, Readings, Removed};
use super::{signed, state};
use crate::plan::Plan;
use crate::{Backend, PortConfig, PortStats};
use leftover::Found;
use std::sync::{Mutex, PoisonError};
use undo::{exchange, queues_of, replace, take_off, undo};
use vmcc_units::BitsPerSec;

/// A process was killed in the middle of a change.
pub(super) const HALF_CHANGED: &str =
    "a process was killed while it changed it: its queues may be neither as before nor as after that";
const OTHER_BUILD: &str = "another build of vmcc serves it, whose counters this one cannot read";
const NO_INGRESS: &str = "the program that sees what comes in is gone: RTTs are not measured";
/// Drain timeout of the old queue, in milliseconds.
const MAX_OLD_QUEUE_POLLS: u32 = 1_000;

/// Parts of a served port: device, plan, program, queues and record.
pub(super) struct Attachment {
    dev: Mutex<Device>,
    pub(super) index: i32,
    pub(super) name: String,
    plan: Plan,
    program: Program,
    pub(super) queues: Box<dyn Queues>,
    dropped: Dropped,
    /// A change was under way when it was looked at.
    changing: bool,
    /// Locked; `None` when somebody only looks.
    record: Option<Record>,
}

/// The kind of queues that a plan needs.
fn choose(port: &str, config: &PortConfig, plan: &Plan) -> Result<Box<dyn Queues>, PortError> {
    match config.backend {
        _ if !plan.queues => Ok(Box::new(MarkOnly)),
        Backend::Bpf => Ok(Box::new(Bpf::default())),
        Backend::Auto if Bpf::check(port, plan).is_ok() && Bpf::try_load().is_ok() => {
            Ok(Box::new(Bpf::default()))
        }
        Backend::Auto | Backend::Htb => Ok(Box::new(Htb)),
    }
}

impl Attachment {
    /// `clear` sees to it that the port, whose record is locked, has nothing of ours.
    pub(super) fn begin(
        port: &str,
        config: &PortConfig,
        clear: impl FnOnce(&mut Device, &Record) -> Result<(), PortError>,
    ) -> Result<Self, PortError> {
        let mut dev = Device::open(port)?;
        let frame = dev.frame()?;
        let plan = dev.plan(config)?;
        let mut queues = choose(port, config, &plan)?;
        let record = Record::lock(port, dev.index)?;
        let index = signed(dev.index);
        clear(&mut dev, &record)?;
        MarkOnly::check(&mut dev, &plan)?;
        dev.remember_clsact()?;
        if plan.queues {
            dev.remember()?;
        }
        let mut program = Program::load(queues.source(), frame)?;
        configure(port, config, &plan, queues.as_ref(), &program)?;
        queues.prepare(&dev, &plan, &program)?;
        // From here on there is something to undo; the record says what, should this process die.
        let dropped = Dropped::default();
        let content = content(port, config, queues.as_ref(), &plan, &dev, &dropped);
        write(&record, &program, &content)?;
        let (made, undone) = exchange(&mut dev, &plan, |dev, held| {
            if held {
                // What waits in the old queue leaves before it goes; one that does not tell goes at once.
                let _ = dev.wait_until_empty(MAX_OLD_QUEUE_POLLS);
            }
            let made = queues.install(dev, &plan, &program).and_then(|()| program.attach(port, index));
            let undone = made.is_ok() || take_off(dev, index, &plan, queues.as_mut()).is_ok();
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
            dev: Mutex::new(dev),
            index,
            name: port.to_owned(),
            plan,
            program,
            queues,
            dropped,
            changing: false,
            record: Some(record),
        })
    }

    pub(super) fn adopt(port: &str) -> Result<Self, PortError> {
        let mut dev = Device::open(port)?;
        let record = Record::lock(port, dev.index)?;
        match leftover::settle(&mut dev, &record)? {
            Found::Whole(content, program) => Self::open_as(dev, *content, *program, Some(record)),
            Found::Member(_) => Err(PortError::NotAttached { port: port.to_owned() }),
            Found::Nothing | Found::Undone => {
                record.remove();
                Err(PortError::NotAttached { port: port.to_owned() })
            }
        }
    }

    /// Undoes what is there of a port, and serves it as before.
    pub(super) fn serve_again(
        mut dev: Device,
        record: Record,
        content: Content,
        program: Option<&Program>,
        clear: impl FnOnce(&mut Device, &Record) -> Result<(), PortError>,
    ) -> Result<Self, PortError> {
        let config = content.config.clone();
        if content.queues && !dev.has_our_queues()? {
            // Refused while everything is as it is.
            dev.remember()?;
        }
        leftover::undo_recorded(&mut dev, content, program)?;
        // It stays until the next takes its place: should that fail, it still says what is wanted.
        drop(record);
        Self::begin(&dev.name, &config, clear)
    }

    /// [`Attachment::serve_again`] from what is known of a port.
    pub(super) fn repair(port: &str) -> Result<Self, PortError> {
        let mut dev = Device::open(port)?;
        let record = Record::lock(port, dev.index)?;
        match state::peek(&mut dev)? {
            (Some(content), program) => {
                Self::serve_again(dev, record, content, program.as_ref(), leftover::clear)
            }
            (None, _) => Err(PortError::NotAttached { port: port.to_owned() }),
        }
    }

    /// The present state, with any holder.
    pub(super) fn look(port: &str) -> Result<Self, PortError> {
        let mut dev = Device::open(port)?;
        let (Some(content), Some(program)) = state::peek(&mut dev)? else {
            return Err(PortError::NotAttached { port: port.to_owned() });
        };
        Self::open_as(dev, content, program, None)
    }

    /// Opens the attachment that a record describes.
    pub(super) fn open_as(
        mut dev: Device,
        content: Content,
        program: Program,
        record: Option<Record>,
    ) -> Result<Self, PortError> {
        let port = dev.name.clone();
        let index = signed(dev.index);
        let plan = dev.plan(&content.config)?;
        let queues = queues_of(&content, Some(&program))?;
        dev.previous = content.previous;
        dev.made_clsact = content.made_clsact;
        let (dropped, changing) = (content.dropped, content.changing);
        Ok(Self { dev: Mutex::new(dev), index, name: port, plan, program, queues, dropped, changing, record })
    }

    /// Changes the configuration; returns the packets dropped with removed classes. `check` may refuse while nothing has changed.
    pub(super) fn change(
        &mut self,
        config: &PortConfig,
        check: impl FnOnce(&Device) -> Result<(), PortError>,
    ) -> Result<u64, PortError> {
        let dev = self.dev.get_mut().unwrap_or_else(PoisonError::into_inner);
        let plan = dev.plan(config)?;
        check(dev)?;
        if plan.queues != self.plan.queues {
            return Err(PortError::OtherQueues { port: self.name.clone(), queues: self.plan.queues });
        }
        MarkOnly::check(dev, &plan)?;
        let queues = self.queues.as_mut();
        // Built before anything changes: a setting that cannot be had is found here.
        let bytes = program::config::config(&self.name, config, &plan, |class| queues.ids(class))?;
        set_cgroups(&self.name, config, &self.program)?;
        let Some(record) = &self.record else { return Ok(0) };
        let before = known(record, &self.program);
        if let Some(content) = &before {
            // Should this process die in the middle, or the kernel refuse there.
            write(record, &self.program, &Content { changing: true, ..content.clone() })?;
        }
        let program = &self.program;
        let mut switch = || program.configure(&bytes);
        let changed = if queues.can_change(&self.plan, &plan) {
            queues.change(dev, program, &self.plan, &plan, &mut switch)
        } else {
            replace(dev, queues, [&self.plan, &plan], program, &mut switch)
        };
        if let (Err(PortError::Config { .. }), Some(content)) = (&changed, &before) {
            // Nothing has changed.
            write(record, &self.program, content)?;
        }
        let removed = changed?;
        self.plan = plan;
        self.dropped.add(&removed);
        let content = content(&self.name, config, self.queues.as_ref(), &self.plan, dev, &self.dropped);
        write(record, &self.program, &content)?;
        Ok(removed.iter().map(|Removed { counters, .. }| counters.backlog_packets).sum())
    }

    pub(super) fn stats(&self) -> Result<PortStats, PortError> {
        let differences = self.differences()?;
        let mut dev = self.dev.lock().unwrap_or_else(PoisonError::into_inner);
        // What is set says nothing where it is not there.
        let in_place = !self.plan.queues || dev.has_our_queues()?;
        let readings = Readings {
            passed: self.program.counters()?,
            queues: self.queues.counters(&mut dev, &self.plan)?,
            state: self.program.state()?,
        };
        let classes = readings.classes(&self.plan, &self.dropped);
        Ok(PortStats {
            port: self.name.clone(),
            backend: if in_place { self.queues.kind() } else { Backend::Auto },
            rate_bps: self.plan.cap.filter(|_| in_place).map(BitsPerSec::get),
            rtt_ns: classes.iter().filter_map(|class| class.rtt_ns).min(),
            rtt_samples: readings.state.rtt_samples.iter().sum(),
            unclassified: readings.passed.iter().map(|class| class.unclassified).sum(),
            removed: readings.removed(&self.plan, &self.dropped),
            classes,
            members: Vec::new(),
            differences,
        })
    }

    /// Differences on the port itself, as messages.
    pub(super) fn differences(&self) -> Result<Vec<String>, PortError> {
        if self.changing {
            // Somebody is at it, or was.
            let held = record::is_held(self.index())?;
            return Ok(if held { Vec::new() } else { vec![HALF_CHANGED.to_owned()] });
        }
        if !self.program.is_of_this_build() {
            return Ok(vec![OTHER_BUILD.to_owned()]);
        }
        let mut dev = self.dev.lock().unwrap_or_else(PoisonError::into_inner);
        let mut differences = Vec::from_iter(self.queues.differs(&mut dev, &self.plan)?);
        // ACKs come in at the ports of a budget, not at its device.
        let measures = self.plan.measures_rtt() && !is_shared_device(&self.name);
        if measures && !program::measures(self.index) {
            differences.push(NO_INGRESS.to_owned());
        }
        Ok(differences)
    }

    pub(super) fn recorded(&self) -> Option<Content> {
        known(self.record.as_ref()?, &self.program)
    }

    pub(super) fn index(&self) -> u32 {
        self.index.unsigned_abs()
    }

    /// Records that the port was left served on purpose.
    pub(super) fn mark_kept(&self) {
        if let (Some(record), Some(content)) = (&self.record, self.recorded()) {
            // Without it `vmcc clean` takes the port for a leftover; that is all.
            let _ = write(record, &self.program, &Content { kept: true, ..content });
        }
    }

    pub(super) fn end(self) -> Result<(), PortError> {
        let Self { dev, index, plan, mut queues, record, .. } = self;
        let mut dev = dev.into_inner().unwrap_or_else(PoisonError::into_inner);
        undo(&mut dev, index, &plan, queues.as_mut())?;
        if let Some(record) = record {
            record.remove();
        }
        Ok(())
    }
}

fn configure(
    port: &str,
    config: &PortConfig,
    plan: &Plan,
    queues: &dyn Queues,
    program: &Program,
) -> Result<(), PortError> {
    let bytes = program::config::config(port, config, plan, |class| queues.ids(class))?;
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

/// Recorded content of a port that is held.
fn known(record: &Record, program: &Program) -> Option<Content> {
    program.note.as_ref().and_then(RecordMap::read).or_else(|| record.read())
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
    dev: &Device,
    dropped: &Dropped,
) -> Content {
    Content {
        port: port.to_owned(),
        config: config.clone(),
        backend: queues.kind(),
        queues: plan.queues,
        previous: dev.previous.clone(),
        made_clsact: dev.made_clsact,
        kept: false,
        changing: false,
        member: None,
        dropped: dropped.clone(),
        pid: std::process::id(),
    }
}
