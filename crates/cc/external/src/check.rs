//! Checks that hold for every algorithm, run in a process of their own: a crash or an endless loop is named, not suffered.
//!
//! The process writes what it is at to its output, a line each, then the result; see [`Line`].

use crate::error::ExternalError;
use crate::library;
use crate::process::{self, Limits, RunError};
use crate::source::Source;
use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vmcc_cc::trace::{Conduct, Seeded, Source as Numbers, Step, Walk, vary_params};
use vmcc_cc::{Algorithm, MAX_PATHS, Params, Sharing, vectors};

/// Limits of the check; it computes for a hundredth. A busy host may let it wait for long.
const LIMITS: Limits = Limits { cpu_s: 10, time: Duration::from_secs(300) };
/// Events of each hook that is called alone.
const HOOK_EVENTS: usize = 2000;
/// Steps of each connection.
const CONNECTION_STEPS: usize = 400;

/// Files of the workspace that the process reads.
pub(crate) const LIBRARY: &str = "check.so";
pub(crate) const VECTORS: &str = "vectors.csv";

/// Stages of the check that are treated on their own.
const LOADING: &str = "its loading";
const OF_VECTORS: &str = "its vectors";

/// Program that runs [`worker`] with the arguments that follow its own: a folder and a file.
#[derive(Debug, Clone)]
pub struct Checker {
    /// The program.
    pub program: PathBuf,
    /// Its arguments before the folder.
    pub arguments: Vec<OsString>,
    /// Ends compilers and the program when it becomes true.
    pub stop: &'static AtomicBool,
}

/// Extent of a check that passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Calls of single hooks and steps of connections.
    pub steps: usize,
    /// Values of the vector file; `None` without one.
    pub vectors: Option<usize>,
}

/// A line of the process's output.
enum Line {
    At(String),
    Broken(String),
    Unloadable(String),
    Passed(Passed),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(stage) => writeln!(f, "at {stage}"),
            Self::Broken(problem) => writeln!(f, "broken {}", problem.replace('\n', " ")),
            Self::Unloadable(problem) => writeln!(f, "unloadable {}", problem.replace('\n', " ")),
            Self::Passed(Passed { steps, vectors }) => {
                let vectors = vectors.map_or_else(|| "-".to_owned(), |vectors| vectors.to_string());
                writeln!(f, "passed {steps} {vectors}")
            }
        }
    }
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ')?;
        Some(match kind {
            "at" => Self::At(rest.to_owned()),
            "broken" => Self::Broken(rest.to_owned()),
            "unloadable" => Self::Unloadable(rest.to_owned()),
            "passed" => {
                let (steps, vectors) = rest.split_once(' ')?;
                Self::Passed(Passed { steps: steps.parse().ok()?, vectors: vectors.parse().ok() })
            }
            _ => return None,
        })
    }
}

impl Checker {
    /// Runs the check of the shared object in `folder`.
    pub(crate) fn run(&self, source: &Source, folder: &Path) -> Result<Passed, ExternalError> {
        let path = || source.path.clone();
        let failed = |problem: String| ExternalError::Check { path: path(), problem };
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(folder).arg(&source.path);
        let (stdout, ended) = match process::run(&mut command, LIMITS, self.stop) {
            Ok(Output { status, stdout, stderr }) => (stdout, Some((status, stderr))),
            Err(RunError::Timeout { stdout, .. }) => (stdout, None),
            Err(RunError::Interrupted) => return Err(ExternalError::Interrupted),
            Err(RunError::System(error)) => {
                return Err(failed(format!("{}: {error}", self.program.display())));
            }
        };
        let (stage, result) = read(&stdout);
        let broken = |path: PathBuf, problem: String| {
            let stage = stage.clone().unwrap_or_else(|| LOADING.to_owned());
            Err(ExternalError::Broken { path, stage, problem })
        };
        let Some((status, stderr)) = ended else {
            let limit = LIMITS.time.as_secs();
            return broken(
                path(),
                format!("it waits and does not end within {limit} s; a hook calls nothing of the system"),
            );
        };
        match (status.signal(), result) {
            (Some(signal), _) => broken(path(), crash(signal)),
            (None, Some(Line::Passed(passed))) if status.success() => Ok(passed),
            (None, Some(Line::Unloadable(problem))) => {
                Err(ExternalError::Load { path: path(), folder: folder.to_owned(), problem })
            }
            (None, Some(Line::Broken(problem))) if stage.as_deref() == Some(OF_VECTORS) => {
                broken(path().with_extension("csv"), problem)
            }
            (None, Some(Line::Broken(problem))) => broken(path(), problem),
            (None, None) if stage.is_some() && stderr.is_empty() => {
                broken(path(), format!("it ends its process ({status}); a hook calls nothing of the system"))
            }
            _ => {
                let said = String::from_utf8_lossy(&stderr);
                Err(failed(format!("its process ended with {status}: {}", said.trim())))
            }
        }
    }
}

/// The last stage and the result, in the output of the process.
fn read(output: &[u8]) -> (Option<String>, Option<Line>) {
    let (mut stage, mut result) = (None, None);
    for line in String::from_utf8_lossy(output).lines() {
        match Line::parse(line) {
            Some(Line::At(at)) => stage = Some(at),
            Some(line) => result = Some(line),
            None => {}
        }
    }
    (stage, result)
}

