//! Why something could not be done to the kernel.

use std::io;
use std::path::PathBuf;
use vmcc_cc::ParamError;

/// Why an algorithm was not loaded. Nothing has changed in the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Not allowed to use BPF.
    #[error(
        "not permitted to load {kernel_name} into the kernel; run as root (it needs CAP_BPF, CAP_PERFMON and \
         CAP_NET_ADMIN)"
    )]
    NotPermitted {
        /// Name in the kernel.
        kernel_name: &'static str,
    },
    /// The kernel does not describe its types.
    #[error(
        "this kernel has no type information (/sys/kernel/btf/vmlinux); it needs CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf,
    /// Somebody else registered the name.
    #[error("{kernel_name} is already registered by {holder}; {remedy}")]
    AlreadyRegistered {
        /// Name in the kernel.
        kernel_name: &'static str,
        /// Who holds it.
        holder: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Another user of the same registration runs it with other parameters.
    #[error(
        "{kernel_name} is in use by {holder} with other parameters; {remedy}, or give the same parameters"
    )]
    OtherParameters {
        /// Name in the kernel.
        kernel_name: &'static str,
        /// Who holds it.
        holder: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The kernel refused the program.
    #[error("the kernel refused {kernel_name}: {cause}\n{log}")]
    Refused {
        /// Name in the kernel.
        kernel_name: &'static str,
        /// The system's error.
        cause: String,
        /// The last lines of the verifier or of libbpf.
        log: String,
    },
}

/// Why a change to something loaded was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No such parameter, or a value out of range.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// Not loaded by vmcc.
    #[error("{kernel_name} is not loaded; load it with `vmcc up`, or keep the run that loads it alive")]
    NotLoaded {
        /// Name in the kernel.
        kernel_name: &'static str,
    },
    /// The parameters belong to another algorithm.
    #[error("parameters of {given} cannot be set on {algorithm}")]
    WrongAlgorithm {
        /// The algorithm that is loaded.
        algorithm: &'static str,
        /// The algorithm the parameters are for.
        given: &'static str,
    },
    /// The kernel refused an operation.
    #[error("cannot {action}: {cause}")]
    Kernel {
        /// What was tried.
        action: String,
        /// The system's error.
        cause: String,
    },
    /// The BPF file system is needed and cannot be used.
    #[error("cannot keep {name} under {}: {source}; mount it with `mount -t bpf bpf /sys/fs/bpf`", path.display())]
    Pin {
        /// What was to be kept.
        name: String,
        /// Where.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl ControlError {
    pub(crate) fn kernel(action: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Self::Kernel { action: action.into(), cause: cause.to_string() }
    }
}
