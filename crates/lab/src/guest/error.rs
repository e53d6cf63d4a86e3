use std::io;
use std::path::PathBuf;
use std::time::Duration;
use vmcc_engine::ErrorKind;

/// Reasons why a guest did not run a program to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    /// The options contradict themselves or the host.
    #[error("a guest cannot have {problem}")]
    Options {
        /// The fault, and the valid values.
        problem: String,
    },
    /// No kernel of that series is prepared.
    #[error("no kernel {series} for guests among {found}; fetch it with `make setup-guest KERNELS={series}`")]
    NoKernel {
        /// Requested series.
        series: String,
        /// Prepared releases.
        found: String,
    },
    /// No kernel at all is prepared.
    #[error("no kernel for guests in {searched}; fetch them with `make setup-guest`")]
    NoKernels {
        /// Directories that were searched.
        searched: String,
    },
    /// A program that guests need is not installed.
    #[error("guests need {program}, which is not installed; install it with `make setup-guest`")]
    ProgramMissing {
        /// The program.
        program: &'static str,
    },
    /// A program that guests need does not start or does not do its work.
    #[error("{program} does not serve the guest: {cause}; `make setup-guest` installs what guests need")]
    Helper {
        /// The program.
        program: String,
        /// Cause of the failure.
        cause: String,
    },
    /// The kernel did not come up.
    #[error("guest kernel {release} does not boot: {cause}\n{console}")]
    Boot {
        /// The kernel.
        release: String,
        /// Observed failure.
        cause: String,
        /// The last lines of its console.
        console: String,
    },
    /// The guest ended before its program did: its kernel crashed, or something killed it.
    #[error("the guest with kernel {release} ended before its program\n{console}")]
    Died {
        /// The kernel.
        release: String,
        /// The last lines of its console.
        console: String,
    },
    /// The program did not end in time.
    #[error("the program in the guest with kernel {release} did not end within {} s; give it more time", limit.as_secs())]
    TimeLimit {
        /// The kernel.
        release: String,
        /// The limit.
        limit: Duration,
        /// The last lines of its console.
        console: String,
    },
    /// The program writes without end.
    #[error("the program in the guest wrote more than {limit_bytes} bytes to {what}; have it write less")]
    TooMuchOutput {
        /// Output that is too large: `stdout`, `stderr` or `control`.
        what: String,
        /// The most that is read.
        limit_bytes: u64,
    },
    /// A file of the host that a guest needs cannot be read or written.
    #[error("{}: {source}; check that it is on a writable file system with free space", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The caller asked to stop; the guest is gone.
    #[error("interrupted; the guest was stopped")]
    Interrupted,
}

impl GuestError {
    /// Class of the error, which determines what the caller should do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Options { .. } => ErrorKind::BadInput,
            Self::NoKernel { .. }
            | Self::NoKernels { .. }
            | Self::ProgramMissing { .. }
            | Self::Helper { .. }
            | Self::Boot { .. } => ErrorKind::HostCannot,
            Self::Died { .. } | Self::TimeLimit { .. } | Self::TooMuchOutput { .. } | Self::File { .. } => {
                ErrorKind::Failed
            }
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }

    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
