//! Errors of the lab, with the object, the cause and the remedy.

use crate::guest::GuestError;
use std::io;
use std::path::PathBuf;

use vmcc_bpf::ControlError;
pub use vmcc_engine::ErrorKind;
use vmcc_port::PortError;

/// An error of the lab.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value of the lab's input is out of range or contradictory.
    #[error("{key}: {problem}")]
    Spec {
        /// The key, as the scenario spells it.
        key: String,
        /// The fault, and valid values.
        problem: String,
    },
    /// The scenario asks for something that the kernel engine cannot express.
    #[error("{key}: the kernel engine cannot run this ({problem}); {remedy}")]
    NotExpressible {
        /// The key, as the scenario spells it.
        key: String,
        /// The request that is not supported.
        problem: String,
        /// The alternative.
        remedy: String,
    },
    /// A namespace of that name exists.
    #[error(
        "network namespace {name} exists already; choose another run id, or remove it with `vmcc clean` if it \
         is left from a run that was killed (`ip netns del {name}` if it is not vmcc's)"
    )]
    NamespaceTaken {
        /// The namespace.
        name: String,
    },
    /// A run of that id is alive.
    #[error("run {run_id} is in use by process {pid}; choose another run id or wait until it ends")]
    RunTaken {
        /// The run.
        run_id: String,
        /// Its owner.
        pid: i32,
    },
    /// There is no such network interface.
    #[error("there is no port {port} in network namespace {namespace}; its ports are: {existing}")]
    NoSuchPort {
        /// The interface asked for.
        port: String,
        /// The namespace that was searched.
        namespace: String,
        /// The ports that it has.
        existing: String,
    },
    /// The process may not do this.
    #[error("{action} needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN); run it with sudo, or use `--engine sim`")]
    Privilege {
        /// The action that failed.
        action: String,
    },
    /// The running kernel lacks something.
    #[error("this kernel lacks {feature}: {cause}; {remedy}")]
    KernelFeature {
        /// The feature.
        feature: String,
        /// Evidence that it is missing.
        cause: String,
        /// The remedy.
        remedy: String,
    },
    /// A program is not installed.
    #[error("{program} is not installed or not in PATH; install it with `{remedy}`")]
    ProgramMissing {
        /// The program.
        program: String,
        /// The command that installs it.
        remedy: String,
    },
    /// A program ran and failed.
    #[error("{program} in namespace {namespace} failed: {cause}; {remedy}")]
    ProgramFailed {
        /// The program.
        program: String,
        /// Namespace in which it ran.
        namespace: String,
        /// The reason that it gave.
        cause: String,
        /// The remedy.
        remedy: String,
    },
    /// The kernel refused a request.
    #[error("{action} {object}: {source}")]
    Kernel {
        /// The action that failed.
        action: &'static str,
        /// On what.
        object: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The congestion control could not be loaded or attached.
    #[error("congestion control {name}: {cause}")]
    CongestionControl {
        /// The algorithm.
        name: String,
        /// The cause.
        cause: String,
    },
    /// A measurement contradicts the set-up, so its figures would be worthless.
    #[error("{what}: {cause}; {remedy}")]
    Measurement {
        /// The measured object.
        what: String,
        /// The contradiction that was found.
        cause: String,
        /// The remedy.
        remedy: String,
    },
    /// A file of the lab could not be read or written.
    #[error("{}: {source}; check that it is on a writable file system with free space", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A port that is measured cannot be served.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The kernel does not say what its programs cost.
    #[error(transparent)]
    Statistics(#[from] ControlError),
    /// A virtual machine that is a host of the run cannot be had, or ended.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// Error of the lab inside such a machine.
    #[error("in the virtual machine: {message}")]
    Machine {
        /// Class of the error, by the action that the caller should take.
        kind: ErrorKind,
        /// Its error with all causes, which has the remedy.
        message: String,
    },
    /// The caller asked to stop; everything was removed.
    #[error("interrupted; everything this run made has been removed")]
    Interrupted,
}

impl Error {
    /// Class of the error, by the action that the caller should take.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Spec { .. }
            | Self::NotExpressible { .. }
            | Self::NamespaceTaken { .. }
            | Self::RunTaken { .. }
            | Self::NoSuchPort { .. } => ErrorKind::BadInput,
            Self::Privilege { .. }
            | Self::KernelFeature { .. }
            | Self::ProgramMissing { .. }
            | Self::CongestionControl { .. } => ErrorKind::HostCannot,
            Self::ProgramFailed { .. }
            | Self::Kernel { .. }
            | Self::Measurement { .. }
            | Self::Port(_)
            | Self::Statistics(_)
            | Self::File { .. } => ErrorKind::Failed,
            Self::Guest(error) => error.kind(),
            Self::Machine { kind, .. } => *kind,
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }

    pub(crate) fn not_expressible(key: impl Into<String>, problem: impl Into<String>) -> Self {
        let remedy = "change it, or use `--engine sim`".to_owned();
        Self::NotExpressible { key: key.into(), problem: problem.into(), remedy }
    }

    pub(crate) fn spec(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Spec { key: key.into(), problem: problem.into() }
    }

    /// A refused request; a missing privilege gets its own variant because the remedy is known.
    pub(crate) fn kernel(action: &'static str, object: impl Into<String>, source: io::Error) -> Self {
        let object = object.into();
        match vmcc_netlink::os_code(&source) {
            Some(code) if code == nix::libc::EPERM || code == nix::libc::EACCES => {
                Self::Privilege { action: format!("{action} {object}") }
            }
            _ => Self::Kernel { action, object, source },
        }
    }

    pub(crate) fn diag(error: &vmcc_system::diag::DiagError) -> Self {
        Self::Measurement {
            what: "sampling the sockets".to_owned(),
            cause: error.to_string(),
            remedy: "`vmcc doctor` says what this kernel lacks".to_owned(),
        }
    }

    pub(crate) fn reading(what: impl Into<String>, error: &ControlError) -> Self {
        let remedy = "`vmcc doctor` says what this kernel lacks".to_owned();
        Self::Measurement { what: what.into(), cause: error.to_string(), remedy }
    }

    pub(crate) fn file(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => {
                Self::Privilege { action: format!("writing {}", path.display()) }
            }
            _ => Self::File { path, source },
        }
    }
}
