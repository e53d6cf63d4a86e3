//! Cases on the kernel of a small virtual machine.
//!
//! One guest serves all runs. It runs `vmcc internal guest-worker DIR` with a directory that it shares with the
//! host; a run is a file `<n>.job` there, answered by `<n>.progress` now and then and `<n>.answer` at the end.
//! Files are renamed into place, so that neither side reads half a file.

use crate::args::GuestProgram;
use crate::failure::{Exit, Failure, chain};
use crate::interrupt;
use crate::kernel::{checks, engine, lab_failure};
use crate::run::engine::{Engine, RunError};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vmcc_lab::guest::{self, Accel, Guest, GuestError, GuestOptions, GuestOutput, KernelImage, Stream};
use vmcc_lab::{ErrorKind, LabSpec};
use vmcc_results::RunOutput;
use vmcc_scenario::{Plan, ResolvedCase};

/// How often both sides look for files.
const POLL: Duration = Duration::from_millis(50);
/// The longest that a worker waits for its next run before it gives up on the host.
const IDLE_LIMIT: Duration = Duration::from_secs(120);
/// Time for a run beyond its duration: building, and emulation without KVM.
const OVERHEAD: Duration = Duration::from_secs(120);
const QUIT: &str = "quit";

/// What a run came to.
#[derive(Serialize, Deserialize)]
enum Answer {
    Output(Box<RunOutput>),
    Failed { exit: u8, message: String, help: Option<String> },
}

/// The guest engine.
struct GuestEngine {
    kernel: KernelImage,
    time_limit: Duration,
    next: AtomicU32,
    worker: Mutex<Option<Worker>>,
}

/// A booted guest and its shared directory.
struct Worker {
    directory: tempfile::TempDir,
    guest: Option<JoinHandle<Result<GuestOutput, GuestError>>>,
}

/// The guest engine, if this host can boot one and `plan` can be expressed.
pub(crate) fn guest(plan: &Plan) -> Result<Box<dyn Engine>, Failure> {
    engine::expressible(plan)?;
    checks::guest_engine()?;
    let kernel = guest::newest_kernel().map_err(|e| guest_failure(&e))?;
    let durations = plan.cases.iter().map(|c| Duration::from_nanos(c.scenario.duration.get()) + OVERHEAD);
    let time_limit = durations.sum::<Duration>() * plan.runs + OVERHEAD;
    Ok(Box::new(GuestEngine { kernel, time_limit, next: AtomicU32::new(0), worker: Mutex::new(None) }))
}

