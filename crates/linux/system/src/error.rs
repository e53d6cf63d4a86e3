//! Refused operations, and the system's error at the bottom of a chain.

use nix::libc;
use std::io;

/// An operation that the kernel refused.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {action}: {cause}")]
pub struct KernelError {
    action: String,
    cause: String,
}

impl KernelError {
    /// An attempted action and the system's error.
    pub fn new(action: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Self { action: action.into(), cause: cause.to_string() }
    }
}

/// Remedy where the cause is not this kernel, but a resource that ran out or went away.
pub fn remedy(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    match os_error(error)?.raw_os_error()? {
        libc::EMFILE => Some("allow more open files (`ulimit -n 1024`)"),
        libc::ENFILE => Some("allow the host more open files (`sysctl fs.file-max`)"),
        libc::ENOSPC | libc::EDQUOT => Some("make room on that file system"),
        libc::EROFS => Some("mount that file system writable"),
        libc::ENOMEM => Some("free some memory, or raise the limit of this service or container"),
        _ => None,
    }
}

/// The system's error at the bottom of a chain. libbpf-rs and [`KernelError`] give it in their text alone.
pub fn os_error(error: &(dyn std::error::Error + 'static)) -> Option<io::Error> {
    let code = |error: &(dyn std::error::Error + 'static)| {
        let known = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        known.or_else(|| error.to_string().rsplit_once("(os error ")?.1.split_once(')')?.0.parse().ok())
    };
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.filter_map(code).last().map(io::Error::from_raw_os_error)
}

/// An error with its causes, each once: libbpf-rs says in the first only what was tried.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let texts = std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string);
    texts
        .reduce(|all, cause| if all.contains(&cause) { all } else { format!("{all}: {cause}") })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_error_is_found_in_text_and_in_causes() {
        let said = |error: &(dyn std::error::Error + 'static)| remedy(error).unwrap_or_default();
        let io = || io::Error::from_raw_os_error(libc::EMFILE);
        assert!(said(&io()).contains("ulimit -n"));
        assert!(said(&KernelError::new("list", io())).contains("ulimit -n"), "in the text");
        let cause =
            io::Error::new(io::ErrorKind::StorageFull, Box::new(io::Error::from_raw_os_error(libc::ENOSPC)));
        assert!(said(&cause).contains("make room"), "as its cause");
        assert_eq!(remedy(&KernelError::new("list", io::Error::from_raw_os_error(libc::EINVAL))), None);
        assert_eq!(remedy(&KernelError::new("list", "nothing of the system")), None);
    }
}
