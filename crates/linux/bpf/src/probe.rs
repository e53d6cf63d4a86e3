//! Checks of what algorithms and the lab need of this kernel, each by trying it.

mod joins;

use crate::accounts::Shortage;
use crate::load;
use crate::objects;
use crate::registry;
use libbpf_rs::btf::{Btf, types::Struct};
use libbpf_rs::{MapHandle, MapType};
use nix::libc;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use vmcc_cc::Algorithm;
use vmcc_system::diag::{Diag, DiagError};
use vmcc_system::mptcp::{self, Fallbacks};
use vmcc_system::probe::{
    Answer, BE_ROOT, Check, NEWER_KERNEL, Problem, in_new_namespace, known, not_permitted, problem,
    require_root,
};

/// Checks of what loading algorithms and running the lab needs; leaves nothing behind.
pub fn checks() -> Vec<Check> {
    let mut all = vec![
        Check::new("root", "loading BPF programs and making namespaces", root()),
        Check::new("btf", "fitting the programs to this kernel's structures", btf()),
        Check::new("bpf", "loading BPF programs", bpf_map(MapType::Array, 4, 8, 1)),
        Check::new("bpf-jit", "congestion control in BPF", jit()),
        Check::new(
            "ring-buffer",
            "requests of algorithms to close a path",
            bpf_map(MapType::RingBuf, 0, 0, 65_536),
        ),
        Check::new("struct-ops", "congestion control in BPF", struct_ops()),
        Check::new("mptcp", "more than one path per connection", mptcp()),
        Check::new("mptcp-joins", "right bytes where a path joins a running transfer", joins::keep_bytes()),
        Check::new("mptcp-limits", "more than one path per connection", limits()),
        Check::new("mptcp-blackhole", "opening connections as MPTCP", blackhole()),
        Check::new(
            "mptcp-laminar",
            "`laminar` endpoints: each address of this end to another one of the other end",
            laminar(),
        ),
        unsent_limit(),
        Check::new("cgroups", "the congestion control of chosen cgroups", cgroups()),
        Check::new("mptcp-upgrade", "making MPTCP of the TCP of chosen cgroups", upgrade()),
        Check::new("socket-diagnostics", "reading the state of subflows", diagnostics()),
        Check::new("socket-destroy", "closing a path that shares a bottleneck", destroy()),
        Check::new("room", "coupling every connection's paths", room()),
        Check::new("network-namespaces", "the lab", in_new_namespace(|| Ok(())).and_then(|answer| answer)),
    ];
    for (kind, purpose) in [
        ("htb", "shaping the paths of the lab"),
        ("tbf", "shaping the paths of the lab"),
        ("bfifo", "shaping the paths of the lab"),
        ("netem", "the lab, only for scenarios with delay or loss"),
    ] {
        let answer = in_new_namespace(move || known(kind)).and_then(|answer| answer);
        all.push(Check::new(&format!("qdisc-{kind}"), purpose, answer));
    }
    all
}

/// Tests every algorithm on this kernel; nothing is registered.
pub fn algorithm_checks() -> Vec<Check> {
    Algorithm::all()
        .map(|one| Check::new(one.info().kernel_name, "this algorithm in the kernel", algorithm(one)))
        .collect()
}

fn root() -> Answer {
    require_root().map_err(|_| problem("not root", BE_ROOT))
}

fn btf() -> Answer {
    let path = "/sys/kernel/btf/vmlinux";
    let read = fs::File::open(path).map(drop);
    read.map_err(|e| problem(format!("{path}: {e}"), format!("CONFIG_DEBUG_INFO_BTF: {NEWER_KERNEL}")))
}

fn jit() -> Answer {
    let path = "/proc/sys/net/core/bpf_jit_enable";
    match fs::read_to_string(path) {
        Ok(text) if text.trim() == "0" => {
            Err(problem("the BPF compiler is switched off", "sysctl -w net.core.bpf_jit_enable=1"))
        }
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(not_permitted(e)),
        Err(_) => Err(problem("this kernel has no BPF compiler", format!("CONFIG_BPF_JIT: {NEWER_KERNEL}"))),
    }
}

