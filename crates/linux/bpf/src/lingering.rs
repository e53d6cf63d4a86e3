//! Algorithms that were taken down and are still in the kernel, because something refers to them.
//!
//! Each TCP socket and each network namespace's default congestion control holds a reference to the algorithm's table of
//! callbacks. The kernel frees the table, its programs and its maps with the last reference. Socket diagnostics and a sysctl
//! show the holders in namespaces that can be entered. A deleted namespace cannot: its orphans (closed sockets whose data is not
//! acknowledged) keep it alive until they time out. The number of references is the kernel's own.

use crate::error::ControlError;
use crate::registry::{References, references};
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use vmcc_system::diag::Diag;
use vmcc_system::netns;

/// An algorithm that was taken down and is still in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lingering {
    /// Name in the kernel.
    pub kernel_name: String,
    /// Sockets and namespaces' defaults that refer to it.
    pub references: usize,
    /// Those of them that are in no network namespace with a name or a process.
    pub unreachable: usize,
}

/// Algorithms that were taken down and are still in the kernel, by kernel name.
///
/// # Errors
/// Not permitted to list BPF objects.
pub fn lingering() -> Result<Vec<Lingering>, ControlError> {
    let all = references()?;
    if all.values().all(|found| found.taken_down == 0) {
        return Ok(Vec::new());
    }
    let reachable = reachable();
    Ok(all
        .into_iter()
        .filter(|(_, found)| found.taken_down > 0)
        .map(|(kernel_name, found)| {
            let unreachable = unreachable(found, reachable.get(&kernel_name).copied().unwrap_or(0));
            Lingering { kernel_name, references: found.taken_down, unreachable }
        })
        .collect())
}

/// A holder is known by the algorithm's name, which one that was loaded again has, too.
fn unreachable(found: References, reachable: usize) -> usize {
    (found.taken_down + found.registered).saturating_sub(reachable).min(found.taken_down)
}

/// Holders in the namespaces that can be entered, by the name of their congestion control.
fn reachable() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    // One that is gone since it was listed, or shows no sockets, has none that can be seen.
    for path in netns::scan().into_values() {
        let holders = netns::open(&path).and_then(|namespace| netns::within(namespace.as_fd(), holders));
        for name in holders.into_iter().flatten() {
            *found.entry(name).or_default() += 1;
        }
    }
    found
}

/// Congestion controls of the calling thread's network namespace: that of each TCP socket, and the default.
fn holders() -> Vec<String> {
    let sockets = Diag::open().and_then(|mut diag| diag.congestion_controls());
    sockets.into_iter().flatten().chain(netns::default_congestion_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_that_no_namespace_shows_are_unreachable() {
        let of =
            |taken_down, registered, reachable| unreachable(References { taken_down, registered }, reachable);
        assert_eq!(of(3, 0, 0), 3);
        assert_eq!(of(3, 0, 2), 1);
        assert_eq!(of(3, 0, 4), 0, "one began since the references were counted");
        assert_eq!(of(3, 5, 6), 2, "loaded again, with five holders");
        assert_eq!(of(1, 5, 0), 1, "never more than it has");
    }
}
