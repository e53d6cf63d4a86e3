//! Backends: the interface between a port and the kinds of queueing discipline that schedule its queues.

mod bpf;
pub(crate) mod htb;
mod mark_only;

use super::device::Device;
use super::error::PortError;
use super::program::config::ClassIds;
use super::program::{Program, RunTime, Source};
use super::statistics::{QueueCounters, Removed};
use crate::Backend;
use crate::plan::Plan;

pub(crate) use bpf::Bpf;
pub(crate) use htb::Htb;
pub(crate) use mark_only::MarkOnly;

/// The queues of one port. Every method runs in the port's network namespace.
pub(crate) trait Queues: Send {
    /// Backend, as users name it.
    fn kind(&self) -> Backend;

    /// Source from which the tc program reads the queue lengths.
    fn source(&self) -> Source;

    /// Values by which it knows a class's packets.
    fn ids(&self, class: usize) -> ClassIds;

    /// Slow preparation that changes nothing on the port.
    fn prepare(&mut self, _site: &Device, _plan: &Plan, _program: &Program) -> Result<(), PortError> {
        Ok(())
    }

    /// Puts the queues on the port in place of what is there, after [`Queues::prepare`]. On an error the port is as before.
    fn install(&mut self, dev: &mut Device, plan: &Plan, program: &Program) -> Result<(), PortError>;

    /// True if [`Queues::change`] goes from one plan to the other; else the queues are replaced.
    fn can_change(&self, _old: &Plan, _new: &Plan) -> bool {
        true
    }

    /// Goes from one plan to another while packets wait. `switch` tells the tc program; it is called when the new
    /// classes exist and the old ones still do. Those that go are emptied first; the queues that are gone.
    fn change(
        &mut self,
        dev: &mut Device,
        program: &Program,
        old: &Plan,
        new: &Plan,
        switch: &mut dyn FnMut() -> Result<(), PortError>,
    ) -> Result<Vec<Removed>, PortError>;

    /// Takes the queues away when they are empty, and puts back what was there before. A port that is gone is fine.
    fn remove(&mut self, dev: &mut Device, plan: &Plan) -> Result<(), PortError>;

    /// Counters of each class, in the plan's order; behind them those of places that no class has any more, if they go on.
    fn counters(&self, dev: &mut Device, plan: &Plan) -> Result<Vec<QueueCounters>, PortError>;

    /// Difference between the kernel's state and the plan, with its consequence; `None` if there is none.
    fn differs(&self, dev: &mut Device, plan: &Plan) -> Result<Option<String>, PortError>;

    /// Run times of its enqueue and dequeue programs; `None` if the queues are the kernel's own.
    fn run_times(&self) -> Result<Option<[RunTime; 2]>, PortError> {
        Ok(None)
    }
}
