//! Progress of a run, on stderr: a bar on a terminal, occasional lines elsewhere.

use crate::ui::Ui;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Nothing is shown for runs shorter than this.
const FIRST_REPORT_DELAY: Duration = Duration::from_secs(2);
/// Without a terminal, at most one line in this time.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Before this fraction is done, what is left cannot be told from the start-up.
const KNOWN_FROM: f64 = 0.01;
/// Steps of the bar: fine enough that it moves.
const STEPS: f64 = 10_000.0;

/// Progress of many runs, some at the same time.
pub(crate) struct Progress<'a> {
    ui: &'a Ui,
    bar: ProgressBar,
    runs: usize,
    done: Mutex<Done>,
    /// Fraction that an interrupted predecessor has done.
    before: f64,
    started: Instant,
    lines: Mutex<Lines>,
}

/// Work done of all runs.
struct Done {
    /// Of each run, 0 to 1.
    fractions: Vec<f64>,
    sum: f64,
    /// Runs that are done.
    whole: usize,
}

struct Lines {
    bar_shown: bool,
    last: Instant,
}

impl<'a> Progress<'a> {
    /// For `runs` runs, of which `finished` were finished before.
    pub(crate) fn new(ui: &'a Ui, runs: usize, finished: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(STEPS as u64), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:32}] {percent:>3}%, {prefix} left") {
            bar.set_style(style.progress_chars("=> "));
        }
        let now = Instant::now();
        Self {
            ui,
            bar,
            runs,
            done: Mutex::new(Done { fractions: vec![0.0; runs], sum: 0.0, whole: 0 }),
            before: finished as f64 / runs.max(1) as f64,
            started: now,
            lines: Mutex::new(Lines { bar_shown: false, last: now }),
        }
    }

    /// Run `index` has done `fraction` (0 to 1) of its work.
    pub(crate) fn update(&self, index: usize, fraction: f64) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = done.fractions.get_mut(index) {
            let now = fraction.clamp(0.0, 1.0);
            let before = std::mem::replace(slot, now);
            done.sum += now - before;
            done.whole = done.whole + usize::from(now >= 1.0) - usize::from(before >= 1.0);
        }
        drop(done);
        self.show();
    }

    /// Fraction done of all runs, and the number of whole ones.
    fn done(&self) -> (f64, usize) {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        (done.sum / done.fractions.len().max(1) as f64, done.whole)
    }

    /// The time that is left when `fraction` is done `elapsed` after the start: only what was done since counts.
    fn remaining(&self, elapsed: Duration, fraction: f64) -> String {
        remaining(elapsed, (fraction - self.before) / (1.0 - self.before).max(f64::EPSILON))
    }

    fn show(&self) {
        if self.ui.quiet() || self.started.elapsed() < FIRST_REPORT_DELAY {
            return;
        }
        let (fraction, whole) = self.done();
        let counts = format!("{whole} of {} runs", self.runs);
        let left = self.remaining(self.started.elapsed(), fraction);
        // Another thread that is showing shows this as well.
        let Ok(mut lines) = self.lines.try_lock() else { return };
        if self.ui.bars() {
            // Before it is shown: a bar without its first position claims that nothing is left.
            self.bar.set_message(counts);
            self.bar.set_prefix(left);
            self.bar.set_position((fraction * STEPS) as u64);
            if !lines.bar_shown {
                lines.bar_shown = true;
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
                self.bar.enable_steady_tick(Duration::from_millis(500));
            }
        } else if lines.last.elapsed() >= LINE_INTERVAL {
            lines.last = Instant::now();
            self.ui.note(&format!("{counts}, {:.0} %, about {left} left", fraction * 100.0));
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn remaining(elapsed: Duration, fraction: f64) -> String {
    if fraction < KNOWN_FROM {
        return "an unknown time".to_owned();
    }
    let seconds = (elapsed.as_secs_f64() * (1.0 - fraction) / fraction).round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_extrapolates() {
        assert_eq!(remaining(Duration::from_secs(10), 0.5), "10 s");
        assert_eq!(remaining(Duration::from_secs(30), 0.1), "4 min 30 s");
        assert_eq!(remaining(Duration::from_secs(3600), 0.25), "3 h 0 min");
        assert_eq!(remaining(Duration::from_secs(1), 0.0), "an unknown time");
    }

    #[test]
    fn resumed_cases_are_excluded_from_the_estimate() {
        let ui = Ui::new(false, true);
        let resumed = Progress::new(&ui, 100, 90);
        assert_eq!(resumed.remaining(Duration::from_secs(10), 0.95), "10 s");
        assert_eq!(resumed.remaining(Duration::from_secs(10), 0.9), "an unknown time");
        let complete = Progress::new(&ui, 1, 1);
        assert_eq!(complete.remaining(Duration::from_secs(1), 1.0), "an unknown time");
    }

    #[test]
    fn overall_progress_is_the_mean_of_the_runs() {
        let ui = Ui::new(false, true);
        let progress = Progress::new(&ui, 4, 0);
        progress.update(0, 1.0);
        progress.update(1, 0.5);
        progress.update(9, 1.0);
        assert_eq!(progress.done(), (0.375, 1));
    }
}
