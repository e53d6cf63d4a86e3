//! A port of a virtual switch: its rate, its service queues, and when they mark.
//!
//! From the bottom to the top; a module uses those above it in this table and never those below.
//!
//! | | |
//! |---|---|
//! | `error`, `wait`, `frame`, `tcx` | what everybody uses |
//! | `device` | the port as the kernel has it: number, size, the queue that was there before |
//! | `statistics` | what classes did, from programs and queues |
//! | `record` | the state on disk: who holds the port, and what was there before |
//! | `program` | the tc programs (`kernel/port/port.bpf.c`): classify, read the queue, mark |
//! | `backend` | what schedules: a qdisc in BPF, HTB, or nothing of ours |
//! | `swap` | losing nothing while the root qdisc is exchanged |
//! | `redirect` | sending a port's packets to the device of a shared rate |
//! | `state` | what is known of a port, from the port itself and from records |
//! | `attachment` | one port with queues of its own, from attaching to detaching |
//! | `shared_rate` | ports of one VM that share its rate |
//! | `recovery` | going on, or undoing, after a process that died |
//! | `any_attachment` | either kind of port, for [`Port`] |
//! | `probe` | what serving needs of this kernel, found by trying |
//!
//! A port is attached, changed and detached while traffic runs. Queues that go away are emptied first: their rate is
//! lifted, and they are removed when nothing waits in them.

mod any_attachment;
mod attachment;
mod backend;
mod device;
mod error;
mod frame;
pub mod probe;
mod program;
mod record;
mod recovery;
mod redirect;
mod shared_rate;
mod state;
mod statistics;
mod swap;
mod tcx;
mod wait;

pub use error::PortError;
pub use program::RunTime;
pub use recovery::{detach_orphans, forget_gone};
pub use shared_rate::{remove_unused as remove_unused_budgets, unused as unused_budgets};

use crate::{Backend, PortConfig, PortStats};
use any_attachment::AnyAttachment;
use backend::Bpf;
use program::Program;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use vmcc_bpf::ControlError;
use vmcc_netlink::Links;
use vmcc_system::netns;

/// Run times of a port's programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTimes {
    /// The tc program, for packets that leave.
    pub leaving: RunTime,
    /// The tc program, for packets that come in.
    pub arriving: RunTime,
    /// The queueing discipline; `None` if it is the kernel's own.
    pub enqueue: Option<RunTime>,
    /// Some calls find nothing that may leave yet.
    pub dequeue: Option<RunTime>,
}

