//! Marking on a port: sets CE on packets that meet a queue longer than a threshold.
//!
//! The program (`kernel/mark.bpf.c`) sits at the port's clsact egress hook and reads the backlog of the port's root
//! queueing discipline. It is attached, changed and removed while traffic runs; the queue itself is not touched.

use crate::error::ControlError;
use crate::netns;
use crate::objects::{self, Log, MARK};
use libbpf_rs::{
    ErrorKind, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, TC_EGRESS, TcHook, TcHookBuilder,
};
use serde::Serialize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Where our filter sits among a port's filters: found again by it, and unlikely to be anyone else's.
const PRIORITY: u32 = 0xc0de;
const HANDLE: u32 = 1;
const PROGRAM: &str = "vmcc_mark";
const CONFIG_MAP: &str = ".data.mark";
const COUNTERS_MAP: &str = "mark_counts";
const LOG_LINES: usize = 12;
/// Bytes of `struct mark_counters`.
const COUNTER_BYTES: usize = 40;

/// Why a port cannot be marked on. Nothing has changed on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarkError {
    /// No such port in this network namespace.
    #[error("there is no port `{port}` in this network namespace; `ip link` lists them")]
    NoSuchPort {
        /// The name given.
        port: String,
    },
    /// Someone (another vmcc) marks there already.
    #[error("port {port} is marked on already; remove that marking first (`vmcc unmark {port}`)")]
    AlreadyMarked {
        /// The port.
        port: String,
    },
    /// The kernel refused the program.
    #[error(
        "the kernel refused the marking program: {cause}; it needs bpf_cast_to_kern_ctx (Linux 6.2)\n{log}"
    )]
    Refused {
        /// The system's error.
        cause: String,
        /// The last lines of the verifier or of libbpf.
        log: String,
    },
    /// The program could not be attached.
    #[error(
        "cannot mark on port {port}: {cause}; it needs CAP_NET_ADMIN and CONFIG_NET_SCH_INGRESS (clsact)"
    )]
    Attach {
        /// The port.
        port: String,
        /// The system's error.
        cause: String,
    },
    /// Something went wrong later.
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// When a packet is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Threshold {
    /// The queue is longer than this many bytes.
    Bytes(u64),
    /// The queue takes longer than this to drain at the port's rate.
    Time {
        /// Queueing time, in nanoseconds.
        delay_ns: u64,
        /// The rate at which the port drains, in bits per second.
        rate_bps: u64,
    },
}

impl Threshold {
    /// The queue length above which packets are marked.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Time { delay_ns, rate_bps } => {
                let bits_e9 = u128::from(delay_ns) * u128::from(rate_bps);
                u64::try_from(bits_e9 / 8_000_000_000).unwrap_or(u64::MAX)
            }
        }
    }
}

/// What passed a marked port since marking began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MarkCounters {
    /// Packets (segments joined by the sender count as one; switch TSO and GSO off on shaped ports).
    pub packets: u64,
    /// Bytes, link-layer header included.
    pub bytes: u64,
    /// Packets that left with CE because of this port.
    pub marked: u64,
    /// Packets that would have been marked but do not support ECN.
    pub not_ect: u64,
    /// The longest queue that a packet met, in bytes.
    pub max_backlog_bytes: u64,
}

/// Marking on one port; removed on drop unless [`Marker::keep`] is called.
pub struct Marker {
    port: String,
    netns: Option<OwnedFd>,
    ifindex: i32,
    config: MapHandle,
    counters: MapHandle,
    attached: bool,
}

impl Marker {
    /// Starts marking on `port` of the calling thread's network namespace.
    ///
    /// # Errors
    /// No such port, already marked, or the kernel refuses; the port is as before.
    pub fn attach(port: &str, threshold: Threshold) -> Result<Self, MarkError> {
        Self::attach_here(port, threshold, None)
    }

    /// Starts marking on `port` of the network namespace at `path` (`/run/netns/NAME`, `/proc/PID/ns/net`).
    ///
    /// # Errors
    /// As [`Marker::attach`]; also when the namespace cannot be entered.
    pub fn attach_in(path: &Path, port: &str, threshold: Threshold) -> Result<Self, MarkError> {
        let file = netns::open(path)?;
        let remembered = file.try_clone().map_err(|e| ControlError::kernel("copy a descriptor", e))?;
        netns::within(file.as_fd(), || Self::attach_here(port, threshold, Some(remembered)))?
    }

    fn attach_here(port: &str, threshold: Threshold, netns: Option<OwnedFd>) -> Result<Self, MarkError> {
        let ifindex = port_index(port)?;
        let object = load(threshold)?;
        let program = object.progs().find(|p| p.name() == PROGRAM).expect("the object defines it");
        let mut filter = filter_at(Some(program.as_fd()), ifindex);
        let failed = |e: libbpf_rs::Error| MarkError::Attach { port: port.to_owned(), cause: e.to_string() };
        // Kept when it exists: others may filter there too.
        match filter.create() {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(failed(e)),
            _ => {}
        }
        if filter.query().is_ok() {
            return Err(MarkError::AlreadyMarked { port: port.to_owned() });
        }
        filter.attach().map_err(failed)?;
        let map = |name: &str| {
            let found = object.maps().find(|m| m.name() == name).expect("the object defines it");
            MapHandle::try_from(&found).map_err(|e| ControlError::kernel(format!("open map {name}"), e))
        };
        let (config, counters) = (map(CONFIG_MAP)?, map(COUNTERS_MAP)?);
        // The filter holds the program and its maps from here on.
        Ok(Self { port: port.to_owned(), netns, ifindex, config, counters, attached: true })
    }

