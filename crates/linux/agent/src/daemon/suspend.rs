//! Times for which this machine did not run (suspended or descheduled), as the agent measured them.

use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vmcc_system::cpu_steal::gaps;
use vmcc_telemetry::{Histogram, HistogramOpts};

/// From what is noticed at all to what stops every connection.
const BUCKETS_S: [f64; 7] = [0.02, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0];

/// Thread that measures them until this is dropped.
pub(crate) struct SuspendMonitor {
    known: Arc<Mutex<SuspendStats>>,
    times: Option<Histogram>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct SuspendStats {
    total: Duration,
    longest: Duration,
    count: u64,
    last: Option<Instant>,
    /// Reason for which time off cannot be measured here.
    problem: Option<String>,
}

impl SuspendMonitor {
    pub(crate) fn start() -> Self {
        let options = HistogramOpts::new(
            "vmcc_host_off_seconds",
            "Times for which nothing ran on this machine: a virtual machine that was off.",
        );
        // None only if the name or the bounds are no good, which a test would show.
        let times = Histogram::with_opts(options.buckets(BUCKETS_S.to_vec())).ok();
        let (known, stop) = (Arc::new(Mutex::new(SuspendStats::default())), Arc::new(AtomicBool::new(false)));
        let (shared, told, histogram) = (Arc::clone(&known), Arc::clone(&stop), times.clone());
        let thread = std::thread::spawn(move || {
            let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
            let measured = gaps(&mut |off| {
                if let Some(off) = off {
                    lock().add(off);
                    histogram.iter().for_each(|times| times.observe(off.as_secs_f64()));
                }
                if told.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            lock().problem = measured.err().map(|error| error.to_string());
        });
        Self { known, times, stop, thread: Some(thread) }
    }

    pub(crate) fn times(&self) -> Option<Histogram> {
        self.times.clone()
    }

    /// Value for the status document.
    pub(crate) fn view(&self) -> Value {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).view()
    }
}

impl SuspendStats {
    fn add(&mut self, off: Duration) {
        self.total += off;
        self.longest = self.longest.max(off);
        self.count += 1;
        self.last = Some(Instant::now());
    }

    fn view(&self) -> Value {
        json!({
            "times": self.count,
            "seconds": self.total.as_secs_f64(),
            "longest_seconds": self.longest.as_secs_f64(),
            "last_seconds_ago": self.last.map(|last| last.elapsed().as_secs_f64()),
            "problem": self.problem,
        })
    }
}

impl Drop for SuspendMonitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic of it was shown when it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspend_times_are_summed() {
        let suspend = SuspendMonitor::start();
        assert!(suspend.times().is_some());
        let mut known = SuspendStats::default();
        assert_eq!((&known.view()["times"], &known.view()["last_seconds_ago"]), (&json!(0), &Value::Null));
        [120, 480, 30].into_iter().for_each(|ms| known.add(Duration::from_millis(ms)));
        let view = known.view();
        assert_eq!(
            (&view["times"], &view["longest_seconds"], &view["seconds"]),
            (&json!(3), &json!(0.48), &json!(0.63))
        );
        assert!(view["last_seconds_ago"].is_f64());
    }
}
