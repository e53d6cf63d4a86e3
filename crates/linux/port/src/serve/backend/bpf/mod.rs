//! The queueing discipline in BPF (`kernel/qdisc/qdisc.bpf.c`), for Linux 6.16 with `CONFIG_NET_SCH_BPF`.
//!
//! Registering makes it known by name; putting it on a port makes an instance, which holds the programs and their
//! maps. The registration is taken back at once: the instance lives as long as the port, independent of any process, and the next
//! process finds its maps through the map that it shares with the port's marking program.

mod config;
mod maps;

use super::Queues;
use crate::Backend;
use crate::plan::Plan;
use crate::serve::device::{Device, OUR_HANDLE};
use crate::serve::error::PortError;
use crate::serve::program::config::ClassIds;
use crate::serve::program::{FLOWS_MAP, Program, RunTime, Source};
use crate::serve::statistics::{QueueCounters, Removed};
use crate::serve::wait::Waited;
use libbpf_rs::btf::{Btf, types::Struct};
use libbpf_rs::{ErrorKind, MapCore, MapType, Object, ObjectBuilder};
use maps::QueueMaps;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;
use vmcc_bpf::objects::{Log, QDISC};
use vmcc_netlink::QueueInfo;
use vmcc_units::Limit;

/// Name in `tc qdisc`; `id` of kernel/qdisc/qdisc.bpf.c.
const KIND: &str = "vmcc";

const CONFIG_MAP: &str = "qdisc_config";
const SHARED_MAP: &str = "port_queues";
/// Type name of the operations in a kernel that has them, and the first release that can.
const OPERATIONS: &str = "bpf_struct_ops_Qdisc_ops";
const FIRST_RELEASE: (u32, u32) = (6, 16);
const LOG_LINES: usize = 12;
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Timeout for queues to drain, and for another process to take its registration back, in milliseconds.
const MAX_POLLS: u32 = 2_000;

/// The BPF queueing discipline on one port.
#[derive(Debug, Default)]
pub(crate) struct Bpf {
    /// Once it is on the port; those that a dead process left are found only with its marking program.
    maps: Option<QueueMaps>,
    /// Loaded, and not on the port yet.
    object: Option<Object>,
}

impl Bpf {
    /// One that an earlier process left on the port.
    pub(crate) fn find(port: &str, program: &Program) -> Result<Self, PortError> {
        let maps = QueueMaps::find(&program.queues)?;
        let missing = || PortError::NotAttached { port: port.to_owned() };
        Ok(Self { maps: Some(maps.ok_or_else(missing)?), object: None })
    }

    /// Tests whether this kernel accepts the programs; nothing is registered. The error is the reason.
    pub(crate) fn try_load() -> Result<(), String> {
        load(None).map(drop).map_err(|missing| missing.short.to_owned())
    }

    /// Refuses what the queues cannot hold.
    pub(crate) fn check(port: &str, plan: &Plan) -> Result<(), PortError> {
        for class in &plan.classes {
            if let Limit::Packets(packets) = class.limit
                && packets.get() > config::SLOTS
            {
                let problem = format!(
                    "{} packets for class `{}`; with the `bpf` backend a queue holds at most {}",
                    packets.get(),
                    class.name,
                    config::SLOTS
                );
                let error = PortError::config(port, &class.limit_key, problem);
                return Err(error.help("give fewer, or use the `htb` backend"));
            }
        }
        Ok(())
    }

    fn maps(&self) -> &QueueMaps {
        self.maps.as_ref().expect("installed or found before it is used")
    }

    /// Registers, puts an instance on the port, and takes the registration back.
    fn place(dev: &mut Device, object: &mut Object) -> Result<(), PortError> {
        let port = dev.name.clone();
        let registering = |e: libbpf_rs::Error| PortError::Feature {
            port: port.clone(),
            feature: "register a queueing discipline in BPF".to_owned(),
            cause: e.to_string(),
            remedy: "use the `htb` backend".to_owned(),
        };
        let mut ops =
            object.maps_mut().find(|m| m.map_type() == MapType::StructOps).expect("the object defines it");
        let mut steps = 0;
        let link = loop {
            match ops.attach_struct_ops() {
                // Somebody else is between registering and taking it back.
                Err(e) if e.kind() == ErrorKind::AlreadyExists && steps < MAX_POLLS => {
                    thread::sleep(POLL_INTERVAL)
                }
                other => break other.map_err(registering)?,
            }
            steps += 1;
        };
        let placed = dev.tc.add_root(
            dev.index,
            &QueueInfo { kind: KIND.to_owned(), handle: OUR_HANDLE, ..QueueInfo::default() },
        );
        drop(link);
        placed.map_err(|e| PortError::kernel(&dev.name, "make the BPF queueing discipline its root queue", e))
    }

    fn is_in_place(dev: &mut Device) -> bool {
        dev.root().ok().flatten().is_some_and(|root| root.kind == KIND && root.handle == OUR_HANDLE)
    }
}

/// Reason that the programs do not load, and the remedy.
struct Missing {
    short: &'static str,
    cause: String,
    remedy: &'static str,
}

impl Missing {
    fn on(self, port: &str) -> PortError {
        PortError::Feature {
            port: port.to_owned(),
            feature: "schedule by the `bpf` backend".to_owned(),
            cause: self.cause,
            remedy: self.remedy.to_owned(),
        }
    }
}

