//! The tc programs of a port (`kernel/port/port.bpf.c`) and their maps.

pub(crate) mod config;
#[cfg(test)]
mod packets;
mod record_map;

pub(crate) use record_map::RecordMap;

use super::error::PortError;
use super::frame::Frame;
use crate::MAX_CLASSES;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{
    ErrorKind, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, TC_EGRESS, TC_INGRESS, TcAttachPoint,
    TcHook, TcHookBuilder,
};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use vmcc_bpf::ControlError;
use vmcc_bpf::objects::{self, Log, PORT};
use vmcc_bpf::room;
use vmcc_bpf::shared::port::{
    Config, Counters, PORT_SOURCE_LEAF, PORT_SOURCE_MAP, PORT_SOURCE_ROOT, Queue, Settings, State,
};
use vmcc_bpf::shared::{self, FIRST};
use vmcc_system::os_error;
use zerocopy::{FromBytes, IntoBytes};

/// Priority and handle of our filter among a port's filters; they identify it and are unlikely to be anyone else's.
const PRIORITY: u32 = 0xc0da;
const HANDLE: u32 = 1;
const OUT_PROGRAM: &str = "vmcc_port_out";
const IN_PROGRAM: &str = "vmcc_port_in";
/// Map of the flows of a port's classes.
pub(crate) const FLOWS_MAP: &str = "port_flow_rates";
const LOG_LINES: usize = 12;

/// Source from which the tc program reads the length of a class's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Source {
    /// The port's root queue.
    Root = PORT_SOURCE_ROOT,
    /// A queue per class, found by its handle.
    Leaf = PORT_SOURCE_LEAF,
    /// The map `port_queues`, written by the queueing discipline.
    Map = PORT_SOURCE_MAP,
}

/// The maps of one port's programs. They live as long as the filters or this.
pub(crate) struct Program {
    /// Holds a map that holds the configuration.
    configs: MapHandle,
    state: MapHandle,
    counts: MapHandle,
    cgroups: MapHandle,
    /// `struct port_queue` per class, for a queueing discipline that publishes its state.
    pub(crate) queues: MapHandle,
    /// The flows of its classes; `None` in programs of early builds.
    pub(crate) flows: Option<MapHandle>,
    /// The port's record, if the program carries one.
    pub(crate) note: Option<RecordMap>,
    /// Before it is attached: what was loaded.
    object: Option<Object>,
}

impl Program {
    /// Loads the programs; nothing is attached.
    pub(crate) fn load(source: Source, frame: Frame) -> Result<Self, PortError> {
        room().map_err(|e| ControlError::kernel("load the port's program", e))?;
        let log = Log::start();
        let settings = settings(source, frame)?;
        let loaded = (|| {
            let mut open = ObjectBuilder::default().name("vmcc_port")?.open_memory(PORT)?;
            for mut map in open.maps_mut().filter(|m| m.name().to_string_lossy().ends_with(".rodata")) {
                map.set_initial_value(settings.as_bytes())?;
            }
            open.load()
        })();
        let refused =
            |e: libbpf_rs::Error| PortError::Refused { cause: e.to_string(), log: log.tail(LOG_LINES) };
        let object = loaded.map_err(refused)?;
        let out =
            object.progs().find(|program| program.name() == OUT_PROGRAM).expect("the object defines it");
        let note = RecordMap::bind(out.as_fd())?;
        let mut handles: Vec<(String, MapHandle)> = object
            .maps()
            .map(|map| Ok((map.name().to_string_lossy().into_owned(), MapHandle::try_from(&map)?)))
            .collect::<libbpf_rs::Result<_>>()
            .map_err(|e| ControlError::kernel("open the maps of a port", e))?;
        handles.push((record_map::NAME.to_owned(), note.0));
        Self::from_maps(handles, Some(object))
    }

    /// Finds the programs that are attached to the port; `None` if there are none.
    pub(crate) fn find(ifindex: i32) -> Result<Option<Self>, PortError> {
        let Some(info) = ours(ifindex, TC_EGRESS) else { return Ok(None) };
        let failed = |e| ControlError::kernel("open the maps of a port", e);
        let mut handles = Vec::new();
        for id in info.map_ids {
            let map = MapHandle::from_map_id(id).map_err(failed)?;
            handles.push((map.name().to_string_lossy().into_owned(), map));
        }
        Self::from_maps(handles, None).map(Some)
    }

