//! Cases on the kernel of a small virtual machine.
//!
//! One guest serves all runs. It runs [`worker`](super::worker()) with a directory that it shares with the host; a run is
//! a file `<n>.job` there, answered by `<n>.progress` now and then and `<n>.answer` at the end.

use crate::engine::worker::{Answer, Job, POLL_INTERVAL};
use crate::engine::{GuestRunError, OVERHEAD, checks, specs};
use crate::guest::{self, GuestOptions, KernelImage, Worker, WorkerEnd, WorkerProgram, place, take};
use crate::{Error, LabSpec};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use vmcc_engine::{Engine, EngineError};
use vmcc_results::RunOutput;
use vmcc_scenario::{Plan, ResolvedCase};

/// The guest engine.
#[derive(Debug)]
pub struct GuestEngine {
    kernel: KernelImage,
    time_limit: Duration,
    program: WorkerProgram,
    next: AtomicU32,
    worker: Mutex<Option<Worker>>,
}

impl GuestEngine {
    /// The guest engine for `plan`; its guest boots with the first run.
    ///
    /// # Errors
    /// The lab cannot express the plan, or this host cannot boot a guest.
    pub fn for_plan(plan: &Plan, program: WorkerProgram) -> Result<Self, EngineError> {
        let specs = specs(plan)?;
        if let Some((key, host)) = specs.iter().find_map(LabSpec::first_machine) {
            return Err(EngineError::from(Error::NotExpressible {
                key: key.to_owned(),
                problem: format!("{host} would be a virtual machine in a virtual machine"),
                remedy: "use `--engine kernel` or `--engine sim`".to_owned(),
            }));
        }
        checks::guest_usable()?;
        let kernel = guest::newest_kernel()?;
        let durations = plan.cases.iter().map(|c| Duration::from_nanos(c.scenario.duration.get()) + OVERHEAD);
        let time_limit = durations.sum::<Duration>() * plan.runs + OVERHEAD;
        Ok(Self { kernel, time_limit, program, next: AtomicU32::new(0), worker: Mutex::new(None) })
    }
}

impl Engine for GuestEngine {
    fn name(&self) -> &'static str {
        "guest"
    }

    fn most_jobs(&self) -> Option<usize> {
        Some(1)
    }

    fn facts(&self) -> Vec<(String, String)> {
        vec![("kernel".to_owned(), self.kernel.release().to_owned())]
    }

    fn run(
        &self,
        case: &ResolvedCase,
        seed: u64,
        stop: &AtomicBool,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<RunOutput, EngineError> {
        let mut worker = self.worker.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let worker = match &mut *worker {
            Some(running) => running,
            none => none.insert(start(&self.kernel, self.time_limit, &self.program)?),
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        run(worker, number, &Job { case: case.clone(), seed }, stop, progress)
    }
}

/// Boots the guest.
fn start(
    kernel: &KernelImage,
    time_limit: Duration,
    program: &WorkerProgram,
) -> Result<Worker, GuestRunError> {
    let directory = tempfile::Builder::new().prefix("vmcc-cases-").tempdir()?;
    let options = GuestOptions { time_limit, ..GuestOptions::default() };
    Ok(Worker::start(directory, kernel.clone(), program.clone(), options))
}

fn run(
    worker: &mut Worker,
    number: u32,
    job: &Job,
    stop: &AtomicBool,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<RunOutput, EngineError> {
    let directory = worker.directory().to_owned();
    place(&directory, &format!("{number}.job"), job).map_err(GuestRunError::from)?;
    loop {
        if stop.load(Ordering::SeqCst) {
            return Err(GuestRunError::Interrupted.into());
        }
        if let Some(answer) = take::<Answer>(&directory, &format!("{number}.answer")) {
            return match answer {
                Answer::Output(output) => Ok(*output),
                Answer::Failed { kind, message } => {
                    Err(EngineError::new(kind, GuestRunError::Case { message }))
                }
            };
        }
        if let Some(fraction) = take::<f64>(&directory, &format!("{number}.progress")) {
            progress(fraction);
        }
        match worker.ended() {
            None => thread::sleep(POLL_INTERVAL),
            Some(WorkerEnd::Failed(error)) => return Err(error.into()),
            Some(WorkerEnd::Exited { code, last }) => {
                return Err(GuestRunError::WorkerEnded { code, last }.into());
            }
            Some(WorkerEnd::Gone) => return Err(GuestRunError::Gone.into()),
        }
    }
}