/// Loads the programs on the maps that they share with the port's marking program.
fn load(port: Option<&Program>) -> Result<Object, Missing> {
    let Some(bytes) = QDISC else {
        let short = "vmcc was built by a clang too old for it";
        let remedy = "build with clang 15 or newer, or use the `htb` backend";
        return Err(Missing { short, cause: short.to_owned(), remedy });
    };
    let log = Log::start();
    let loaded = (|| {
        let mut open = ObjectBuilder::default().name("vmcc_qdisc")?.open_memory(bytes)?;
        for mut map in open.maps_mut() {
            let shared = match map.name().to_str() {
                Some(SHARED_MAP) => port.map(|port| &port.queues),
                Some(FLOWS_MAP) => port.and_then(|port| port.flows.as_ref()),
                _ => None,
            };
            if let Some(shared) = shared {
                map.reuse_fd(shared.as_fd())?;
            }
        }
        open.load()
    })();
    loaded.map_err(|e| {
        let running = nix::sys::utsname::uname();
        let release = running.as_ref().ok().and_then(|uts| uts.release().to_str()).unwrap_or_default();
        let (short, remedy) = lacks(release, known_to_kernel());
        Missing { short, cause: format!("{e}\n{}", log.tail(LOG_LINES)), remedy }
    })
}

/// True if this kernel has BPF queueing disciplines: its type information has their operations. False without type
/// information.
fn known_to_kernel() -> bool {
    Btf::from_vmlinux().is_ok_and(|btf| btf.type_by_name::<Struct<'_>>(OPERATIONS).is_some())
}

/// Reason that the programs do not load on a kernel of this release, and the remedy.
fn lacks(release: &str, known: bool) -> (&'static str, &'static str) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if known {
        ("this kernel refuses it", "use the `htb` backend, which works everywhere")
    } else if version >= FIRST_RELEASE {
        (
            "this kernel was built without CONFIG_NET_SCH_BPF",
            "this kernel was built without CONFIG_NET_SCH_BPF: boot one that has it (Debian's does from 6.18 on), or use \
             the `htb` backend, which works everywhere",
        )
    } else {
        (
            "it takes Linux 6.16 or newer with CONFIG_NET_SCH_BPF",
            "it takes Linux 6.16 or newer with CONFIG_NET_SCH_BPF; the `htb` backend works everywhere",
        )
    }
}

impl Queues for Bpf {
    fn kind(&self) -> Backend {
        Backend::Bpf
    }

    fn source(&self) -> Source {
        Source::Map
    }

    fn ids(&self, class: usize) -> ClassIds {
        config::ids(class)
    }

    fn prepare(&mut self, dev: &Device, plan: &Plan, program: &Program) -> Result<(), PortError> {
        Self::check(&dev.name, plan)?;
        let object = load(Some(program)).map_err(|missing| missing.on(&dev.name))?;
        let maps = QueueMaps::of(&object)?;
        maps.configure(plan, false)?;
        self.maps = Some(maps);
        self.object = Some(object);
        Ok(())
    }

    fn install(&mut self, dev: &mut Device, _plan: &Plan, _program: &Program) -> Result<(), PortError> {
        let mut object = self.object.take().expect("prepared");
        let placed = Self::place(dev, &mut object);
        if placed.is_err() {
            // The first error tells more than one about undoing it.
            let _ = dev.restore();
        }
        placed
    }

    fn change(
        &mut self,
        dev: &mut Device,
        _program: &Program,
        _old: &Plan,
        new: &Plan,
        switch: &mut dyn FnMut() -> Result<(), PortError>,
    ) -> Result<Vec<Removed>, PortError> {
        Self::check(&dev.name, new)?;
        // Every class always has its queue, and what waits in one that nobody uses any more leaves in its turn.
        self.maps().configure(new, false)?;
        switch().map(|()| Vec::new())
    }

    fn remove(&mut self, dev: &mut Device, plan: &Plan) -> Result<(), PortError> {
        if !Self::is_in_place(dev) {
            return dev.restore_missing();
        }
        if let Some(maps) = &self.maps {
            maps.configure(plan, true)?;
        }
        // What will not leave goes with the queues.
        let (Waited::Done | Waited::GivenUp) = dev.wait_until_empty(MAX_POLLS)?;
        dev.restore()
    }

    fn differs(&self, dev: &mut Device, _plan: &Plan) -> Result<Option<String>, PortError> {
        if Self::is_in_place(dev) { Ok(None) } else { dev.other_root().map(Some) }
    }

    fn counters(&self, _site: &mut Device, _plan: &Plan) -> Result<Vec<QueueCounters>, PortError> {
        self.maps().counters()
    }

    fn run_times(&self) -> Result<Option<[RunTime; 2]>, PortError> {
        self.maps().run_times().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_features_follow_the_kernel_release() {
        for old in ["6.1.0-50-cloud-amd64", "6.15.9", "5.99", ""] {
            assert!(lacks(old, false).0.contains("Linux 6.16 or newer"), "{old}");
        }
        for new in ["6.16.0-rc1", "6.18.44-fc-v669", "7.0", "7"] {
            let (short, remedy) = lacks(new, false);
            assert_eq!(short, "this kernel was built without CONFIG_NET_SCH_BPF", "{new}");
            assert!(!remedy.contains("6.16") && remedy.contains("`htb`"), "{new}: {remedy}");
        }
        assert!(!lacks("6.18.1", true).0.contains("CONFIG"), "it has it, and refuses for another reason");
    }
}
