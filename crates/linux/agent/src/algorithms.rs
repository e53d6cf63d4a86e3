//! Algorithms that stay in the kernel until they are taken down.

use crate::{Error, needs_root};
use std::time::{Duration, Instant};
use vmcc_bpf::{Lingering, Loaded, PinLock, Status};
use vmcc_cc::Params;
use vmcc_guard::RequestReaders;
use vmcc_system::netns;

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
    vmcc_bpf::collect_garbage(vmcc_bpf::GC_MIN_AGE)?;
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
        vmcc_bpf::restrict(&names)?;
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
        vmcc_bpf::set_params(params)?;
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
    Ok(vmcc_bpf::list()?.into_iter().filter(|status| status.kept).collect())
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
    let removed = vmcc_bpf::take_down()?;
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
        let found = vmcc_bpf::lingering()?;
        if found.iter().all(|one| one.unreachable == 0) || began.elapsed() > FREE_TIMEOUT {
            return Ok(found);
        }
        std::thread::sleep(FREE_POLL_INTERVAL);
    }
}
