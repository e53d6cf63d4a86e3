//! Removing what processes that were killed left on this host. What is kept on purpose stays.

use crate::Error;

/// Result of [`clean`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// Congestion controls, by their names in the kernel.
    pub algorithms: Vec<String>,
    /// Connections that are gone, from the tables of congestion controls.
    pub entries: usize,
    /// Ports whose leftover service or record was removed.
    pub ports: Vec<String>,
    /// Devices of budgets whose ports are gone.
    pub budgets: Vec<String>,
}

/// Removes congestion controls and services of ports of this network namespace whose process was killed, devices of budgets
/// that have no port any more, and what is recorded of what is gone.
///
/// # Errors
/// The kernel refuses.
pub fn clean() -> Result<Cleaned, Error> {
    let algorithms = vmcc_bpf::clean()?;
    let entries = vmcc_bpf::collect_garbage(vmcc_bpf::GC_MIN_AGE)?;
    let mut ports = vmcc_port::detach_orphans()?;
    let budgets = vmcc_port::remove_unused_budgets()?;
    ports.extend(vmcc_port::forget_gone()?);
    Ok(Cleaned { algorithms, entries, ports, budgets })
}
