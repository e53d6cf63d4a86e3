//! Which queueing disciplines the kernel has: asked by adding each to the loopback port of a new namespace.

use super::{Answer, MODULES, NEWER_KERNEL, Problem, modules_installed, not_permitted, problem};
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use std::io;
use std::thread;
use vmcc_netlink::{TrafficControl, os_code};

/// The loopback port's index, the same in every namespace.
const LOOPBACK: u32 = 1;

/// Runs `question` on a thread in a network namespace of its own, which is gone afterwards.
///
/// # Errors
/// No namespace can be made.
pub fn in_new_namespace<T: Send + 'static>(
    question: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let asked = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|e| match e {
            nix::Error::EPERM => not_permitted("not permitted to make a network namespace"),
            _ => problem(format!("no network namespaces: {e}"), format!("CONFIG_NET_NS: {NEWER_KERNEL}")),
        })?;
        Ok(question())
    });
    asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Checks that the kernel knows this kind of queue. Options are left out: a kernel that knows the kind rejects that
/// or accepts it; one that does not reports that there is no such kind.
///
/// # Errors
/// The kernel does not have it, or only root may try.
pub fn known(kind: &str) -> Answer {
    match add(kind) {
        Ok(()) => Ok(()),
        Err(e) if os_code(&e) == Some(libc::ENOENT) => {
            let option = format!("CONFIG_NET_SCH_{}", module(kind).to_uppercase());
            let remedy = if modules_installed() {
                format!("modprobe sch_{}; if there is none, {option}: {NEWER_KERNEL}", module(kind))
            } else {
                format!("{MODULES}; if it has none, {option}: {NEWER_KERNEL}")
            };
            Err(problem(format!("this kernel has no queue of kind {kind}"), remedy))
        }
        Err(e) if os_code(&e) == Some(libc::EPERM) => Err(not_permitted(e)),
        // It exists, and missed its options.
        Err(_) => Ok(()),
    }
}

fn module(kind: &str) -> &str {
    match kind {
        "clsact" => "ingress",
        "bfifo" => "fifo",
        other => other,
    }
}

/// Adds a queue of this kind, without options, to the loopback port.
///
/// # Errors
/// The kernel refuses.
pub fn add(kind: &str) -> io::Result<()> {
    let mut tc = TrafficControl::open()?;
    if kind == "clsact" { tc.add_clsact(LOOPBACK) } else { tc.add_bare_root(LOOPBACK, kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_qdisc_kinds_are_detected() {
        for kind in ["htb", "clsact", "bfifo", "tbf"] {
            let answer = in_new_namespace(move || known(kind)).and_then(|answer| answer);
            assert!(answer.is_ok(), "{kind}: {}", answer.err().map(|p| p.reason).unwrap_or_default());
        }
        let absent = in_new_namespace(|| known("vmccnone")).and_then(|answer| answer).err().unwrap();
        assert_eq!(absent.reason, "this kernel has no queue of kind vmccnone");
        assert!(
            absent.remedy.contains("CONFIG_NET_SCH_VMCCNONE") && !absent.not_permitted,
            "{}",
            absent.remedy
        );
    }
}
