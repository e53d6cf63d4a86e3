//! Taking queues and programs off a port, and putting others in the place of queues.

use crate::Backend;
use crate::plan::Plan;
use crate::serve::backend::{Bpf, Htb, MarkOnly, Queues};
use crate::serve::device::Device;
use crate::serve::error::PortError;
use crate::serve::program::Program;
use crate::serve::record::Content;
use crate::serve::statistics::{QueueCounters, Removed};
use crate::serve::swap;

/// Brings back what was there before.
pub(super) fn undo(
    dev: &mut Device,
    index: i32,
    plan: &Plan,
    queues: &mut dyn Queues,
) -> Result<(), PortError> {
    exchange(dev, plan, |dev, _| take_off(dev, index, plan, queues))
}

/// Runs what makes the kernel take the port's queue out of use, while packets wait if that is possible.
pub(super) fn exchange<T>(dev: &mut Device, plan: &Plan, action: impl FnOnce(&mut Device, bool) -> T) -> T {
    if plan.queues || dev.made_clsact { swap::during(dev, None, action) } else { action(dev, false) }
}

/// [`undo`] while the port's packets wait.
pub(super) fn take_off(
    dev: &mut Device,
    index: i32,
    plan: &Plan,
    queues: &mut dyn Queues,
) -> Result<(), PortError> {
    queues.remove(dev, plan)?;
    Program::detach(&dev.name, index)?;
    dev.restore_clsact()
}

/// Replaces the queues by those of another plan, while packets wait if that is possible. What waited in them leaves first; their
/// last counters.
pub(super) fn replace(
    dev: &mut Device,
    queues: &mut dyn Queues,
    [old, new]: [&Plan; 2],
    program: &Program,
    switch: &mut dyn FnMut() -> Result<(), PortError>,
) -> Result<Vec<Removed>, PortError> {
    exchange(dev, new, |dev, _| {
        let last = queues.counters(dev, old)?;
        queues.remove(dev, old)?;
        queues.install(dev, new, program)?;
        switch()?;
        let removed = last.into_iter().take(old.classes.len()).enumerate();
        let left = |counters| QueueCounters { backlog_bytes: 0, backlog_packets: 0, ..counters };
        Ok(removed.map(|(place, counters)| Removed { place, counters: left(counters) }).collect())
    })
}

/// The queues that a record speaks of; `program` is the one on the port, if it is there.
pub(super) fn queues_of(content: &Content, program: Option<&Program>) -> Result<Box<dyn Queues>, PortError> {
    Ok(match (content.backend, program) {
        _ if !content.queues => Box::new(MarkOnly),
        (Backend::Bpf, Some(program)) => Box::new(Bpf::find(&content.port, program)?),
        (Backend::Bpf, None) => Box::new(Bpf::default()),
        (Backend::Auto | Backend::Htb, _) => Box::new(Htb),
    })
}
