//! No queues of ours: packets are marked by the queue that the port has already.

use super::Queues;
use crate::Backend;
use crate::plan::Plan;
use crate::serve::device::Device;
use crate::serve::error::PortError;
use crate::serve::program::config::ClassIds;
use crate::serve::program::{Program, Source};
use crate::serve::statistics::{QueueCounters, Removed};

/// Kernel name of the queue of a device that passes every packet on at once (veth, bridge, loopback).
const NO_QUEUE: &str = "noqueue";

/// For a port without a rate and with one class: whatever shapes it (the link itself, somebody's own queue) stays.
#[derive(Debug)]
pub(crate) struct MarkOnly;

impl MarkOnly {
    /// Refuses a rule that goes by the length of the port's own queue where there is none. A queue that is taken away
    /// later is its owner's choice: then nothing waits, and nothing is marked.
    pub(crate) fn check(dev: &mut Device, plan: &Plan) -> Result<(), PortError> {
        if !plan.needs_a_queue() {
            return Ok(());
        }
        match dev.root()? {
            Some(root) if root.kind == NO_QUEUE => Err(PortError::NoQueue { port: dev.name.clone() }),
            Some(_) if dev.picks_queues()? => Err(PortError::ManyQueues { port: dev.name.clone() }),
            Some(_) => Ok(()),
            // The kernel lists no queue of a port that was never up.
            None => Err(PortError::Down { port: dev.name.clone() }),
        }
    }
}

impl Queues for MarkOnly {
    fn kind(&self) -> Backend {
        Backend::Auto
    }

    fn source(&self) -> Source {
        Source::Root
    }

    fn ids(&self, _class: usize) -> ClassIds {
        ClassIds::default()
    }

    fn install(&mut self, _site: &mut Device, _plan: &Plan, _program: &Program) -> Result<(), PortError> {
        Ok(())
    }

    fn change(
        &mut self,
        _site: &mut Device,
        _program: &Program,
        _old: &Plan,
        _new: &Plan,
        switch: &mut dyn FnMut() -> Result<(), PortError>,
    ) -> Result<Vec<Removed>, PortError> {
        switch().map(|()| Vec::new())
    }

    fn differs(&self, dev: &mut Device, plan: &Plan) -> Result<Option<String>, PortError> {
        let none = plan.needs_a_queue() && dev.root()?.is_some_and(|root| root.kind == NO_QUEUE);
        Ok(none.then(|| "its own queue is gone (`noqueue`): nothing waits, and nothing is marked".to_owned()))
    }

    fn remove(&mut self, _site: &mut Device, _plan: &Plan) -> Result<(), PortError> {
        Ok(())
    }

    fn counters(&self, dev: &mut Device, _plan: &Plan) -> Result<Vec<QueueCounters>, PortError> {
        let root = dev.root()?.map(|queue| queue.counters).unwrap_or_default();
        Ok(vec![QueueCounters {
            backlog_bytes: root.backlog_bytes,
            backlog_packets: root.backlog_pkt,
            drops_full: root.drops,
            drops_other: 0,
        }])
    }
}