/// A port that vmcc serves. Dropping it detaches; [`Port::keep`] leaves it served.
pub struct Port {
    netns: OwnedFd,
    /// `None` once it is detached or kept.
    served: Option<AnyAttachment>,
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
        let served = netns::within(netns.as_fd(), || unless_gone(port, AnyAttachment::begin(port, config)))??;
        Ok(Self { netns, served: Some(served) })
    }

    /// Goes on with a port that [`Port::keep`] left, or a process that died.
    ///
    /// # Errors
    /// No such port, not served, or held by a process that is alive.
    pub fn adopt(port: &str) -> Result<Self, PortError> {
        let netns = netns::open(Path::new("/proc/thread-self/ns/net"))?;
        let served = netns::within(netns.as_fd(), || unless_gone(port, AnyAttachment::adopt(port)))??;
        Ok(Self { netns, served: Some(served) })
    }

    /// Serves a port again as it was set, after somebody else changed its queues or programs ([`PortStats::differences`]).
    /// Its counters restart.
    ///
    /// # Errors
    /// No such port, nothing says how it was served, or held by a process that is alive.
    pub fn repair(port: &str) -> Result<Self, PortError> {
        let netns = netns::open(Path::new("/proc/thread-self/ns/net"))?;
        let served = netns::within(netns.as_fd(), || unless_gone(port, AnyAttachment::repair(port)))??;
        Ok(Self { netns, served: Some(served) })
    }

    /// `config` with what it leaves to the port written out.
    ///
    /// # Errors
    /// The port is gone.
    pub fn with_defaults(&self, config: &PortConfig) -> Result<PortConfig, PortError> {
        let name = self.name();
        let facts = netns::within(self.netns.as_fd(), || device::Device::open(name).map(|dev| dev.facts))??;
        Ok(config.with_defaults(&facts))
    }

    /// The port's name.
    pub fn name(&self) -> &str {
        self.served().name()
    }

    /// Changes everything to `config` while traffic runs. Classes that are gone go when what waits in them has left, or
    /// it takes too long: how many packets were dropped then.
    ///
    /// # Errors
    /// A setting that cannot be had (nothing has changed then), or the kernel refuses.
    pub fn reconfigure(&mut self, config: &PortConfig) -> Result<u64, PortError> {
        let Self { netns, served } = self;
        let served = served.as_mut().expect("present until it is taken");
        netns::within(netns.as_fd(), || {
            let changed = served.change(config);
            unless_gone(served.name(), changed)
        })?
    }

    /// Counters since it was attached, and its state now. Of a port that shares its VM's budget: those of the budget.
    ///
    /// # Errors
    /// The kernel refuses; the port is gone.
    pub fn stats(&self) -> Result<PortStats, PortError> {
        let stats = match self.served() {
            AnyAttachment::Own(served) => served.stats(),
            AnyAttachment::Member(member) => {
                let vm = member.vm();
                netns::within(self.netns.as_fd(), || shared_rate::stats(vm))?
            }
        };
        let name = self.name();
        netns::within(self.netns.as_fd(), move || unless_gone(name, stats))?
    }

    /// Run times of its programs. Zero for a port that shares its VM's budget: those are on the shared device.
    ///
    /// # Errors
    /// The port's network namespace cannot be entered; the kernel refuses.
    pub fn run_times(&self) -> Result<RunTimes, PortError> {
        let AnyAttachment::Own(served) = self.served() else { return Ok(RunTimes::default()) };
        let index = served.index;
        let [leaving, arriving] = netns::within(self.netns.as_fd(), || program::run_times(index))?;
        let [enqueue, dequeue] = served.queues.run_times()?.map_or([None; 2], |both| both.map(Some));
        Ok(RunTimes { leaving, arriving, enqueue, dequeue })
    }

    /// Stops serving the port: what was there before is back. A port that is gone is not an error.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn detach(mut self) -> Result<PortStats, PortError> {
        let served = self.served.take().expect("present until it is taken");
        netns::within(self.netns.as_fd(), || {
            let name = served.name().to_owned();
            let stats = served.stats();
            unless_gone(&name, served.end().and(stats))
        })?
    }

    /// Leaves the port served when this process ends; [`Port::adopt`] goes on with it.
    pub fn keep(mut self) {
        if let Some(served) = self.served.take() {
            served.mark_kept();
        }
    }

    /// True if an earlier process left the port on purpose ([`Port::keep`]); false if it was killed while it held it.
    pub fn is_kept(&self) -> bool {
        self.served().recorded().is_some_and(|content| content.kept)
    }

    fn served(&self) -> &AnyAttachment {
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

/// The ports of the calling thread's network namespace that vmcc serves, or that something of its own is left on.
///
/// # Errors
/// The ports cannot be listed.
pub fn attached() -> Result<Vec<String>, PortError> {
    let ports = nix::net::if_::if_nameindex().map_err(|e| ControlError::kernel("list ports", e))?;
    let ours = state::ours()?;
    let mut names = Vec::new();
    for port in &ports {
        let name = port.name().to_string_lossy();
        // The device of a budget is no port.
        if ours.contains(&port.index()) && !device::is_shared_device(&name) {
            names.push(name.into_owned());
        }
    }
    Ok(names)
}

/// Counters and state of a served port, also of one that another process holds.
///
/// # Errors
/// No such port, not served, or the kernel refuses.
pub fn peek(port: &str) -> Result<PortStats, PortError> {
    let looked = match AnyAttachment::look(port).and_then(|held| held.stats()) {
        // Also a port whose budget is gone.
        Err(PortError::NotAttached { .. }) => recovery::damaged(port),
        Err(PortError::NoSuchPort { port: missing }) if missing != port => recovery::damaged(port),
        stats => stats,
    };
    unless_gone(port, looked)
}

/// Serving state of a port.
#[derive(Debug, Clone, PartialEq)]
pub enum Serving {
    /// Not by vmcc.
    Nothing,
    /// A change has begun and is not whole.
    HalfDone,
    /// With these settings.
    As(Box<PortConfig>),
}

/// Serving state of a port in the calling thread's network namespace.
///
/// # Errors
/// No such port, or the kernel refuses.
pub fn settings(port: &str) -> Result<Serving, PortError> {
    let mut dev = device::Device::open(port)?;
    if !state::has_ours(&mut dev)? {
        return Ok(Serving::Nothing);
    }
    // Kept: its setup was completed.
    let whole = state::peek(&mut dev)?.0.filter(|content| content.kept && !content.changing);
    Ok(whole.map_or(Serving::HalfDone, |content| Serving::As(Box::new(content.config))))
}

/// Loads the programs and forgets them.
fn try_load() -> Result<(), PortError> {
    Program::load(program::Source::Leaf, frame::Frame::Ethernet).map(drop)
}

/// Tests whether this kernel supports a backend.
///
/// # Errors
/// The reason, if it does not.
pub fn usable(backend: Backend) -> Result<(), String> {
    match backend {
        Backend::Bpf => Bpf::try_load(),
        Backend::Auto | Backend::Htb => Ok(()),
    }
}

/// Whatever failed on a port that is not there any more failed because of that.
fn unless_gone<T>(port: &str, result: Result<T, PortError>) -> Result<T, PortError> {
    let is_gone = || Links::open().and_then(|mut links| links.find(port)).is_ok_and(|found| found.is_none());
    match result {
        Err(error) if !matches!(error, PortError::NoSuchPort { .. }) && is_gone() => {
            Err(PortError::Gone { port: port.to_owned() })
        }
        other => other,
    }
}

// Of the same numbers the programs and the configuration each have a name.
const _: () = assert!(
    crate::MAX_CLASSES == vmcc_bpf::shared::port::MAX_CLASSES
        && crate::MAX_FILTERS == vmcc_bpf::shared::port::MAX_FILTERS
        && crate::MAX_PRIORITIES == vmcc_bpf::shared::port::MAX_PRIORITIES
);

fn signed(index: u32) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}
