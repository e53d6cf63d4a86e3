//! Obstacles that keep MPTCP connections of a network namespace with one path, and counters of fallbacks to TCP.

use serde::Serialize;
use std::fs;
use std::io;
use vmcc_netlink::{Endpoint, PathManager};

const NETSTAT: &str = "/proc/thread-self/net/netstat";
const TABLE: &str = "MPTcpExt:";
const BLACKHOLE_TIMEOUT: &str = "/proc/sys/net/mptcp/blackhole_timeout";
const PATH_MANAGER: &str = "/proc/sys/net/mptcp/pm_type";
/// `net.mptcp.pm_type` of the kernel's own path manager.
const KERNEL: &str = "0";

/// Connections of a network namespace that were to be MPTCP and became TCP, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Fallbacks {
    /// The other end, or something on the way, does not let MPTCP through (`MPCapableFallbackSYNACK`, `MPCapableFallbackACK`,
    /// `MPCapableDataFallback`).
    pub refused: u64,
    /// SYNs with MPTCP's option went unanswered and one without it was answered (`MPCapableSYNTXDrop`).
    pub dropped: u64,
    /// Times that the kernel found such a blackhole and began to open connections as TCP (`Blackhole`).
    pub blackholes: u64,
    /// Connections that it opened as TCP for that reason (`MPCapableSYNTXDisabled`).
    pub disabled: u64,
}

impl Fallbacks {
    /// Those of the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel counts nothing of MPTCP.
    pub fn read() -> io::Result<Self> {
        let text = fs::read_to_string(NETSTAT)?;
        Self::parse(&text).ok_or_else(|| io::Error::other(format!("{NETSTAT} has no counters of MPTCP")))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut found = Self::default();
        for (name, value) in counters(text)? {
            let place = match name {
                "MPCapableFallbackSYNACK" | "MPCapableFallbackACK" | "MPCapableDataFallback" => {
                    &mut found.refused
                }
                "MPCapableSYNTXDrop" => &mut found.dropped,
                "Blackhole" => &mut found.blackholes,
                "MPCapableSYNTXDisabled" => &mut found.disabled,
                _ => continue,
            };
            *place += value.parse::<u64>().ok()?;
        }
        Some(found)
    }

    /// All that began as MPTCP.
    pub fn total(&self) -> u64 {
        self.refused + self.dropped + self.disabled
    }
}

/// Names and values of MPTCP's counters: a line of names, then one of values.
fn counters(text: &str) -> Option<impl Iterator<Item = (&str, &str)>> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(TABLE));
    let (names, values) = (lines.next()?, lines.next()?);
    Some(names.split_whitespace().zip(values.split_whitespace()))
}

/// A counter of MPTCP in the calling thread's network namespace (`nstat` writes its name with `MPTcpExt` before it); `None` where the
/// kernel does not have it.
pub fn counter(name: &str) -> Option<u64> {
    let text = fs::read_to_string(NETSTAT).ok()?;
    counters(&text)?.find(|(found, _)| *found == name)?.1.parse().ok()
}

/// For how long the kernel opens connections as TCP after it found a blackhole; longer each time again.
pub fn blackhole_timeout_s() -> Option<u64> {
    fs::read_to_string(BLACKHOLE_TIMEOUT).ok()?.trim().parse().ok()
}

/// True if the kernel manages the paths of new connections in the calling thread's network namespace: where user space does,
/// limits and endpoints do not count.
pub fn kernel_manages_paths() -> bool {
    fs::read_to_string(PATH_MANAGER).map_or(true, |text| text.trim() == KERNEL)
}

/// Obstacles in the calling thread's network namespace, each with its remedy.
///
/// # Errors
/// The path manager cannot be asked.
pub fn obstacles() -> io::Result<Vec<String>> {
    // Where user space manages paths these limits are its own business.
    if !kernel_manages_paths() {
        return Ok(Vec::new());
    }
    let mut manager = PathManager::open()?;
    Ok(of(manager.limits()?, &manager.endpoints()?).into_iter().collect())
}

fn of((subflows, accept): (u32, u32), endpoints: &[Endpoint]) -> Option<String> {
    let has = |flags: u32| {
        endpoints.iter().any(|one| one.flags & flags != 0 && one.flags & Endpoint::IMPLICIT == 0)
    };
    let text = if subflows == 0 {
        "every MPTCP connection stays with its first path, at either end: the limit of additional subflows is 0; set it to \
         2 or more (`ip mptcp limits set subflows 2`, `mptcp.subflows` in the agent's file)"
    } else if accept == 0 && !has(Endpoint::SUBFLOW | Endpoint::SIGNAL) {
        "no MPTCP connection gets a second path by this end: it has no `subflow` or `signal` endpoint, and accepts no announced \
         address; a client needs `ip mptcp limits set add_addr_accepted 2` (`mptcp.accept`) or a `subflow` endpoint, a server a \
         `signal` endpoint"
    } else {
        return None;
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mptcp_counters_are_parsed_by_name() {
        let text = "MPTcpExt: MPCapableFallbackACK MPCapableFallbackSYNACK MPCapableSYNTXDrop Blackhole MPCurrEstab \
                    MPCapableSYNTXDisabled\nMPTcpExt: 1 2 3 4 5 6\nTcpExt: X\nTcpExt: 9\n";
        let expected = Fallbacks { refused: 3, dropped: 3, blackholes: 4, disabled: 6 };
        assert_eq!(Fallbacks::parse(text), Some(expected));
        assert_eq!((expected.total(), Fallbacks::parse("TcpExt: X\nTcpExt: 9\n")), (12, None));
        assert!(Fallbacks::read().is_ok());
    }

    #[test]
    fn limits_below_two_paths_are_obstacles() {
        let endpoint =
            |flags| Endpoint { id: 1, address: "10.0.0.1".parse().unwrap(), port: None, flags, device: 0 };
        let limit = |limits, endpoints: &[Endpoint]| of(limits, endpoints).unwrap_or_default();
        assert!(limit((0, 0), &[endpoint(Endpoint::SIGNAL)]).contains("additional subflows is 0"));
        assert!(limit((0, 8), &[]).contains("additional subflows is 0"));
        assert!(limit((2, 0), &[]).contains("accepts no announced address"), "the kernel's defaults");
        assert!(limit((2, 0), &[endpoint(Endpoint::LAMINAR)]).contains("accepts no announced address"));
        assert!(limit((2, 0), &[endpoint(Endpoint::SUBFLOW | Endpoint::IMPLICIT)]).contains("no `subflow`"));
        assert!(
            limit((2, 0), &[endpoint(Endpoint::FULLMESH)]).contains("no `subflow`"),
            "it qualifies `subflow`"
        );
        for (limits, flags) in
            [((1, 0), Endpoint::SUBFLOW), ((1, 0), Endpoint::SIGNAL), ((1, 1), Endpoint::LAMINAR)]
        {
            assert_eq!(of(limits, &[endpoint(flags)]), None);
        }
    }
}