fn bpf_map(kind: MapType, key: u32, value: u32, entries: u32) -> Answer {
    objects::quiet();
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let made = MapHandle::create(kind, Some("vmcc_probe"), key, value, entries, &opts);
    made.map(drop).map_err(|e| match e.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => Problem {
            remedy: "run as root, with CAP_BPF; in a container, give it CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; where \
                     the kernel is locked down, switch that off"
                .to_owned(),
            ..not_permitted(format!("not permitted ({e})"))
        },
        _ => problem(format!("the kernel refused a map: {e}"), format!("CONFIG_BPF_SYSCALL: {NEWER_KERNEL}")),
    })
}

/// The smallest algorithm, which asks for nothing special.
fn struct_ops() -> Answer {
    let simplest = Algorithm::all().find(|a| !a.info().coupled && !a.info().needs_ecn);
    simplest.map_or(Ok(()), algorithm)
}

fn algorithm(algorithm: Algorithm) -> Answer {
    let remedy = "a kernel with CONFIG_BPF_JIT and CONFIG_DEBUG_INFO_BTF, 6.1 or newer";
    load::try_load(algorithm).map_err(|e| match e {
        crate::LoadError::NotPermitted { .. } => not_permitted(e),
        _ => problem(e, format!("{remedy}: {NEWER_KERNEL}")),
    })
}

fn cgroups() -> Answer {
    require_root()?;
    let remedy = "as root, with cgroup2 mounted and writable, and a kernel with CONFIG_CGROUP_BPF; without it the agent \
                  covers hosts and network namespaces, but no `[[cgroup]]`";
    crate::cgroup::try_it().map_err(|e| problem(e, remedy))
}

fn upgrade() -> Answer {
    require_root()?;
    let remedy = "as root, on a distribution's kernel from 6.6 on with CONFIG_MPTCP (Debian's 6.12 does); some vendors' kernels, \
                  of small virtual machines for example, refuse. Without it no `upgrade = true` of a `[[cgroup]]`; start the \
                  programs with `mptcpize run` instead";
    crate::upgrade::check_support().map_err(|e| problem(e, remedy))
}

fn mptcp() -> Answer {
    mptcp_socket().map(drop).map_err(|error| {
        let switched_off = fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|t| t.trim() == "0");
        if switched_off {
            problem("MPTCP is switched off", "sysctl -w net.mptcp.enabled=1")
        } else {
            problem(format!("no MPTCP sockets: {error}"), format!("CONFIG_MPTCP: {NEWER_KERNEL}"))
        }
    })
}

fn mptcp_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd =
        unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_MPTCP) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Without MPTCP there is nothing to be said of it.
fn limits() -> Answer {
    let found = mptcp::obstacles().unwrap_or_default();
    let text = found.first().and_then(|text| text.split_once("; "));
    text.map_or(Ok(()), |(reason, remedy)| Err(problem(reason, remedy)))
}

/// The kernel says how often it has found that MPTCP's SYNs are dropped, but not whether it is off for that reason now. So
/// a connection is opened to a socket of our own.
fn blackhole() -> Answer {
    let Ok(before) = Fallbacks::read() else { return Ok(()) };
    if before.blackholes == 0 || !opens_as_tcp(before) {
        return Ok(());
    }
    let seconds = mptcp::blackhole_timeout_s().unwrap_or_default();
    Err(problem(
        format!(
            "the kernel opens connections as TCP for {seconds} s or longer, because SYNs with TCP option 30 were dropped on \
             the way ({} times so far)",
            before.blackholes
        ),
        "find the firewall that drops them, or have it remove the option instead; `sysctl -w net.mptcp.blackhole_timeout=0` \
         ends that and switches the detection off (docs/how-to/hosts.md)",
    ))
}

/// Tests for a connection of this namespace to itself that becomes TCP because MPTCP is off for a time.
fn opens_as_tcp(before: Fallbacks) -> bool {
    let Ok(listener) = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) else { return false };
    let (Ok(at), Ok(socket)) = (listener.local_addr(), mptcp_socket()) else { return false };
    let nix_address = nix::sys::socket::SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, at.port()));
    let connected = nix::sys::socket::connect(socket.as_raw_fd(), &nix_address).is_ok();
    connected && Fallbacks::read().is_ok_and(|after| after.disabled > before.disabled)
}

