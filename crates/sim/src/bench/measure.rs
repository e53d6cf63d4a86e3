//! CPU time and memory of a piece of work.

use nix::sys::resource::{UsageWho, getrusage};

use crate::net::Totals;

/// Work done, and what it cost.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// What the run did.
    pub totals: Totals,
    /// CPU seconds of the process (user and system) during the run.
    pub cpu_s: f64,
    /// Peak resident memory of the process so far, bytes.
    pub peak_rss_bytes: u64,
}

impl Measurement {
    /// Link traversals per CPU second.
    pub fn hops_per_cpu_s(&self) -> f64 {
        self.totals.packet_hops as f64 / self.cpu_s.max(1e-9)
    }
}

/// Runs `work` and measures it.
pub fn measure(work: impl FnOnce() -> Totals) -> Measurement {
    let before = cpu_s();
    let totals = work();
    let cpu_s = cpu_s() - before;
    Measurement { totals, cpu_s, peak_rss_bytes: peak_rss_bytes() }
}

fn cpu_s() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return 0.0 };
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 * 1e-6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

fn peak_rss_bytes() -> u64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.max_rss() as u64 * 1024)
}
