//! Retransmission timeouts of a network namespace.

use serde::Serialize;

const NETSTAT: &str = "/proc/thread-self/net/netstat";
const TABLE: &str = "TcpExt:";

/// All connections of a network namespace since it was made, whatever their congestion control.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Timeouts {
    /// Retransmission timeouts (`TCPTimeouts`).
    pub all: u64,
    /// Those found to have been for nothing, because what was sent before had arrived (`TCPSpuriousRTOs`, by F-RTO).
    pub spurious: u64,
    /// Windows restored after a timeout that was for nothing, by whatever showed it (`TCPLossUndo`).
    pub undone: u64,
    /// Retransmissions that were not made because the packet had not left this host yet (`TCPSpuriousRtxHostQueues`).
    pub withheld: u64,
    /// Tail loss probes (`TCPLossProbes`): what a sender that slept sends first, in place of a timeout.
    pub probes: u64,
}

/// Those of the calling thread's network namespace.
///
/// # Errors
/// The kernel does not say.
pub fn timeouts() -> std::io::Result<Timeouts> {
    let text = std::fs::read_to_string(NETSTAT)?;
    read(&text).ok_or_else(|| std::io::Error::other(format!("{NETSTAT} has no counters of TCP")))
}

/// A line of names, then one of values.
fn read(text: &str) -> Option<Timeouts> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(TABLE));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut found = Timeouts::default();
    for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
        let place = match name {
            "TCPTimeouts" => &mut found.all,
            "TCPSpuriousRTOs" => &mut found.spurious,
            "TCPLossUndo" => &mut found.undone,
            "TCPSpuriousRtxHostQueues" => &mut found.withheld,
            "TCPLossProbes" => &mut found.probes,
            _ => continue,
        };
        *place = value.parse().ok()?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_counters_are_parsed_by_name() {
        let text = "TcpExt: SyncookiesSent TCPLossUndo TCPTimeouts TCPLossProbes TCPSpuriousRTOs TCPSpuriousRtxHostQueues\n\
                    TcpExt: 9 1 14 5 3 2\nIpExt: InNoRoutes\nIpExt: 7\n";
        let expected = Timeouts { all: 14, spurious: 3, undone: 1, withheld: 2, probes: 5 };
        assert_eq!(read(text), Some(expected));
        assert_eq!(read("IpExt: InNoRoutes\nIpExt: 7\n"), None);
        assert!(timeouts().is_ok());
    }
}
