//! Errors of changing or reading a host.

use std::io;
use std::path::{Path, PathBuf};
use vmcc_bpf::{ControlError, LoadError};
use vmcc_cc::Algorithm;
use vmcc_port::FileError;
use vmcc_port::PortError;
use vmcc_system::KernelError;
use vmcc_system::diag::DiagError;

/// Error of an operation on this host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Only root may.
    #[error("{refusal}")]
    NotRoot {
        /// Operation that needs root, as a sentence.
        refusal: String,
    },
    /// Somebody else has the algorithm now, and takes it away when it ends.
    #[error("up: {kernel_name} belongs to another vmcc process that runs now")]
    Taken {
        /// Name in the kernel.
        kernel_name: &'static str,
    },
    /// A port that stays served cannot be held by a process that ends.
    #[error(
        "port {port} is served until `vmcc unmark {port}`; --foreground would end that with this process"
    )]
    StaysServed {
        /// The port.
        port: String,
    },
    /// A port that was held went away.
    #[error("port {port} is gone, and with it what served it")]
    PortGone {
        /// The port.
        port: String,
    },
    /// The agent's file is not usable.
    #[error(transparent)]
    Config(#[from] FileError),
    /// There is one agent on a host.
    #[error("the agent runs already: process {pid}")]
    AgentRuns {
        /// The process.
        pid: u32,
    },
    /// Its process was stopped, so it answers nobody.
    #[error("the agent, process {pid}, is stopped and answers nobody")]
    AgentStopped {
        /// The process.
        pid: i32,
    },
    /// It was told to end and does not.
    #[error("the agent, process {pid}, cannot be ended: {why}")]
    AgentStays {
        /// The process.
        pid: u32,
        /// Cause.
        why: String,
    },
    /// State of the agent on disk cannot be used.
    #[error("{}: {source}", path.display())]
    State {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Nothing can be waited for.
    #[error("cannot wait for signals and changes: {0}")]
    Wait(#[source] io::Error),
    /// Nobody could ask the agent.
    #[error("cannot create the control socket: {0}")]
    Socket(#[source] io::Error),
    /// The encoder refuses figures.
    #[error("figures cannot be written as Prometheus reads them: {0}")]
    Figures(String),
    /// An algorithm does not load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Loaded programs cannot be read or changed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A port is not served, or not as asked.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The sockets cannot be listed.
    #[error(transparent)]
    Sockets(#[from] DiagError),
}

/// Remedy where only root is allowed.
const SUDO: &str = "run it with sudo";
const DOCTOR: &str = "`vmcc doctor` says what this kernel lacks";
/// Remedy for an algorithm of the user's own that the kernel's verifier refuses.
pub const VERIFIER_RULES: &str = "the verifier follows both sides of every branch, and every loop: bound loops by a constant, use cc_select and cc_less \
                        in loops over paths, test pointers before use, keep variables below 512 bytes";

impl From<KernelError> for Error {
    fn from(error: KernelError) -> Self {
        Self::Control(error.into())
    }
}

impl Error {
    /// True if the request is wrong, and would be on any host.
    pub fn is_bad_request(&self) -> bool {
        match self {
            Self::StaysServed { .. } | Self::Config(_) => true,
            Self::Port(error) => matches!(
                error,
                PortError::NoSuchPort { .. }
                    | PortError::AlreadyAttached { .. }
                    | PortError::NotAttached { .. }
                    | PortError::Held { .. }
                    | PortError::Config { .. }
                    | PortError::NoQueue { .. }
                    | PortError::Down { .. }
                    | PortError::OtherQueues { .. }
                    | PortError::ForeignQueue { .. }
                    | PortError::Ingress { .. }
            ),
            _ => false,
        }
    }

    /// Remedy, where the error's own text has none.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::NotRoot { .. } => Some(SUDO.to_owned()),
            Self::Taken { .. } => Some("wait until that process ends, then try again".to_owned()),
            Self::StaysServed { port } => {
                Some(format!("unmark it first, or change it with `vmcc mark {port}` without --foreground"))
            }
            Self::PortGone { .. } => Some("serve it again when it is back".to_owned()),
            Self::Control(_) if !nix::unistd::geteuid().is_root() => Some(SUDO.to_owned()),
            Self::Control(error) => unsaid(vmcc_system::remedy(error)?, error),
            Self::Load(error) => match vmcc_system::remedy(error) {
                Some(remedy) => unsaid(remedy, error),
                None => of_refusal(error),
            },
            Self::Port(_) if self.is_bad_request() => None,
            Self::Port(error) => of_port(error),
            Self::Config(_) | Self::Sockets(_) | Self::Figures(_) => None,
            Self::AgentRuns { .. } => {
                Some("`kill -HUP` makes it read its file again, `vmcc down` ends it".to_owned())
            }
            Self::AgentStopped { pid } => {
                Some(format!("`kill -CONT {pid}` lets it go on; a debugger may hold it"))
            }
            Self::AgentStays { pid, .. } => Some(format!("`kill -9 {pid}`, then `vmcc down` does the rest")),
            Self::State { path, source } => of_records(path, source),
            Self::Wait(source) | Self::Socket(source) => vmcc_system::remedy(source).map(str::to_owned),
        }
    }
}

/// `remedy`, unless the error's text has it already.
fn unsaid(remedy: &str, error: &dyn std::error::Error) -> Option<String> {
    (!error.to_string().contains(remedy)).then(|| remedy.to_owned())
}

fn of_port(error: &PortError) -> Option<String> {
    match error {
        // Says what to do.
        PortError::Gone { .. } => None,
        PortError::Record { path, source } => of_records(path, source),
        _ => Some(vmcc_system::remedy(error).unwrap_or(DOCTOR).to_owned()),
    }
}

/// Remedy where a record cannot be used: the fault is at its place on disk, not in the kernel.
fn of_records(path: &Path, source: &io::Error) -> Option<String> {
    // Without a number it is our own refusal, which says what to do.
    source.raw_os_error()?;
    let in_place = || {
        format!("`ls -la {}` shows what is in its place; move that away, and it is recreated", path.display())
    };
    Some(vmcc_system::remedy(source).map_or_else(in_place, str::to_owned))
}

/// Refuses with `refusal` unless this process is root's.
///
/// # Errors
/// [`Error::NotRoot`].
pub fn needs_root(refusal: impl Into<String>) -> Result<(), Error> {
    if nix::unistd::geteuid().is_root() { Ok(()) } else { Err(Error::NotRoot { refusal: refusal.into() }) }
}
/// Remedy for a program that the verifier refused: the user's own source, or this kernel.
fn of_refusal(error: &LoadError) -> Option<String> {
    let LoadError::Refused { kernel_name, .. } = error else { return None };
    let own = Algorithm::by_name(kernel_name).is_ok_and(|algorithm| algorithm.build().is_some());
    Some(if own { VERIFIER_RULES.to_owned() } else { DOCTOR.to_owned() })
}