fn guest_failure(error: &GuestError) -> Failure {
    match error.kind() {
        ErrorKind::BadInput => Failure::usage(chain(error)),
        ErrorKind::Interrupted => Failure::interrupted(chain(error)),
        _ => Failure::host(chain(error)).help("`make setup-guest` prepares kernels for guests"),
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
        _seed: u64,
        stop: &AtomicBool,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<RunOutput, RunError> {
        let mut worker = self.worker.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if worker.is_none() {
            *worker = Some(Worker::start(&self.kernel, self.time_limit).map_err(RunError::Failed)?);
        }
        let Some(worker) = worker.as_mut() else { return Err(RunError::Interrupted) };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        worker.run(number, case, stop, progress)
    }
}

impl Worker {
    fn start(kernel: &KernelImage, time_limit: Duration) -> Result<Self, Failure> {
        let file = |e: io::Error| Failure::host(format!("engine guest: {e}"));
        let directory = tempfile::Builder::new().prefix("vmcc-cases-").tempdir().map_err(file)?;
        let program = std::env::current_exe().map_err(file)?;
        let shared = directory.path().to_owned();
        let options = GuestOptions {
            time_limit,
            shared_dir: Some(shared.clone()),
            stop: Some(interrupt::flag()),
            ..GuestOptions::default()
        };
        let kernel = kernel.clone();
        let arguments = ["internal".into(), "guest-worker".into(), shared.into_os_string()];
        let boot = move || Guest::new(options).run(&kernel, program, arguments);
        Ok(Self { directory, guest: Some(thread::spawn(boot)) })
    }

    fn run(
        &mut self,
        number: u32,
        case: &ResolvedCase,
        stop: &AtomicBool,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<RunOutput, RunError> {
        let directory = self.directory.path().to_owned();
        let failed =
            |e: &dyn std::fmt::Display| RunError::Failed(Failure::host(format!("engine guest: {e}")));
        place(&directory, &format!("{number}.job"), case).map_err(|e| failed(&e))?;
        loop {
            if stop.load(Ordering::SeqCst) {
                return Err(RunError::Interrupted);
            }
            if let Some(answer) = take::<Answer>(&directory, &format!("{number}.answer")) {
                return match answer {
                    Answer::Output(output) => Ok(*output),
                    Answer::Failed { message, help, exit } => {
                        let usage = exit == Exit::WrongUse as u8;
                        let failure = if usage { Failure::usage(message) } else { Failure::host(message) };
                        Err(RunError::Failed(Failure { help, ..failure }))
                    }
                };
            }
            if let Some(fraction) = take::<f64>(&directory, &format!("{number}.progress")) {
                progress(fraction);
            }
            if self.guest.as_ref().is_none_or(JoinHandle::is_finished) {
                return Err(self.ended());
            }
            thread::sleep(POLL);
        }
    }

    /// Why the guest is gone although it still had something to do.
    fn ended(&mut self) -> RunError {
        match self.guest.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) if error.kind() == ErrorKind::Interrupted => RunError::Interrupted,
            Some(Ok(Err(error))) => RunError::Failed(guest_failure(&error)),
            Some(Ok(Ok(output))) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let last = said.lines().last().unwrap_or("it said nothing").to_owned();
                let message =
                    format!("engine guest: the worker ended with code {}: {last}", output.exit_code);
                RunError::Failed(Failure::host(message).help("try `vmcc internal guest -- vmcc doctor`"))
            }
            Some(Err(_)) | None => RunError::Failed(Failure::host("engine guest: the guest is gone")),
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

fn place(directory: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    let temporary = directory.join(format!("{name}.new"));
    fs::write(&temporary, serde_json::to_vec(value)?)?;
    fs::rename(&temporary, directory.join(name))
}

/// Reads and removes a file; `None` when it is not there (yet).
fn take<T: for<'de> Deserialize<'de>>(directory: &Path, name: &str) -> Option<T> {
    let path = directory.join(name);
    let text = fs::read(&path).ok()?;
    let value = serde_json::from_slice(&text).ok()?;
    fs::remove_file(&path).ok()?;
    Some(value)
}

/// The other side: runs inside the guest until it is told to quit.
pub(crate) fn worker(directory: &Path) -> Result<Exit, Failure> {
    let mut waiting = Instant::now();
    for number in 0_u32.. {
        let case: ResolvedCase = loop {
            if directory.join(QUIT).exists() || waiting.elapsed() > IDLE_LIMIT {
                return Ok(Exit::Done);
            }
            match take(directory, &format!("{number}.job")) {
                Some(case) => break case,
                None => thread::sleep(POLL),
            }
        };
        let answer = answer(directory, number, &case);
        place(directory, &format!("{number}.answer"), &answer)
            .map_err(|e| Failure::host(format!("{}: {e}", directory.display())))?;
        waiting = Instant::now();
    }
    Ok(Exit::Done)
}

fn answer(directory: &Path, number: u32, case: &ResolvedCase) -> Answer {
    let result = LabSpec::try_from(case).and_then(|spec| {
        let mut report = |p: &vmcc_lab::Progress| {
            let fraction = p.elapsed.as_secs_f64() / p.total.as_secs_f64().max(1e-9);
            // Progress that is not seen is no reason to stop.
            let _ = place(directory, &format!("{number}.progress"), &fraction);
        };
        let cancel = AtomicBool::new(false);
        let programs = vmcc_lab::Programs::default();
        vmcc_lab::run(&spec, &mut vmcc_lab::Control { cancel: &cancel, progress: &mut report, programs })
    });
    match result {
        Ok(output) => Answer::Output(Box::new(output)),
        Err(error) => {
            let failure = lab_failure(&error);
            Answer::Failed { exit: failure.exit as u8, message: failure.message, help: failure.help }
        }
    }
}

/// `vmcc internal guest`: any program in a guest; its output and exit code are ours.
pub(crate) fn program(options: &GuestProgram) -> Result<Exit, Failure> {
    let kernel = match &options.kernel {
        Some(series) => guest::kernel(series),
        None => guest::newest_kernel(),
    };
    let kernel = kernel.map_err(|e| guest_failure(&e))?;
    let guest = Guest::new(GuestOptions {
        time_limit: Duration::from_secs(options.time_limit),
        shared_dir: options.share.as_deref().map(absolute).transpose()?,
        stop: Some(interrupt::listen()?),
        accel: options.count_instructions.then_some(Accel::Counted),
        ..GuestOptions::default()
    });
    let mut pass_on = |stream: Stream, bytes: &[u8]| {
        // A reader that went away does not stop the guest; its exit code still counts.
        let _ = match stream {
            Stream::Stdout => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
            Stream::Stderr => io::stderr().write_all(bytes),
        };
    };
    let (program, arguments) = options.program.split_first().ok_or_else(|| Failure::usage("no program"))?;
    let output =
        guest.run_streaming(&kernel, program, arguments, &mut pass_on).map_err(|e| guest_failure(&e))?;
    std::process::exit(output.exit_code)
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|e| Failure::usage(format!("--share {}: {e}", path.display())))
}