    fn from_maps(mut handles: Vec<(String, MapHandle)>, object: Option<Object>) -> Result<Self, PortError> {
        let note = handles.iter().position(|(found, _)| found == record_map::NAME);
        let note = note.map(|at| RecordMap(handles.swap_remove(at).1));
        let mut take = |name: &str| {
            let at = handles.iter().position(|(found, _)| found == name);
            at.map(|at| handles.swap_remove(at).1)
                .ok_or_else(|| ControlError::kernel("open the maps of a port", format!("there is no {name}")))
        };
        let flows = take(FLOWS_MAP).ok();
        Ok(Self {
            configs: take("port_configs")?,
            state: take("port_states")?,
            counts: take("port_counts")?,
            cgroups: take("port_cgroups")?,
            queues: take("port_queues")?,
            flows,
            note,
            object,
        })
    }

    /// From now on packets that leave the port pass the program.
    pub(crate) fn attach(&mut self, port: &str, ifindex: i32) -> Result<(), PortError> {
        let Some(object) = self.object.take() else { return Ok(()) };
        // The egress hook last: a search for served ports looks there.
        for (name, direction) in [(IN_PROGRAM, TC_INGRESS), (OUT_PROGRAM, TC_EGRESS)] {
            let program = object.progs().find(|p| p.name() == name).expect("the object defines it");
            place(port, program.as_fd(), ifindex, direction)?;
        }
        Ok(())
    }

