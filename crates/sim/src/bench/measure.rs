//! CPU time, wall time and memory of a piece of work.

use nix::sys::resource::{UsageWho, getrusage};

use crate::net::Totals;

/// Work done, and what it cost.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Totals of the run.
    pub totals: Totals,
    /// CPU seconds of the process (user and system) during the run.
    pub cpu_s: f64,
    /// Seconds that passed.
    pub wall_s: f64,
    /// Peak resident memory of the process during building and running, bytes. Where the peak cannot be
    /// reset (outside Linux), of the process so far.
    pub peak_rss_bytes: u64,
    /// Mean goodput per connection as a share of the line rate; absent without a transport.
    pub utilization: Option<f64>,
}

impl Measurement {
    /// Link traversals per CPU second.
    pub fn hops_per_cpu_s(&self) -> f64 {
        self.totals.packet_hops as f64 / self.cpu_s.max(1e-9)
    }
}

/// Runs `work` and measures it.
pub(crate) fn measure(work: impl FnOnce() -> Totals) -> Measurement {
    let (cpu, wall) = (cpu_s(), std::time::Instant::now());
    let totals = work();
    let cpu_s = cpu_s() - cpu;
    let wall_s = wall.elapsed().as_secs_f64();
    Measurement { totals, cpu_s, wall_s, peak_rss_bytes: peak_rss_bytes(), utilization: None }
}

fn cpu_s() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return 0.0 };
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 * 1e-6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// Starts a new peak (proc_pid_clear_refs, value 5); without effect elsewhere.
pub(crate) fn reset_peak_rss() {
    if std::fs::write("/proc/self/clear_refs", "5").is_err() {
        tracing::debug!("the peak of resident memory cannot be reset: it is that of the process so far");
    }
}

fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
    // The unit of ru_maxrss is KiB on Linux.
    let whole = || getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.max_rss() as u64);
    kib.unwrap_or_else(whole) * 1024
}
