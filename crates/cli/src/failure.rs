//! Outcomes of a command: exit codes and failures.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use vmcc_config::Diagnostic;
pub(crate) use vmcc_engine::chain;
use vmcc_engine::{EngineError, ErrorKind};
use vmcc_external::{Class, ExternalError};
use vmcc_results::folder::{FolderError, SUMMARY_FILE};
use vmcc_scenario::ScenarioError;

/// The exit codes that scripts can rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// A claim or check failed, or what was done could not be said.
    CheckFailed = 1,
    /// Wrong use or bad input.
    WrongUse = 2,
    /// This host cannot do it.
    HostCannot = 3,
    /// Interrupted, after cleaning up.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Failure of a command: object and cause in `message`, remedy in `help`.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Failure {
    fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, message: message.to_string(), help: None }
    }

    /// The user asked for something that is not there or makes no sense.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(Exit::WrongUse, message)
    }

    /// The request is fine; this host cannot fulfill it.
    pub(crate) fn host(message: impl Display) -> Self {
        Self::new(Exit::HostCannot, message)
    }

    /// Ctrl-C or a termination signal, after cleaning up.
    pub(crate) fn interrupted(message: impl Display) -> Self {
        Self::new(Exit::Interrupted, message)
    }

    /// Adds the remedy.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Failure for an error of an engine. Where its text has the remedy, `help` is empty.
pub(crate) fn engine_failure(error: &EngineError) -> Failure {
    let text = chain(error);
    let failure = match error.kind() {
        ErrorKind::BadInput => Failure::usage(text),
        ErrorKind::Interrupted => Failure::interrupted(text),
        _ => Failure::host(text),
    };
    match error.remedy() {
        Some(remedy) => failure.help(remedy),
        None => failure,
    }
}

/// Failure for an error of a user's own algorithm; its text has the remedy.
pub(crate) fn external_failure(error: &ExternalError) -> Failure {
    match error.class() {
        Class::BadInput => Failure::usage(error),
        Class::HostCannot => Failure::host(error),
        Class::Interrupted => Failure::interrupted(error),
    }
}

/// Failure for an error of a result folder, with the command-line remedy.
pub(crate) fn folder_failure(error: &FolderError, target: &Path) -> Failure {
    let target = target.display();
    match error {
        FolderError::Exists(path) => {
            // Only what vmcc made is safe to remove without a look.
            let ours = path.join(SUMMARY_FILE).is_file();
            let or_remove = if ours { ", or remove this one" } else { "" };
            Failure::usage(error).help(format!("give another folder with --out{or_remove}"))
        }
        FolderError::NotAFolder(_) => Failure::usage(error).help("give a folder with --out"),
        FolderError::NotAResult(_) => {
            Failure::usage(error).help("point at a folder that `vmcc run` made, such as one in vmcc-results")
        }
        FolderError::Unfinished(partial) => Failure::usage(error)
            .help(format!("add --resume to continue it, or remove {} to start over", partial.display())),
        FolderError::NothingToResume(_) => Failure::usage(error).help("leave out --resume to start"),
        FolderError::OtherPlan { path, .. } => Failure::usage(error).help(format!(
            "resume with the command that started it, or remove {} to start over",
            path.display()
        )),
        FolderError::InUse(_) => Failure::usage(error).help("wait for it, or give another folder with --out"),
        FolderError::DiskFull(_) => Failure::host(error).help(format!(
            "free some space, or put the results on another disk than that of {target} with --out"
        )),
        FolderError::Format { .. } => Failure::usage(error)
            .help("point at a folder that `vmcc run` of this version made, or run the scenario again"),
        _ => Failure::host(error).help("check that the folder exists, and its owner and permissions"),
    }
}

/// Failure for an error in a scenario; its own diagnostic has object, cause and place.
pub(crate) fn scenario_failure(error: &ScenarioError) -> Failure {
    match error {
        ScenarioError::Invalid(diagnostic) => located(diagnostic),
        ScenarioError::Read { source, .. } => {
            let missing = source.kind() == std::io::ErrorKind::NotFound;
            Failure::usage(chain(error)).help(if missing {
                "check the path; `vmcc scenarios` lists the built-in ones, `vmcc scenario show NAME > FILE.toml` makes a copy"
            } else {
                "check the file's owner and permissions"
            })
        }
        // These say in their message what to do.
        other => Failure::usage(chain(other)),
    }
}

/// Failure for an error of the agent.
#[cfg(feature = "kernel")]
pub(crate) fn agent_failure(error: &vmcc_agent::Error) -> Failure {
    if let vmcc_agent::Error::Config(fault) = error {
        return config_failure(fault);
    }
    let text = chain(error);
    let failure = if error.is_bad_request() { Failure::usage(text) } else { Failure::host(text) };
    match error.remedy() {
        Some(remedy) => failure.help(remedy),
        None => failure,
    }
}

/// Failure for an error in the agent's file; its own diagnostic has object, cause and place.
#[cfg(feature = "kernel")]
fn config_failure(fault: &vmcc_port::FileError) -> Failure {
    match fault {
        vmcc_port::FileError::Invalid(diagnostic) => located(diagnostic),
        other => {
            Failure::usage(chain(other)).help("give a TOML file as docs/reference/agent.md describes it")
        }
    }
}

/// A diagnostic, its help apart.
fn located(diagnostic: &Diagnostic) -> Failure {
    let mut bare = diagnostic.clone();
    let help = bare.help.take();
    let failure = Failure::usage(bare);
    match help {
        Some(help) => failure.help(help),
        None => failure,
    }
}

/// `what` needs the kernel engine, which this build does not have.
#[cfg(not(feature = "kernel"))]
pub(crate) fn without_kernel(what: &str) -> Failure {
    Failure::host(format!("{what}: this vmcc was built without the kernel engine")).help(
        "build it with `make build`, or `cargo build --release -p vmcc --features kernel` (needs clang, libelf and zlib)",
    )
}