/// Tests for a kernel with `laminar` endpoints; one without keeps the flag, and does nothing with it. Its type information
/// has the field of `struct mptcp_info` that counts them.
pub fn has_laminar_endpoints() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let Ok(btf) = Btf::from_vmlinux() else { return false };
        let info = btf.type_by_name::<Struct<'_>>("mptcp_info");
        info.is_some_and(|info| {
            info.iter().any(|one| one.name.is_some_and(|name| name == "mptcpi_endp_laminar_max"))
        })
    })
}

fn laminar() -> Answer {
    if has_laminar_endpoints() {
        return Ok(());
    }
    Err(problem(
        "this kernel has no laminar endpoints",
        "boot Linux 6.18 or newer, or use `subflow` endpoints with routing by source address, or `fullmesh`",
    ))
}

/// Linux's MPTCP scheduler hands a subflow this much at a time, unless a subflow reports enough queued data.
const SCHEDULER_BURST_BYTES: u64 = 64 << 10;

/// Checks that this network namespace limits the unsent data that subflows hold (`tcp_notsent_lowat`).
pub fn unsent_limit() -> Check {
    Check::new("unsent-limit", "keeping fast paths busy beside slow ones", small_unsent_limit())
}

fn small_unsent_limit() -> Answer {
    let path = "/proc/sys/net/ipv4/tcp_notsent_lowat";
    let text = fs::read_to_string(path).map_err(|e| problem(format!("{path}: {e}"), NEWER_KERNEL))?;
    match text.trim().parse::<u64>() {
        Ok(bytes) if bytes <= SCHEDULER_BURST_BYTES => Ok(()),
        _ => Err(problem(
            "subflows hold any amount that is not sent yet: up to 64 kB at a time go to one with a small window, and the \
             others run dry meanwhile",
            "sysctl -w net.ipv4.tcp_notsent_lowat=16384, wherever there are senders (docs/how-to/hosts.md); the lab sets it",
        )),
    }
}

fn diagnostics() -> Answer {
    let listed = Diag::open().and_then(|mut diag| diag.subflows());
    listed.map(drop).map_err(|e| problem(e, format!("CONFIG_INET_DIAG: {NEWER_KERNEL}")))
}

fn destroy() -> Answer {
    match Diag::open().and_then(|mut diag| diag.destroy_nothing()) {
        Ok(()) => Ok(()),
        Err(DiagError::Destroy { source, .. }) => {
            let remedy = match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => BE_ROOT.to_owned(),
                _ => format!("CONFIG_INET_DIAG_DESTROY: {NEWER_KERNEL}"),
            };
            Err(problem(source, remedy))
        }
        Err(other) => Err(problem(other, format!("CONFIG_INET_DIAG: {NEWER_KERNEL}"))),
    }
}

/// Checks that the loaded algorithms had room for every path, and passed on every request to close one.
fn room() -> Answer {
    let short: Vec<String> = registry::list()
        .unwrap_or_default()
        .iter()
        .filter(|one| one.shortage.is_some_and(|s| Shortage { beyond: 0, ..s } != Shortage::default()))
        .map(|one| one.kernel_name.clone())
        .collect();
    match short.as_slice() {
        [] => Ok(()),
        names => Err(problem(
            format!(
                "paths under {} found no room in the table, or requests to close one were dropped",
                names.join(", ")
            ),
            "`vmcc status` says how many, `vmcc clean` gives back what dead connections hold; the share of a user or \
             network namespace is in docs/how-to/hosts.md",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_has_a_remedy_and_names_are_unique() {
        let all = [checks(), algorithm_checks()].concat();
        let mut names: Vec<&str> = all.iter().map(|c| c.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert!(all.len() > Algorithm::all().len() + 10);
        let netem = all.iter().find(|check| check.name == "qdisc-netem").unwrap();
        assert!(netem.purpose.contains("only for scenarios with delay or loss"), "{netem:?}");
        for check in &all {
            assert_eq!(check.ok, check.reason.is_none(), "{check:?}");
            // A kernel of one's own has no package of this name.
            assert!(
                !check.remedy.as_ref().is_some_and(|remedy| remedy.contains("linux-image-$")),
                "{check:?}"
            );
            assert_eq!(check.ok, check.remedy.is_none(), "{check:?}");
            assert!(!(check.ok && check.unknown), "{check:?}");
        }
    }
}
