//! CPU time of the whole host, because the kernel does most of the work outside any program.

use std::fs;
use std::time::Duration;

/// Busy time within a window of the run.
pub(crate) struct Window {
    from: Duration,
    to: Duration,
    first_s: Option<f64>,
    last_s: Option<f64>,
}

impl Window {
    pub(crate) fn new(from: Duration, to: Duration) -> Self {
        Self { from, to, first_s: None, last_s: None }
    }

    /// To be called often; takes the first reading within the window and the first after it.
    pub(crate) fn update(&mut self, elapsed: Duration) {
        if self.first_s.is_none() && elapsed >= self.from {
            self.first_s = busy_s();
        }
        if self.last_s.is_none() && elapsed >= self.to {
            self.last_s = busy_s();
        }
    }

    /// Busy seconds of all processors together; `None` if the kernel does not say.
    pub(crate) fn busy_s(&self) -> Option<f64> {
        Some((self.last_s.or_else(busy_s)? - self.first_s?).max(0.0))
    }
}

/// The same since this system began.
pub(crate) fn busy_s() -> Option<f64> {
    let ticks_per_s = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    parse(&fs::read_to_string("/proc/stat").ok()?).map(|ticks| ticks as f64 / ticks_per_s as f64)
}

/// CPU time that a process has used.
pub(crate) fn used_by(process: i32) -> Option<Duration> {
    let ticks_per_s = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    let ticks = parse_process(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)?;
    Some(Duration::from_secs_f64(ticks as f64 / ticks_per_s as f64))
}

/// Time that a process has waited for a processor: that of the thread that has waited longest. Zero if the kernel does not report it.
pub(crate) fn waited_by(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let waited =
        |thread: fs::DirEntry| parse_thread(&fs::read_to_string(thread.path().join("schedstat")).ok()?);
    Duration::from_nanos(threads.filter_map(waited).max().unwrap_or(0))
}

/// The second of three fields: nanoseconds that a thread could have run and did not.
fn parse_thread(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// The fourteenth field and the fifteenth, user and system; the second may contain anything.
fn parse_process(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let of = |field: usize| fields.get(field)?.parse::<u64>().ok();
    Some(of(11)? + of(12)?)
}

/// The fields of the first line: user, nice, system, idle, iowait, irq, softirq.
fn parse(stat: &str) -> Option<u64> {
    let fields: Vec<u64> =
        stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map_while(|f| f.parse().ok()).collect();
    let busy = [0, 1, 2, 5, 6].map(|i| fields.get(i).copied());
    busy.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Instant;

    #[test]
    fn busy_time_excludes_idle_and_iowait() {
        assert_eq!(parse("cpu  1 2 4 100 100 8 16 0 0 0\ncpu0 1 1 1\n"), Some(31));
        assert_eq!(parse("cpu  1 2 4"), None);
        assert_eq!(parse(""), None);
        assert!(busy_s().is_some_and(|s| s > 0.0));
    }

    #[test]
    fn process_cpu_time_is_parsed_after_any_name() {
        assert_eq!(parse_process("7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 1"), Some(110));
        assert_eq!(parse_process("7 (a S 1"), None);
        assert!(used_by(std::process::id() as i32).is_some() && used_by(-1).is_none());
    }

    #[test]
    fn runnable_wait_time_is_measured() {
        assert_eq!(parse_thread("500 70 3\n"), Some(70));
        assert_eq!(parse_thread("500"), None);
        assert_eq!(waited_by(u32::MAX), Duration::ZERO);
        if !std::path::Path::new("/proc/self/schedstat").exists() {
            return;
        }
        let one_processor = || {
            let us = nix::unistd::Pid::from_raw(0);
            let all = nix::sched::sched_getaffinity(us).unwrap();
            let first = (0..nix::sched::CpuSet::count()).find(|cpu| all.is_set(*cpu).unwrap()).unwrap();
            let mut one = nix::sched::CpuSet::new();
            one.set(first).unwrap();
            nix::sched::sched_setaffinity(us, &one).unwrap();
        };
        let (us, over) = (std::process::id(), std::sync::atomic::AtomicBool::new(false));
        let before = waited_by(us);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    one_processor();
                    while !over.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            // Three of them wait at any moment.
            let enough = || waited_by(us) > before + Duration::from_millis(20);
            let end = Instant::now() + Duration::from_secs(60);
            while !enough() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(10));
            }
            let waited = enough();
            over.store(true, Relaxed);
            assert!(waited);
        });
    }
}