/// Meaning of the signal that ended the process.
fn crash(signal: i32) -> String {
    use nix::sys::signal::Signal;
    match Signal::try_from(signal) {
        Ok(Signal::SIGSEGV | Signal::SIGBUS) => {
            "it reads or writes memory that is not its own; `group` is NULL for a single path, and a slot's index is below CC_MAX_PATHS"
                .to_owned()
        }
        Ok(Signal::SIGILL | Signal::SIGTRAP | Signal::SIGFPE) => {
            "it does what C leaves undefined: division by zero, an index or a shift out of range, signed overflow, or a NULL `group`"
                .to_owned()
        }
        Ok(Signal::SIGXCPU) => {
            format!("it does not end within {} s of CPU time; bound its loops by a constant", LIMITS.cpu_s)
        }
        Ok(signal) => format!("its process was ended by {signal}"),
        Err(_) => format!("its process was ended by signal {signal}"),
    }
}

/// Runs the check of a workspace, in the process that [`Checker`] started. Its output is that of this process.
pub fn worker(folder: &Path, file: &Path) {
    let mut output = std::io::stdout();
    let mut report = |line: Line| {
        // A reader that is gone needs no line.
        let _ = write!(output, "{line}").and_then(|()| output.flush());
    };
    let result = all(folder, file, &mut |stage| report(Line::At(stage)));
    report(result.map_or_else(|line| line, Line::Passed));
}

type Stage<'a> = &'a mut dyn FnMut(String);

fn all(folder: &Path, file: &Path, at: Stage<'_>) -> Result<Passed, Line> {
    at(LOADING.to_owned());
    let unusable = |error: ExternalError| match error {
        ExternalError::Load { problem, .. } => Line::Unloadable(problem),
        other => {
            let problem = other.to_string();
            // The other process names the file.
            let bare = problem.strip_prefix(&format!("{}: ", file.display()));
            Line::Broken(bare.unwrap_or(&problem).to_owned())
        }
    };
    let source = Source::read(file).map_err(unusable)?;
    let algorithm = library::register(&source, &folder.join(LIBRARY)).map_err(unusable)?;
    let mut steps = hooks(algorithm, at);
    for conduct in [Conduct::Lawful, Conduct::Wild] {
        for paths in 1..=MAX_PATHS {
            let events = if conduct == Conduct::Lawful { "valid" } else { "any" };
            at(format!("a connection of {paths} paths with {events} events"));
            steps += connection(algorithm, paths, conduct).map_err(Line::Broken)?;
        }
    }
    let vectors = match std::fs::read_to_string(folder.join(VECTORS)) {
        Err(_) => None,
        Ok(text) => {
            at(OF_VECTORS.to_owned());
            Some(vectors::run(algorithm, &text).map_err(Line::Broken)?)
        }
    };
    Ok(Passed { steps, vectors })
}

/// Calls each hook alone, on any state and any event.
fn hooks(algorithm: Algorithm, at: Stage<'_>) -> usize {
    type Call = fn(
        &Algorithm,
        &vmcc_cc::Event,
        &mut vmcc_cc::Path,
        Option<&vmcc_cc::Group>,
        &Params,
    ) -> vmcc_cc::Decision;
    let hooks: [(&str, Call); 5] = [
        ("init", Algorithm::init),
        ("on_ack", Algorithm::on_ack),
        ("on_congestion", Algorithm::on_congestion),
        ("on_grow", Algorithm::on_grow),
        ("on_state", Algorithm::on_state),
    ];
    let reno = Algorithm::by_name("reno").expect("in the registry");
    // Reno moves the connections, so that each hook is given what another hook did not prepare.
    let events = || {
        let walk =
            |paths| Walk::new(reno, Params::defaults(reno), paths, Conduct::Wild, Seeded(paths as u64));
        let steps = |paths| {
            let mut walk = walk(paths).expect("endless");
            std::iter::from_fn(move || walk.advance())
        };
        steps(1).take(HOOK_EVENTS / 2).chain(steps(MAX_PATHS).take(HOOK_EVENTS / 2))
    };
    let params = Params::defaults(algorithm);
    let mut calls = 0;
    for (name, hook) in hooks {
        at(format!("{}_{name}", algorithm.name()));
        for step in events() {
            let (mut path, group) = (step.before.path, (step.grouped != 0).then_some(&step.group));
            hook(&algorithm, &step.event, &mut path, group, &params);
            calls += 1;
        }
    }
    if algorithm.info().detects {
        at(format!("{}_detect", algorithm.name()));
        let mut sharing = Sharing::default();
        for step in events() {
            algorithm.detect(&step.event, &step.group, &mut sharing, &params);
            calls += 1;
        }
    }
    calls
}

/// Walks a connection twice in step: its invariants hold, and both do the same.
fn connection(algorithm: Algorithm, paths: usize, conduct: Conduct) -> Result<usize, String> {
    let mut numbers = Seeded(paths as u64);
    let mut steps = 0;
    for varied in [false, true] {
        let mut params = Params::defaults(algorithm);
        if varied {
            vary_params(&mut params, &mut numbers).expect("endless");
        }
        let source = Seeded(numbers.next().expect("endless"));
        let walk = || Walk::new(algorithm, params, paths, conduct, source.clone()).expect("endless");
        let (mut one, mut two) = (walk(), walk());
        for _ in 0..CONNECTION_STEPS {
            let (step, same) = (one.advance().expect("endless"), two.advance().expect("endless"));
            if let Some(rule) = step.broken_rule() {
                return Err(broken(rule, &step));
            }
            if step != same {
                return Err("the same events on the same state give another result".to_owned());
            }
            steps += 1;
        }
    }
    Ok(steps)
}

/// A broken rule, with the step that broke it.
fn broken(rule: &str, step: &Step) -> String {
    let Step { event, before, after, .. } = step;
    format!(
        "this does not hold: {rule}; cwnd {} -> {}, ssthresh {} -> {}, credit {} -> {}, with {event:?}",
        before.cwnd_pkt,
        after.cwnd_pkt,
        before.ssthresh_pkt,
        after.ssthresh_pkt,
        before.path.credit_q40,
        after.path.credit_q40
    )
}
