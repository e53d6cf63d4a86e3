//! Capabilities of this kernel, found by trying: the form of a check, and what checks of several crates need.
//!
//! Versions and configuration files mislead (backports, modules that are not installed, lockdown), so every check performs the
//! operation once and undoes it, or does it in a network namespace that exists only for the check.

mod qdisc;

pub use qdisc::{add, in_new_namespace, known};

use serde::Serialize;
use std::path::Path;

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Name of the check: short and stable.
    pub name: String,
    /// Purpose of the capability.
    pub purpose: &'static str,
    /// True if the host has the capability.
    pub ok: bool,
    /// True if that is not known, because only root may try it. Then it is not `ok` either.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// Reason that it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Reason that a capability is missing, and the remedy.
#[derive(Debug)]
pub struct Problem {
    /// Reason.
    pub reason: String,
    /// Remedy.
    pub remedy: String,
    /// True if the question could not be asked.
    pub not_permitted: bool,
}

/// A capability that is missing.
pub fn problem(reason: impl ToString, remedy: impl Into<String>) -> Problem {
    Problem { reason: reason.to_string(), remedy: remedy.into(), not_permitted: false }
}

/// A question that only root may ask.
pub fn not_permitted(reason: impl ToString) -> Problem {
    Problem { not_permitted: true, ..problem(reason, BE_ROOT) }
}

/// Answer of a check.
pub type Answer = Result<(), Problem>;

/// Remedy for an option that the kernel was built without.
pub const NEWER_KERNEL: &str = "boot a distribution kernel with this option (Debian's and Ubuntu's have it), or use the \
                            guest: `vmcc run --engine guest`";
/// Distributions have packages of their kernels' modules; a kernel of one's own has what it was built with.
pub const MODULES: &str =
    "install the modules of the running kernel (`uname -r`; a distribution's kernel has a package of them)";
/// Remedy for a missing privilege.
pub const BE_ROOT: &str = "run as root: `sudo vmcc ...`";

impl Check {
    /// A check with its answer.
    #[must_use]
    pub fn new(name: &str, purpose: &'static str, answer: Answer) -> Self {
        let problem = answer.err();
        let unknown = problem.as_ref().is_some_and(|problem| problem.not_permitted);
        let ok = problem.is_none();
        let (reason, remedy) = problem.map(|problem| (problem.reason, problem.remedy)).unzip();
        Self { name: name.to_owned(), purpose, ok, unknown, reason, remedy }
    }
}

/// For questions whose answer would not tell a missing privilege from a missing feature.
///
/// # Errors
/// Not root.
pub fn require_root() -> Answer {
    if nix::unistd::geteuid().is_root() { Ok(()) } else { Err(not_permitted("only root can try it")) }
}

/// True if the modules of the running kernel are installed.
pub fn modules_installed() -> bool {
    nix::sys::utsname::uname()
        .is_ok_and(|uts| uts.release().to_str().is_some_and(|r| Path::new("/lib/modules").join(r).exists()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_that_needs_root_is_unknown_not_missing() {
        let asked = |answer| Check::new("tcx", "", answer);
        let refused = asked(Err(not_permitted("EPERM")));
        assert!((refused.ok, refused.unknown) == (false, true) && refused.remedy.is_some(), "{refused:?}");
        let missing = asked(Err(problem("no", "boot another")));
        assert_eq!((missing.ok, missing.unknown), (false, false));
    }
}
