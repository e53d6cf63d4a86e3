//! Serving ports of this host.

mod serve;

pub use serve::{Changed, Served, serve};

use crate::{Error, needs_root};
use vmcc_port::PortStats;
use vmcc_port::{Port, PortError};

/// All served ports, and those whose counters could not be read.
#[derive(Debug)]
pub struct Listed {
    /// Counters of each, those of one budget once.
    pub ports: Vec<PortStats>,
    /// Errors of the ports that could not be read.
    pub unreadable: Vec<PortError>,
    /// Devices of budgets whose ports are gone.
    pub unused_budgets: Vec<String>,
}

/// The counters of all ports of this network namespace that are served.
///
/// # Errors
/// The kernel does not say which there are.
pub fn list() -> Result<Listed, Error> {
    needs_root("mark: reading counters needs root")?;
    let mut listed =
        Listed { ports: Vec::new(), unreadable: Vec::new(), unused_budgets: vmcc_port::unused_budgets()? };
    for name in vmcc_port::attached()? {
        // The ports of one budget have the same counters.
        if listed.ports.iter().any(|port| port.members.contains(&name)) {
            continue;
        }
        match vmcc_port::peek(&name) {
            Ok(stats) => listed.ports.push(stats),
            // It went away since it was listed; the others are still worth a line.
            Err(PortError::NoSuchPort { .. } | PortError::NotAttached { .. } | PortError::Gone { .. }) => {}
            Err(error) => listed.unreadable.push(error),
        }
    }
    Ok(listed)
}

/// The counters of one served port.
///
/// # Errors
/// It is not served, or cannot be read.
pub fn stats(name: &str) -> Result<PortStats, Error> {
    needs_root(format!("port {name}: reading its counters needs root"))?;
    Ok(vmcc_port::peek(name)?)
}

/// Result of [`repair`].
#[derive(Debug)]
pub struct Repaired {
    /// Differences between the port and its settings, before the repair.
    pub differences: Vec<String>,
    /// Its counters, which are new if it was repaired.
    pub stats: PortStats,
}

/// Serves a port again as it was set, after somebody else changed its queues or programs.
///
/// # Errors
/// It is not served, or cannot be.
pub fn repair(name: &str) -> Result<Repaired, Error> {
    needs_root(format!("port {name}: repairing it needs root"))?;
    let stats = vmcc_port::peek(name)?;
    if stats.differences.is_empty() {
        return Ok(Repaired { differences: Vec::new(), stats });
    }
    let port = Port::repair(name)?;
    let repaired = port.stats();
    port.keep();
    Ok(Repaired { differences: stats.differences, stats: repaired? })
}

/// Result of [`unmark`].
#[derive(Debug)]
pub enum Unmarked {
    /// It was served, and is no longer; its last counters, unless somebody had removed the program that kept them.
    Ended(Option<Box<PortStats>>),
    /// It was not served.
    NotServed,
    /// The port itself is gone; what was recorded of it is, too, now.
    Gone,
}

/// Stops serving a port.
///
/// # Errors
/// There is no such port, or what was there before cannot be put back.
pub fn unmark(name: &str) -> Result<Unmarked, Error> {
    needs_root(format!("port {name}: to stop serving it needs root"))?;
    let gone = vmcc_port::forget_gone()?;
    // Of a port that somebody took the program from there are no counters, but what else served it goes.
    let served = vmcc_port::attached()?.iter().any(|port| port == name);
    match end(name) {
        Ok(stats) if served || stats.is_some() => Ok(Unmarked::Ended(stats.map(Box::new))),
        Ok(_) => Ok(Unmarked::NotServed),
        Err(PortError::NoSuchPort { .. }) if gone.iter().any(|port| port == name) => Ok(Unmarked::Gone),
        Err(error) => Err(error.into()),
    }
}

/// Result of [`unmark_all`].
#[derive(Debug)]
pub struct UnmarkedAll {
    /// Ports that are no longer served.
    pub ended: Vec<String>,
    /// Ports that were gone.
    pub gone: Vec<String>,
    /// Errors of the ports that are still served.
    pub failed: Vec<Error>,
}

/// Stops serving all ports of this network namespace; one that cannot be ended does not keep the others.
///
/// # Errors
/// The kernel does not say which there are.
pub fn unmark_all() -> Result<UnmarkedAll, Error> {
    needs_root("unmark: to stop serving ports needs root")?;
    let mut all = UnmarkedAll { ended: Vec::new(), gone: vmcc_port::forget_gone()?, failed: Vec::new() };
    for name in vmcc_port::attached()? {
        match end(&name) {
            Ok(_) | Err(PortError::NoSuchPort { .. } | PortError::Gone { .. }) => all.ended.push(name),
            Err(error) => all.failed.push(error.into()),
        }
    }
    Ok(all)
}

/// Its last counters; `None` if it was not served.
fn end(name: &str) -> Result<Option<PortStats>, PortError> {
    match Port::adopt(name) {
        Ok(port) => port.detach().map(Some),
        Err(PortError::NotAttached { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
