//! Checks of what serving a port needs of this kernel: each is tried, in a network namespace that exists only for the check.

use super::shared_rate::unused as unused_budgets;
use super::{try_load, usable};
use crate::Backend;
use nix::libc;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use vmcc_bpf::objects;
use vmcc_netlink::{Links, TrafficControl, os_code};
use vmcc_system::probe::{
    Answer, Check, MODULES, NEWER_KERNEL, Problem, add, in_new_namespace, known, modules_installed,
    not_permitted, problem, require_root,
};

/// The loopback port's index, the same in every namespace.
const LOOPBACK: u32 = 1;
const MTU: u32 = 1500;
/// Any: the namespace has no other filter.
const PRIORITY: u16 = 1;
/// Two instructions, `r0 = -1` (TCX_NEXT: go on) and `exit`.
const GO_ON: [libbpf_sys::bpf_insn; 2] = [instruction(0xb7, -1), instruction(0x95, 0)];

const fn instruction(code: u8, imm: i32) -> libbpf_sys::bpf_insn {
    libbpf_sys::bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: libbpf_sys::__BindgenBitfieldUnit::new([0]),
        off: 0,
        imm,
    }
}

/// Tries everything; leaves nothing behind.
pub fn checks() -> Vec<Check> {
    let clsact = in_new_namespace(|| known("clsact")).and_then(|answer| answer);
    let shared = "one budget for several ports of a VM";
    vec![
        Check::new("qdisc-clsact", "marking on a port", clsact),
        Check::new("marker", "marking on a port", marker()),
        Check::new("qdisc-bpf", "scheduling the queues of a port in BPF (else by htb)", bpf_qdisc()),
        Check::new("ifb", shared, ifb()),
        Check::new("mirred", shared, mirred()),
        Check::new("budgets", "shared budgets of ports that are there", budgets()),
        Check::new("tcx", "losing nothing when marking begins or ends on a port", tcx()),
    ]
}

fn marker() -> Answer {
    require_root()?;
    let remedy = "as root, on Linux 6.1 or newer with CONFIG_DEBUG_INFO_BTF; without it runs work, but nothing is \
                  marked on ports";
    try_load().map_err(|e| problem(e, remedy))
}

/// The queueing discipline in BPF.
fn bpf_qdisc() -> Answer {
    require_root()?;
    usable(Backend::Bpf).map_err(|reason| {
        let how = match objects::QDISC {
            Some(_) => {
                "boot a kernel with CONFIG_NET_SCH_BPF (an option of Linux 6.16 and newer; Debian's have it from 6.18 on)"
            }
            None => "build vmcc with clang 15 or newer",
        };
        problem(reason, format!("nothing needs it: ports are served by `htb` instead; for it, {how}"))
    })
}

/// The device that queues for several ports.
fn ifb() -> Answer {
    let asked = in_new_namespace(|| Links::open()?.add_ifb("vmccprobe", MTU))?;
    asked.map_err(|e| refusal(&e, "IFB devices", "ifb", "CONFIG_IFB"))
}

/// The filter action that sends a port's packets to that device.
fn mirred() -> Answer {
    let asked = in_new_namespace(|| {
        add("clsact")?;
        TrafficControl::open()?.redirect(LOOPBACK, LOOPBACK, PRIORITY, 1)
    })?;
    asked.map_err(|e| refusal(&e, "filter action mirred", "act_mirred", "CONFIG_NET_ACT_MIRRED"))
}

/// Checks that every shared budget of this network namespace has a port.
fn budgets() -> Answer {
    require_root()?;
    let unused = unused_budgets().map_err(|e| problem(e, "`vmcc clean`"))?;
    if unused.is_empty() {
        return Ok(());
    }
    Err(problem(
        format!("{}: devices of budgets whose ports are gone", unused.join(", ")),
        "nothing needs them: `vmcc clean` removes them",
    ))
}

fn refusal(error: &io::Error, what: &str, module: &str, option: &str) -> Problem {
    let remedy = match os_code(error) {
        Some(libc::EPERM | libc::EACCES) => return not_permitted(format!("{what}: {error}")),
        _ if modules_installed() => format!("modprobe {module}; if there is none, {option}: {NEWER_KERNEL}"),
        _ => format!("{MODULES}; if it has none, {option}: {NEWER_KERNEL}"),
    };
    problem(format!("this kernel has no {what}: {error}"), remedy)
}

/// Links of BPF programs to a port, which need no clsact.
fn tcx() -> Answer {
    require_root()?;
    objects::quiet();
    let asked = in_new_namespace(link_to_loopback)?;
    let remedy = "nothing needs it: without it a busy port may lose a few packets when marking begins or ends on it; for it, \
                  boot Linux 6.6 or newer";
    asked.map_err(|e| match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => not_permitted(e),
        _ => problem(format!("no links of programs to a port: {e}"), remedy),
    })
}

fn link_to_loopback() -> io::Result<()> {
    // SAFETY: the name and the licence end with a zero, there are as many instructions as said, and no options.
    let program = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            c"vmcc_probe".as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            GO_ON.as_ptr(),
            GO_ON.len() as libbpf_sys::size_t,
            std::ptr::null_mut(),
        )
    };
    let program = owned(program)?;
    // SAFETY: both numbers are alive, and there are no options.
    let link = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            LOOPBACK as i32,
            libbpf_sys::BPF_TCX_EGRESS,
            std::ptr::null(),
        )
    };
    owned(link).map(drop)
}

/// Converts libbpf's result: a descriptor that is ours alone, or an error number below zero.
fn owned(answer: i32) -> io::Result<OwnedFd> {
    if answer < 0 {
        return Err(io::Error::from_raw_os_error(answer.saturating_neg()));
    }
    // SAFETY: the call that answered has just opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(answer) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_has_a_remedy() {
        for check in checks() {
            assert_eq!((check.ok, check.ok), (check.reason.is_none(), check.remedy.is_none()), "{check:?}");
            assert!(!(check.ok && check.unknown), "{check:?}");
        }
    }
}
