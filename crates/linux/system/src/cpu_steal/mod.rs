//! Steal time, throttled cgroups and gaps of this machine, and the retransmission timeouts that follow.
//!
//! | | |
//! |---|---|
//! | [`gaps`] | when nothing ran here although something was due: a virtual machine that was off |
//! | [`steal`] | what the hypervisor says that it took, where it says so |
//! | [`throttled`] | cgroups that had used up their quota |
//! | [`timeouts`] | retransmission timeouts, and which of them were for nothing |

mod gaps;
mod throttled;
mod timeouts;

pub use gaps::{MIN_GAP, gaps};
pub use throttled::{Throttled, hierarchies, throttled};
pub use timeouts::{Timeouts, timeouts};

use serde::Serialize;
use std::time::Duration;

/// Steal time of this machine and throttling of its cgroups, since each began; `None` and nothing where the
/// kernel does not say. For how long all of it was off the agent knows.
#[derive(Debug, Default, Serialize)]
pub struct CpuSteal {
    /// Steal time that the hypervisor reports, over all processors.
    pub steal_seconds: Option<f64>,
    /// Cgroups that had used up their quota, the longest throttled first; see [`throttled`].
    pub throttled: Vec<Throttled>,
    /// Retransmission timeouts of this network namespace.
    pub timeouts: Option<Timeouts>,
}

impl CpuSteal {
    /// As it is now, but for `throttled`: to ask each cgroup takes thousands of files, and some look again and again.
    pub fn now() -> Self {
        Self {
            steal_seconds: steal().ok().map(|time| time.as_secs_f64()),
            throttled: Vec::new(),
            timeouts: timeouts().ok(),
        }
    }
}

const STAT: &str = "/proc/stat";

/// Time that the hypervisor gave to others while a processor of this machine had something to do, all processors together.
/// 0 without a hypervisor, and under one that does not say.
///
/// # Errors
/// The kernel does not say.
pub fn steal() -> std::io::Result<Duration> {
    let text = std::fs::read_to_string(STAT)?;
    let ticks =
        steal_ticks(&text).ok_or_else(|| std::io::Error::other(format!("{STAT} has no line `cpu`")))?;
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)?.unwrap_or(100);
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// The eighth figure of the line for all processors (proc(5)).
fn steal_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    line.split_whitespace().nth(8)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_time_is_summed_over_cpus() {
        let text = "cpu  1 2 3 4 5 6 7 42 9 10\ncpu0 1 2 3 4 5 6 7 40 9 10\n";
        assert_eq!(steal_ticks(text), Some(42));
        assert_eq!(steal_ticks("intr 1"), None);
        assert!(steal().is_ok());
    }
}
