//! Algorithms that stay in the kernel until they are taken down.

use crate::connections::{Connection, Observer};
use crate::{Error, daemon, needs_root};
use serde::Serialize;
use std::time::{Duration, Instant};
use vmcc_cc::Params;
use vmcc_guard::RequestReaders;
use vmcc_host::cpu_steal::{self, CpuSteal};
use vmcc_host::diag::Subflow;
use vmcc_host::mptcp::{self, Fallbacks};
use vmcc_host::port;
use vmcc_host::{Lingering, Loaded, PinLock, Status, netns};

/// Time for which [`lingering_after_down`] waits for the kernel to free what nothing refers to any more.
const FREE_TIMEOUT: Duration = Duration::from_secs(1);
const FREE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Algorithms to load, with their options.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The algorithms with their parameters, each once.
    pub algorithms: &'a [Params],
    /// True if only processes with CAP_NET_ADMIN may choose them.
    pub restricted: bool,
    /// True if the caller runs a guard, which closes the paths that they request to close.
    pub guarded: bool,
}

/// Loads what is not up and sets the parameters of what is. All stay up when the process ends. Returns the readers of requests to
/// close paths, none without [`Request::guarded`].
///
/// # Errors
/// One cannot be loaded or kept; if one is refused, none is kept that was not up before.
pub fn up(request: Request<'_>) -> Result<RequestReaders, Error> {
    needs_root("up: only root can load congestion controls")?;
    // What a killed one left is gone before, and one that starts meanwhile finds what this one did.
    let lock = PinLock::for_pinning()?;
    lock.clean()?;
    vmcc_host::collect_garbage(vmcc_host::GC_MIN_AGE)?;
    let kept = kept()?;
    // All are loaded before any is kept: if one is refused, none stays.
    let load = |params| load(params, &kept, request.guarded);
    let loaded: Vec<Option<Loaded>> = request.algorithms.iter().map(load).collect::<Result<_, _>>()?;
    let requests = if request.guarded {
        RequestReaders::open(loaded.iter().flatten())?
    } else {
        RequestReaders::default()
    };
    for one in loaded.into_iter().flatten() {
        one.keep()?;
    }
    drop(lock);
    if request.restricted {
        let names: Vec<&str> = request.algorithms.iter().map(kernel_name).collect();
        vmcc_host::restrict(&names)?;
    }
    Ok(requests)
}

fn kernel_name(params: &Params) -> &'static str {
    params.algorithm().info().kernel_name
}

/// Loads an algorithm. One that is up already gets the new parameters; then there is nothing to hold, except for
/// a guard that wants to read its events.
fn load(params: &Params, kept: &[Status], guarded: bool) -> Result<Option<Loaded>, Error> {
    let kernel_name = kernel_name(params);
    let up_already = kept.iter().any(|k| k.kernel_name == kernel_name && k.same_build);
    if up_already {
        vmcc_host::set_params(params)?;
        if !guarded {
            return Ok(None);
        }
    }
    let loaded = Loaded::load(params.algorithm(), params)?;
    if loaded.is_shared() && !up_already {
        return Err(Error::Taken { kernel_name });
    }
    Ok(Some(loaded))
}

/// Algorithms that an earlier [`up`] left loaded.
fn kept() -> Result<Vec<Status>, Error> {
    Ok(vmcc_host::list()?.into_iter().filter(|status| status.kept).collect())
}

/// Result of [`down`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down {
    /// Names in the kernel of what was taken down.
    pub removed: Vec<String>,
    /// Which of them this network namespace goes on giving to new connections, because it is its default.
    pub still_default: Option<String>,
}

/// Takes down what [`up`] loaded.
///
/// # Errors
/// The kernel refuses.
pub fn down() -> Result<Down, Error> {
    let removed = vmcc_host::take_down()?;
    let still_default = netns::default_congestion_control().filter(|name| removed.contains(name));
    Ok(Down { removed, still_default })
}

/// Algorithms that [`down`] took down and that are still in the kernel. Those which the kernel is about to free are waited for.
///
/// # Errors
/// The kernel refuses.
pub fn lingering_after_down() -> Result<Vec<Lingering>, Error> {
    let began = Instant::now();
    loop {
        let found = vmcc_host::lingering()?;
        if found.iter().all(|one| one.unreachable == 0) || began.elapsed() > FREE_TIMEOUT {
            return Ok(found);
        }
        std::thread::sleep(FREE_POLL_INTERVAL);
    }
}

/// State of this host: algorithms, sockets, connections, ports and the agent.
#[derive(Debug, Serialize)]
pub struct HostStatus {
    /// The algorithms that are loaded, by whomever.
    pub algorithms: Vec<Status>,
    /// Algorithms that were taken down and are still in the kernel; not looked for by [`Observer::look`].
    pub lingering: Vec<Lingering>,
    /// The sockets of this network namespace that use them.
    pub sockets: Vec<Subflow>,
    /// The connections that these are the paths of.
    pub connections: Vec<Connection>,
    /// The ports of this network namespace that are served.
    pub ports: Vec<String>,
    /// Status document of the agent, if one runs.
    pub agent: Option<serde_json::Value>,
    /// Connections of this network namespace that were to be MPTCP and became TCP, where the kernel counts them.
    pub fallbacks: Option<Fallbacks>,
    /// For how long the kernel opens connections as TCP after it found that SYNs with MPTCP's option are dropped.
    pub blackhole_timeout_s: Option<u64>,
    /// Processor time that this machine did not get, and what that may have cost.
    pub taken: CpuSteal,
}

/// Reads the state of this host.
///
/// # Errors
/// The kernel or a running agent does not report its state.
pub fn status() -> Result<HostStatus, Error> {
    Observer::open()?.status()
}

impl Observer {
    /// Reads the state of this host.
    ///
    /// # Errors
    /// The kernel or a running agent does not report its state.
    pub fn status(&mut self) -> Result<HostStatus, Error> {
        let mut status = self.look(daemon::view)?;
        status.taken.throttled = cpu_steal::throttled();
        status.lingering = vmcc_host::lingering()?;
        Ok(status)
    }

    /// The same but for throttled cgroups, for who looks again and again and asks the agent in its own way.
    ///
    /// # Errors
    /// As [`Observer::status`], and those of `agent`.
    pub fn look(
        &mut self,
        agent: impl FnOnce() -> Result<Option<serde_json::Value>, Error>,
    ) -> Result<HostStatus, Error> {
        let algorithms = vmcc_host::list()?;
        let ports = port::attached()?;
        let names: Vec<&str> = algorithms.iter().map(|algorithm| algorithm.kernel_name.as_str()).collect();
        let sockets = self.sockets(&names)?;
        let agent = agent()?;
        let connections = self.connections(&sockets, agent.as_ref());
        Ok(HostStatus {
            algorithms,
            lingering: Vec::new(),
            sockets,
            connections,
            ports,
            agent,
            fallbacks: Fallbacks::read().ok(),
            blackhole_timeout_s: mptcp::blackhole_timeout_s(),
            taken: CpuSteal::now(),
        })
    }
}
