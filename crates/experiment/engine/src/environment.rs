//! Facts about the host for the results, and cost of a run.

use nix::sys::resource::{UsageWho, getrusage};
use std::fs;
use vmcc_results::Environment;

/// This host, and the command that repeats the run.
pub(crate) fn environment(command: String) -> Environment {
    Environment {
        vmcc: env!("CARGO_PKG_VERSION").to_owned(),
        os: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        kernel: nix::sys::utsname::uname().ok().and_then(|u| u.release().to_str().map(str::to_owned)),
        cpu: cpu_model(),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        command: Some(command),
        started: Some(now()),
        extra: Default::default(),
    }
}

/// The current time, RFC 3339 in UTC, to the second.
fn now() -> String {
    let now = jiff::Timestamp::now();
    now.round(jiff::Unit::Second).unwrap_or(now).to_string()
}

/// The current time in a form that sorts and suits a folder's name.
pub(crate) fn time_for_name() -> String {
    jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string()
}

fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("model name") || l.starts_with("Model"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// CPU time of this process so far, in seconds.
pub(crate) fn process_cpu_s() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 * 1e-6;
    Some(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// Largest resident set of this process so far, in bytes.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    // Linux counts in units of 1024 bytes, macOS in bytes.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    u64::try_from(usage.max_rss()).ok().map(|n| n * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_environment_is_read() {
        assert!(process_cpu_s().unwrap() > 0.0);
        assert!(peak_rss_bytes().unwrap() > 1 << 20);
        let environment = environment("x".into());
        assert!(environment.cpus >= 1);
        assert_eq!(environment.started.unwrap().len(), "2026-01-01T00:00:00Z".len());
        assert_eq!(time_for_name().len(), "20260101-000000".len());
    }
}
