//! Errors: an engine of the lab cannot be used here, or a guest gave no output.

use crate::guest::GuestError;
use std::io;
use vmcc_engine::{EngineError, ErrorKind};

/// Command that prepares guests.
const SETUP_GUEST: &str = "make setup-guest";

/// Reasons why an engine cannot be used on this host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// Only root may.
    #[error("engine kernel: needs root to make network namespaces and load BPF programs")]
    NotRoot,
    /// Something that it needs is missing.
    #[error("engine kernel: {check}: {reason}")]
    Lacks {
        /// The check, as `vmcc doctor` lists it.
        check: String,
        /// Reason that the check gives.
        reason: String,
        /// Remedy, if there is one.
        remedy: Option<String>,
    },
    /// No program to run a guest.
    #[error("guests: {program} is not installed or not in PATH")]
    NoEmulator {
        /// The program.
        program: &'static str,
    },
    /// No kernel to boot.
    #[error("guests: {0}")]
    NoKernel(#[source] GuestError),
    /// A host of the plan cannot be a virtual machine.
    #[error("{key}: {host} would be a virtual machine; {cause}")]
    Machine {
        /// The scenario's key that makes it one.
        key: &'static str,
        /// The host.
        host: String,
        /// Reason why it cannot be one.
        cause: Box<Self>,
    },
}

impl Unusable {
    /// Remedy for the user.
    pub fn remedy(&self) -> &str {
        match self {
            Self::NotRoot => "run it with sudo, or use --engine sim",
            Self::Lacks { remedy, .. } => remedy.as_deref().unwrap_or("see `vmcc doctor`"),
            Self::NoEmulator { .. } | Self::NoKernel(_) => SETUP_GUEST,
            Self::Machine { cause, .. } => cause.remedy(),
        }
    }
}

impl From<Unusable> for EngineError {
    fn from(error: Unusable) -> Self {
        let remedy = error.remedy().to_owned();
        Self::new(ErrorKind::HostCannot, error).with_remedy(remedy)
    }
}

impl From<GuestError> for EngineError {
    fn from(error: GuestError) -> Self {
        let kind = error.kind();
        let error = Self::new(kind, error);
        match kind {
            ErrorKind::BadInput | ErrorKind::Interrupted => error,
            _ => error.with_remedy("`make setup-guest` prepares kernels for guests"),
        }
    }
}

/// Reasons why a case in a guest gave no output although the guest booted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestRunError {
    /// The directory that host and guest share cannot be used.
    #[error("engine guest: {0}")]
    Shared(#[from] io::Error),
    /// The lab in the guest failed.
    #[error("{message}")]
    Case {
        /// Its error with all causes, which has the remedy.
        message: String,
    },
    /// The worker ended before its work.
    #[error("engine guest: the worker ended with code {code}: {last}")]
    WorkerEnded {
        /// Its exit code.
        code: i32,
        /// The last that it said.
        last: String,
    },
    /// The guest is not there any more and left no reason.
    #[error("engine guest: the guest is gone")]
    Gone,
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl From<GuestRunError> for EngineError {
    fn from(error: GuestRunError) -> Self {
        match error {
            GuestRunError::Interrupted => Self::new(ErrorKind::Interrupted, error),
            GuestRunError::WorkerEnded { .. } => {
                Self::new(ErrorKind::Failed, error).with_remedy("try `vmcc internal guest -- vmcc doctor`")
            }
            _ => Self::new(ErrorKind::Failed, error),
        }
    }
}
