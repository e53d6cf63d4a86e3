//! Common parts of the tests of all crates.
//!
//! # Verdicts on a shared machine
//!
//! A rate that a test measures depends on what else the machine does. [`judge`] tells the two apart by a control: something
//! simpler on the same path, whose nominal result is known. A failed verdict counts only if the control reached its share
//! right before and after it.
//!
//! | outcome | condition |
//! |---|---|
//! | passed | a verdict holds, in any attempt |
//! | failed | the verdict fails in [`FAILURES`] attempts whose controls were conclusive |
//! | inconclusive | neither within [`ATTEMPTS`] attempts |
//!
//! An inconclusive test does not fail. Its name is appended to the file that the environment variable [`INCONCLUSIVE_FILE`]
//! names; the test runner reports these names and limits their number.

pub mod allocations;
#[cfg(target_os = "linux")]
pub mod control;
pub mod damage;
#[cfg(target_os = "linux")]
pub mod netns;
#[cfg(target_os = "linux")]
pub mod paths;
#[cfg(target_os = "linux")]
pub mod port;
#[cfg(target_os = "linux")]
pub mod terminal;

use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Attempts until a test is inconclusive.
pub const ATTEMPTS: u32 = 4;

/// Failed verdicts with conclusive controls until a test has failed.
pub const FAILURES: u32 = 2;

/// Share of its nominal result from which a control is conclusive.
pub const CONCLUSIVE_SHARE: f64 = 0.9;

/// Environment variable that names the file for the names of inconclusive tests.
pub const INCONCLUSIVE_FILE: &str = "VMCC_INCONCLUSIVE";

/// Outcome of [`judge`], if the test has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A verdict held.
    Passed,
    /// The machine carried too little to judge.
    Inconclusive,
}

/// Measures until `verdict` holds, or fails while the machine can carry what is asked of it.
///
/// `verdict` panics if what was measured is wrong, as assertions do. `control` returns the share of its nominal result that
/// the control reached (1 on an idle machine); it is measured only after failed verdicts, and sees what failed.
///
/// # Panics
/// With the verdict's panic, when the test has failed.
pub fn judge<T>(
    mut measure: impl FnMut() -> T,
    verdict: impl Fn(&T),
    mut control: impl FnMut(&T) -> f64,
) -> Outcome {
    let mut failures = 0;
    // The control before the first attempt is not known.
    let mut before = 1.0_f64;
    for attempt in 1..=ATTEMPTS {
        let measured = measure();
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| verdict(&measured))) else {
            return Outcome::Passed;
        };
        let after = control(&measured);
        println!("attempt {attempt} failed; the control reached {before:.2} before and {after:.2} after it");
        if before.min(after) >= CONCLUSIVE_SHARE {
            failures += 1;
            if failures == FAILURES {
                resume_unwind(panic);
            }
        }
        before = after;
    }
    report_inconclusive();
    Outcome::Inconclusive
}

/// Tests run in a thread of their name.
fn report_inconclusive() {
    let thread = std::thread::current();
    let line = format!("inconclusive: {}\n", thread.name().unwrap_or("a test"));
    print!("{line}");
    if let Some(path) = std::env::var_os(INCONCLUSIVE_FILE) {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the runner's file is writable");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A machine that carries what `shares` say, one after the other.
    fn judged(shares: &[f64], fault: f64) -> (std::thread::Result<Outcome>, u32) {
        let (measured, controls) = (Cell::new(0), Cell::new(0));
        let share = |at: u32| shares[(at as usize).min(shares.len() - 1)];
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            judge(
                || {
                    measured.set(measured.get() + 1);
                    share(measured.get() - 1) * fault
                },
                |rate| assert!(*rate > 0.95, "{rate}"),
                |_| {
                    controls.set(controls.get() + 1);
                    share(controls.get() - 1)
                },
            )
        }));
        (outcome, measured.get())
    }

    #[test]
    fn sound_program_passes_on_an_idle_machine_at_once() {
        let (outcome, attempts) = judged(&[1.0], 1.0);
        assert_eq!((outcome.unwrap(), attempts), (Outcome::Passed, 1));
    }

    #[test]
    fn sound_program_passes_when_the_machine_is_idle_again() {
        let (outcome, attempts) = judged(&[0.5, 0.6, 1.0], 1.0);
        assert_eq!((outcome.unwrap(), attempts), (Outcome::Passed, 3));
    }

    #[test]
    fn sound_program_is_inconclusive_on_a_busy_machine() {
        let (outcome, attempts) = judged(&[0.5], 1.0);
        assert_eq!((outcome.unwrap(), attempts), (Outcome::Inconclusive, ATTEMPTS));
    }

    #[test]
    fn faulty_program_fails_on_an_idle_machine() {
        let (outcome, attempts) = judged(&[1.0], 0.9);
        assert!(outcome.is_err());
        assert_eq!(attempts, FAILURES);
    }

    #[test]
    fn faulty_program_fails_once_the_machine_is_idle() {
        let (outcome, attempts) = judged(&[0.5, 1.0], 0.9);
        assert!(outcome.is_err());
        assert_eq!(attempts, 4, "the attempt beside a busy machine, and the one after it, do not count");
    }
}
