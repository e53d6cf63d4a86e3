//! The maps of one port's queueing discipline.

use super::{CONFIG_MAP, SHARED_MAP, config};
use crate::MAX_CLASSES;
use crate::plan::Plan;
use crate::serve::error::PortError;
use crate::serve::program::RunTime;
use crate::serve::statistics::QueueCounters;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{MapCore, MapHandle, Object};
use vmcc_bpf::ControlError;
use vmcc_bpf::objects;
use vmcc_bpf::shared;
use vmcc_bpf::shared::port::Queue;

/// Programs of kernel/qdisc/qdisc.bpf.c; either uses the map that others read.
const ENQUEUE: &str = "vmcc_enqueue";
const DEQUEUE: &str = "vmcc_dequeue";

#[derive(Debug)]
pub(super) struct QueueMaps {
    config: MapHandle,
    queues: MapHandle,
}

impl QueueMaps {
    pub(super) fn of(object: &Object) -> Result<Self, PortError> {
        let take = |name: &str| {
            let map = object.maps().find(|map| map.name() == name).expect("the object defines it");
            MapHandle::try_from(&map).map_err(opening)
        };
        Ok(Self { config: take(CONFIG_MAP)?, queues: take(SHARED_MAP)? })
    }

    /// Those of the discipline that publishes its queues in `shared`.
    pub(super) fn find(shared: &MapHandle) -> Result<Option<Self>, PortError> {
        let Some(info) = program(shared, ENQUEUE)? else { return Ok(None) };
        for id in info.map_ids {
            let map = MapHandle::from_map_id(id).map_err(opening)?;
            if map.name() == CONFIG_MAP {
                return Ok(Some(Self { config: map, queues: MapHandle::try_from(shared).map_err(opening)? }));
            }
        }
        Ok(None)
    }

    /// Run times of the programs: enqueue and dequeue.
    pub(super) fn run_times(&self) -> Result<[RunTime; 2], PortError> {
        let of = |name| -> Result<RunTime, PortError> {
            let info = program(&self.queues, name)?;
            Ok(info.map_or_else(RunTime::default, |i| RunTime { ns: i.run_time_ns, calls: i.run_cnt }))
        };
        Ok([of(ENQUEUE)?, of(DEQUEUE)?])
    }

    pub(super) fn configure(&self, plan: &Plan, open: bool) -> Result<(), PortError> {
        let written = objects::replace(&self.config, CONFIG_MAP, &config::config(plan, open));
        Ok(written.map_err(|e| ControlError::kernel("configure a queueing discipline", e))?)
    }

    /// Of every class, in use or not.
    pub(super) fn counters(&self) -> Result<Vec<QueueCounters>, PortError> {
        let read = |class: usize| {
            let queue = shared::read::<Queue>(&self.queues, u32::try_from(class).unwrap_or(u32::MAX));
            let queue = queue.map_err(|e| ControlError::kernel("read the queues of a port", e))?;
            let queue = queue.unwrap_or_default();
            Ok(QueueCounters {
                backlog_bytes: queue.backlog_bytes + queue.sparse_bytes,
                backlog_packets: queue.backlog_packets + queue.sparse_packets,
                drops_full: queue.drops_full,
                drops_other: queue.drops_other,
            })
        };
        (0..MAX_CLASSES).map(read).collect()
    }
}

/// The discipline's program of this name that uses the map `shared`.
fn program(shared: &MapHandle, name: &str) -> Result<Option<ProgramInfo>, PortError> {
    let shared_id = shared.info().map_err(opening)?.info.id;
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let ours = |info: &ProgramInfo| info.name.to_string_lossy() == name && info.map_ids.contains(&shared_id);
    Ok(ProgInfoIter::with_query_opts(options).find(ours))
}

fn opening(error: libbpf_rs::Error) -> PortError {
    ControlError::kernel("open the maps of a queueing discipline", error).into()
}
