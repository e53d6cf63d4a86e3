//! The guest's side of the guest engine: runs the cases that the host puts into a directory.

use crate::engine::fraction;
use crate::guest::{QUIT, place, take};
use crate::{Control, Error, LabSpec, Programs};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_engine::{ErrorKind, chain};
use vmcc_results::RunOutput;
use vmcc_scenario::ResolvedCase;

/// Interval at which both sides poll for files.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The longest that a worker waits for its next run before it gives up on the host.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// One run.
#[derive(Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) case: ResolvedCase,
    /// Of what is random.
    pub(super) seed: u64,
}

impl Job {
    fn spec(&self) -> Result<LabSpec, Error> {
        Ok(LabSpec::try_from(&self.case)?.with_seed(self.seed))
    }
}

/// Result of a run.
#[derive(Serialize, Deserialize)]
pub(super) enum Answer {
    Output(Box<RunOutput>),
    Failed { kind: ErrorKind, message: String },
}

/// Runs inside the guest until a request to quit.
///
/// # Errors
/// An answer cannot be written into `directory`.
pub fn worker(directory: &Path) -> Result<(), Error> {
    let mut waiting = Instant::now();
    for number in 0_u32.. {
        let job: Job = loop {
            if directory.join(QUIT).exists() || waiting.elapsed() > IDLE_TIMEOUT {
                return Ok(());
            }
            match take(directory, &format!("{number}.job")) {
                Some(job) => break job,
                None => thread::sleep(POLL_INTERVAL),
            }
        };
        let answer = answer(directory, number, &job);
        place(directory, &format!("{number}.answer"), &answer).map_err(|e| Error::file(directory, e))?;
        waiting = Instant::now();
    }
    Ok(())
}

fn answer(directory: &Path, number: u32, job: &Job) -> Answer {
    let result = job.spec().and_then(|spec| {
        let mut report = |p: &crate::Progress| {
            // Progress that is not seen is no reason to stop.
            let _ = place(directory, &format!("{number}.progress"), &fraction(p));
        };
        let cancel = AtomicBool::new(false);
        let programs = Programs::default();
        crate::run(&spec, &mut Control { cancel: &cancel, progress: &mut report, programs, machine: None })
    });
    match result {
        Ok(output) => Answer::Output(Box::new(output)),
        Err(error) => Answer::Failed { kind: error.kind(), message: chain(&error) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_depend_on_the_seed() {
        let case = crate::convert::tests::case(
            "[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20us'\n\
             [[traffic]]\nkind='poisson'\nload=0.2\nsizes='100kB'\n",
        );
        let flows = |seed| Job { case: case.clone(), seed }.spec().expect("a lab").flows;
        assert_eq!(flows(3), flows(3));
        assert_ne!(flows(3), flows(4), "each has arrivals of its own");
    }
}