    /// The port's name.
    pub fn port(&self) -> &str {
        &self.port
    }

    /// Changes the threshold while traffic runs.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_threshold(&self, threshold: Threshold) -> Result<(), ControlError> {
        self.config
            .update(&0_u32.to_ne_bytes(), &threshold.bytes().to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| ControlError::kernel(format!("set the threshold on {}", self.port), e))
    }

    /// What passed since marking began, over all CPUs.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn counters(&self) -> Result<MarkCounters, ControlError> {
        let failed = |e: libbpf_rs::Error| ControlError::kernel(format!("read counters of {}", self.port), e);
        let per_cpu = self.counters.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        Ok(per_cpu.unwrap_or_default().iter().fold(MarkCounters::default(), |sum, cpu| sum.add(cpu)))
    }

    /// Stops marking and reports what passed.
    ///
    /// # Errors
    /// The filter cannot be removed; a port that is gone is not an error.
    pub fn detach(mut self) -> Result<MarkCounters, ControlError> {
        let counters = self.counters()?;
        self.remove()?;
        Ok(counters)
    }

    /// Leaves the marking on when this process ends; [`unmark`] removes it.
    pub fn keep(mut self) {
        self.attached = false;
    }

    fn remove(&mut self) -> Result<(), ControlError> {
        if !std::mem::take(&mut self.attached) {
            return Ok(());
        }
        let ifindex = self.ifindex;
        let detach = move || gone_is_fine(filter_at(None, ifindex).detach());
        let removed = match &self.netns {
            Some(netns) => netns::within(netns.as_fd(), detach)?,
            None => detach(),
        };
        removed.map_err(|e| ControlError::kernel(format!("stop marking on {}", self.port), e))
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        // Nobody is left to tell; `vmcc clean` finds the filter by its place.
        let _ = self.remove();
    }
}

impl MarkCounters {
    fn add(self, bytes: &[u8]) -> Self {
        let field = |i: usize| {
            let word = bytes.get(8 * i..8 * i + 8).and_then(|b| b.try_into().ok());
            word.map_or(0, u64::from_ne_bytes)
        };
        debug_assert!(bytes.len() >= COUNTER_BYTES);
        Self {
            packets: self.packets + field(0),
            bytes: self.bytes + field(1),
            marked: self.marked + field(2),
            not_ect: self.not_ect + field(3),
            max_backlog_bytes: self.max_backlog_bytes.max(field(4)),
        }
    }
}

/// Removes marking that an earlier process left on `port` of the calling thread's network namespace; answers
/// whether there was any.
///
/// # Errors
/// No such port, or the kernel refuses.
pub fn unmark(port: &str) -> Result<bool, MarkError> {
    let ifindex = port_index(port)?;
    let mut filter = filter_at(None, ifindex);
    if filter.query().is_err() {
        return Ok(false);
    }
    gone_is_fine(filter.detach())
        .map_err(|e| MarkError::Attach { port: port.to_owned(), cause: e.to_string() })?;
    Ok(true)
}

/// The ports of the calling thread's network namespace on which somebody's vmcc marks.
///
/// # Errors
/// The ports cannot be listed.
pub fn marked_ports() -> Result<Vec<String>, ControlError> {
    let ports = nix::net::if_::if_nameindex().map_err(|e| ControlError::kernel("list ports", e))?;
    let marked = |index: i32| filter_at(None, index).query().is_ok();
    Ok(ports
        .iter()
        .filter(|p| i32::try_from(p.index()).is_ok_and(marked))
        .map(|p| p.name().to_string_lossy().into_owned())
        .collect())
}

/// Our place on a port; only attaching needs the program.
fn filter_at(program: Option<BorrowedFd<'_>>, ifindex: i32) -> TcHook {
    objects::quiet();
    let stdin = std::io::stdin();
    let mut builder = TcHookBuilder::new(program.unwrap_or_else(|| stdin.as_fd()));
    builder.ifindex(ifindex).priority(PRIORITY).handle(HANDLE).replace(false);
    builder.hook(TC_EGRESS)
}

fn gone_is_fine(result: libbpf_rs::Result<()>) -> libbpf_rs::Result<()> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound || e.to_string().contains("No such device") => Ok(()),
        other => other,
    }
}

fn port_index(port: &str) -> Result<i32, MarkError> {
    let index = nix::net::if_::if_nametoindex(port).ok().and_then(|i| i32::try_from(i).ok());
    index.ok_or_else(|| MarkError::NoSuchPort { port: port.to_owned() })
}

fn load(threshold: Threshold) -> Result<Object, MarkError> {
    let log = Log::start();
    let loaded = (|| {
        let mut open = ObjectBuilder::default().name("vmcc_mark")?.open_memory(MARK)?;
        for mut map in open.maps_mut().filter(|m| m.name() == CONFIG_MAP) {
            map.set_initial_value(&threshold.bytes().to_ne_bytes())?;
        }
        open.load()
    })();
    loaded
        .map_err(|e: libbpf_rs::Error| MarkError::Refused { cause: e.to_string(), log: log.tail(LOG_LINES) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_in_time_is_time_times_rate() {
        let at = |delay_ns, rate_bps| Threshold::Time { delay_ns, rate_bps }.bytes();
        assert_eq!(at(1_000_000, 100_000_000), 12_500);
        assert_eq!(at(250_000, 1_000_000_000), 31_250);
        assert_eq!(at(0, u64::MAX), 0);
        assert_eq!(at(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_port_that_does_not_exist_is_named() {
        let error = Marker::attach("no-such-port", Threshold::Bytes(1)).err().expect("refused");
        assert!(error.to_string().contains("no-such-port"), "{error}");
    }
}
