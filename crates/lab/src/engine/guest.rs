//! Cases on the kernel of a small virtual machine.
//!
//! One guest serves all runs. It runs [`worker`](super::worker()) with a directory that it shares with the host; a run is
//! a file `<n>.job` there, answered by `<n>.progress` now and then and `<n>.answer` at the end.

use crate::engine::worker::{Answer, Job, POLL_INTERVAL, QUIT, place, take};
use crate::engine::{GuestRunError, OVERHEAD, checks, specs};
use crate::guest::{self, GuestError, GuestOptions, GuestOutput, KernelImage, WorkerProgram};
use crate::{Error, LabSpec};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
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

/// A booted guest and its shared directory.
#[derive(Debug)]
struct Worker {
    directory: tempfile::TempDir,
    guest: Option<JoinHandle<Result<GuestOutput, GuestError>>>,
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
            none => none.insert(Worker::start(&self.kernel, self.time_limit, &self.program)?),
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        worker.run(number, &Job { case: case.clone(), seed }, stop, progress)
    }
}

impl Worker {
    fn start(
        kernel: &KernelImage,
        time_limit: Duration,
        worker: &WorkerProgram,
    ) -> Result<Self, GuestRunError> {
        let directory = tempfile::Builder::new().prefix("vmcc-cases-").tempdir()?;
        let options = GuestOptions { time_limit, ..GuestOptions::default() };
        let (kernel, worker, shared) = (kernel.clone(), worker.clone(), directory.path().to_owned());
        let boot = move || worker.run(&kernel, shared, options);
        Ok(Self { directory, guest: Some(thread::spawn(boot)) })
    }

    fn run(
        &mut self,
        number: u32,
        job: &Job,
        stop: &AtomicBool,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<RunOutput, EngineError> {
        let directory = self.directory.path().to_owned();
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
            if self.guest.as_ref().is_none_or(JoinHandle::is_finished) {
                return Err(self.ended());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Error of a guest that ended before its run did.
    fn ended(&mut self) -> EngineError {
        match self.guest.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => error.into(),
            Some(Ok(Ok(output))) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let last = said.lines().last().unwrap_or("it said nothing").to_owned();
                GuestRunError::WorkerEnded { code: output.exit_code, last }.into()
            }
            Some(Err(_)) | None => GuestRunError::Gone.into(),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // If the file cannot be written, the guest ends at its time limit or with this process.
        if fs::write(self.directory.path().join(QUIT), "").is_ok()
            && let Some(guest) = self.guest.take()
        {
            drop(guest.join());
        }
    }
}