    /// Takes the programs off the port; a port that is gone is fine.
    pub(crate) fn detach(port: &str, ifindex: i32) -> Result<(), PortError> {
        for direction in [TC_EGRESS, TC_INGRESS] {
            if ours(ifindex, direction).is_none() {
                continue;
            }
            match filter_at(None, ifindex, direction).detach() {
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {}
                Err(e) if os_error(&e).is_some_and(|e| e.raw_os_error() == Some(nix::libc::ENODEV)) => {}
                Err(e) => {
                    return Err(ControlError::kernel(format!("take the program off port {port}"), e).into());
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Makes a configuration the one in use. No packet meets two of them, or half of one.
    pub(crate) fn configure(&self, config: &Config) -> Result<(), PortError> {
        let replaced = objects::replace(&self.configs, "port_config", config);
        Ok(replaced.map_err(|e| ControlError::kernel("configure a port's program", e))?)
    }

    /// Makes `path` the cgroup of a class.
    pub(crate) fn set_cgroup(&self, port: &str, class: usize, path: &Path) -> Result<(), PortError> {
        let at = format!("class[{class}].cgroup");
        let folder = crate::cgroup_folder(path, &at)
            .map_err(|error| PortError::Config { port: port.to_owned(), error: Box::new(error) })?;
        let failed = |cause: String| PortError::config(port, &at, format!("{}: {cause}", folder.display()));
        let open = File::open(&folder).map_err(|e| failed(e.to_string()))?;
        let key = u32::try_from(class).unwrap_or(u32::MAX);
        shared::write(&self.cgroups, key, &open.as_raw_fd()).map_err(|e| failed(e.to_string()))
    }

    /// True if its maps have this build's layout. Those of another build can be neither read nor configured.
    pub(crate) fn is_of_this_build(&self) -> bool {
        let config = shared::read(&self.configs, FIRST).ok().flatten().map(MapHandle::from_map_id);
        let is = |map: &MapHandle, size: usize| map.value_size() as usize == size;
        is(&self.counts, size_of::<Counters>())
            && is(&self.state, size_of::<State>())
            && is(&self.queues, size_of::<Queue>())
            && config.is_none_or(|map| map.is_ok_and(|map| is(&map, size_of::<Config>())))
    }

    /// Counters per class, over all CPUs.
    pub(crate) fn counters(&self) -> Result<Vec<Counters>, PortError> {
        let read = |class: usize| {
            let key = u32::try_from(class).unwrap_or(u32::MAX);
            let per_cpu = self.counts.lookup_percpu(key.as_bytes(), MapFlags::ANY);
            let per_cpu = per_cpu.map_err(|e| ControlError::kernel("read a port's counters", e))?;
            let per_cpu = per_cpu.unwrap_or_default();
            let each = per_cpu.iter().filter_map(|cpu| Counters::read_from_bytes(cpu).ok());
            Ok(each.fold(Counters::default(), Counters::combined))
        };
        (0..MAX_CLASSES).map(read).collect()
    }

    /// Current state of the programs.
    pub(crate) fn state(&self) -> Result<State, PortError> {
        let state = shared::read(&self.state, FIRST);
        let state = state.map_err(|e| ControlError::kernel("read a port's state", e))?;
        Ok(state.unwrap_or_default())
    }
}

fn settings(source: Source, frame: Frame) -> Result<Settings, PortError> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(|e| ControlError::kernel("count the processors", e))?;
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    // The keys of the standard library's hasher are random.
    let hash_seed = RandomState::new().hash_one(cpus) as u32;
    Ok(Settings { source: source as u32, bare: u32::from(frame == Frame::Bare), cpus, hash_seed })
}

/// Puts the program that sees what comes in at one port also on another: it measures RTTs of what leaves the first.
/// The other port may have had no place for it yet.
pub(crate) fn lend_ingress(port: &str, from: i32, to: i32) -> Result<(), PortError> {
    let failed = |e| ControlError::kernel(format!("measure RTTs at port {port}"), e);
    let id = filter_at(None, from, TC_INGRESS).query().map_err(failed)?;
    let program = libbpf_rs::Program::fd_from_id(id).map_err(failed)?;
    place(port, program.as_fd(), to, TC_INGRESS)
}

/// Puts a program on a port.
fn place(
    port: &str,
    program: BorrowedFd<'_>,
    ifindex: i32,
    direction: TcAttachPoint,
) -> Result<(), PortError> {
    let failed = |e: libbpf_rs::Error| PortError::Feature {
        port: port.to_owned(),
        feature: "attach a program to a port".to_owned(),
        cause: e.to_string(),
        remedy: "it needs CAP_NET_ADMIN and CONFIG_NET_SCH_INGRESS (clsact): modprobe sch_ingress".to_owned(),
    };
    let mut filter = filter_at(Some(program), ifindex, direction);
    // Kept when it exists: others may filter there too.
    match filter.create() {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(failed(e)),
        _ => {}
    }
    // The filter holds the program and its maps from here on.
    filter.attach().map_err(failed).map(drop)
}

/// Run time of a port's program, as far as the kernel measured it ([`vmcc_bpf::bench::Statistics`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Nanoseconds in all.
    pub ns: u64,
    /// Packets, or trains of them where the sender leaves segmentation to the device.
    pub calls: u64,
}

/// The run times of the programs for packets that leave, and for packets that come in.
pub(crate) fn run_times(ifindex: i32) -> [RunTime; 2] {
    [TC_EGRESS, TC_INGRESS].map(|direction| {
        let info = ours(ifindex, direction);
        info.map_or_else(RunTime::default, |info| RunTime { ns: info.run_time_ns, calls: info.run_cnt })
    })
}

/// True if the program for outgoing packets is on the port.
pub(crate) fn is_attached(ifindex: i32) -> bool {
    ours(ifindex, TC_EGRESS).is_some()
}

/// True if the program for incoming packets is on the port.
pub(crate) fn measures(ifindex: i32) -> bool {
    ours(ifindex, TC_INGRESS).is_some()
}

/// The program at our place on a port, if it is ours.
fn ours(ifindex: i32, direction: TcAttachPoint) -> Option<ProgramInfo> {
    let id = filter_at(None, ifindex, direction).query().ok()?;
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let info = ProgInfoIter::with_query_opts(options).find(|info| info.id == id)?;
    let name = if direction == TC_EGRESS { OUT_PROGRAM } else { IN_PROGRAM };
    (info.name.to_string_lossy() == name).then_some(info)
}

/// Our place on a port; only attaching needs the program.
fn filter_at(program: Option<BorrowedFd<'_>>, ifindex: i32, direction: TcAttachPoint) -> TcHook {
    objects::quiet();
    let stdin = std::io::stdin();
    let mut builder = TcHookBuilder::new(program.unwrap_or_else(|| stdin.as_fd()));
    builder.ifindex(ifindex).priority(PRIORITY).handle(HANDLE).replace(false);
    builder.hook(direction)
}
