//! Errors of kernel operations.

use std::io;
use std::path::PathBuf;
use vmcc_cc::ParamError;
use vmcc_system::{KernelError, remedy};

/// Error of loading an algorithm. Nothing has changed in the kernel.
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
        /// Holder of the registration.
        holder: String,
        /// Remedy.
        remedy: &'static str,
    },
    /// Another user of the same registration runs it with other parameters.
    #[error(
        "{kernel_name} is in use by {holder} with other parameters; {remedy}, or give the same parameters"
    )]
    OtherParameters {
        /// Name in the kernel.
        kernel_name: &'static str,
        /// Holder of the registration.
        holder: String,
        /// Remedy.
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
    /// The registrations cannot be read.
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// Error of a change to something loaded.
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
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The BPF file system is needed and cannot be used.
    #[error("cannot keep {name} under {}: {source}; {remedy}", path.display())]
    Pin {
        /// Name of the object to pin.
        name: String,
        /// Path of the pin.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
        /// Remedy.
        remedy: &'static str,
    },
    /// The pins are in the host's BPF file system, which this process cannot see.
    #[error(
        "this process has mounts of its own, as under `ip netns exec`, and cannot reach the host's, where what is up is \
         kept; run it as `nsenter --net=/run/netns/NAME vmcc ...`, which changes only the network namespace; a container \
         needs the host's /sys/fs/bpf"
    )]
    OwnMounts,
    /// Another process loads or removes algorithms and does not come to an end.
    #[error(
        "another vmcc has been loading or removing algorithms for two minutes; wait until it ends, or end it"
    )]
    Busy,
    /// It was released, and another process holds it.
    #[error(
        "{name} stays in the kernel: {} holds it; it goes when that ends",
        holder.map_or_else(|| "something that cannot be seen from here".to_owned(), |pid| format!("process {pid}"))
    )]
    StillHeld {
        /// Name in the kernel.
        name: String,
        /// The process, if it can be seen.
        holder: Option<u32>,
    },
}

impl ControlError {
    /// An attempted action and the system's error.
    pub fn kernel(action: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Self::Kernel(KernelError::new(action, cause))
    }

    pub(crate) fn pin(name: &str, path: PathBuf, source: io::Error) -> Self {
        let remedy = match source.kind() {
            io::ErrorKind::AlreadyExists => "something else has that name; remove it",
            _ => remedy(&source).unwrap_or("mount it with `mount -t bpf bpf /sys/fs/bpf`"),
        };
        Self::Pin { name: name.to_owned(), path, source, remedy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::libc;

    #[test]
    fn full_bpffs_error_has_the_remedy_of_its_cause() {
        let pin =
            ControlError::pin("x", "/sys/fs/bpf/vmcc/x".into(), io::Error::from_raw_os_error(libc::ENOSPC));
        let said = remedy(&pin).unwrap_or_default();
        assert!(said.contains("make room") && pin.to_string().contains("make room"), "{pin}");
    }
}
