//! Kernel, processors, sysctls, MPTCP and the firewall of a network namespace.

use crate::facts::{self, Host, Limits, Mptcp, MptcpState};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::fs;
use std::process::{Command, Stdio};
use vmcc_netlink::{Endpoint, PathManager};
use vmcc_system::mptcp::{self, Fallbacks};
use vmcc_system::{cpu_steal, netns};

const SYSCTLS: &str = "/proc/sys/net";
const LOAD: &str = "/proc/loadavg";
/// Lists the firewall's rules, where it is installed.
const FIREWALL: &str = "nft";
/// Texts of a rule about MPTCP: by nft's names, by number, and by iptables' extension.
const MPTCP_RULES: [&str; 3] = ["mptcp", "tcp option 30", "TCPOPTSTRIP"];
/// Rules that are kept.
const MAX_RULES: usize = 8;
/// Bytes of the firewall's rules that are read.
const MAX_RULES_BYTES: usize = 4 << 20;

pub(super) fn host() -> Host {
    Host {
        kernel: kernel(),
        processors: processors(),
        load: read_load(&fs::read_to_string(LOAD).unwrap_or_default()),
        throttled_cgroups: cpu_steal::throttled().len(),
        congestion_control: netns::default_congestion_control(),
        notsent_lowat_bytes: number("ipv4/tcp_notsent_lowat"),
        tcp_rmem_bytes: text("ipv4/tcp_rmem").and_then(|text| three(&text)),
        tcp_wmem_bytes: text("ipv4/tcp_wmem").and_then(|text| three(&text)),
        firewall_rules: firewall(),
    }
}

pub(super) fn mptcp() -> Mptcp {
    let state = match number("mptcp/enabled") {
        None => MptcpState::Absent,
        Some(0) => MptcpState::Off,
        Some(_) => MptcpState::On,
    };
    let mut manager = PathManager::open().ok();
    let limits = manager.as_mut().and_then(|manager| manager.limits().ok());
    let endpoints = manager.as_mut().and_then(|manager| manager.endpoints().ok());
    // The kernel makes implicit ones for subflows that it accepts.
    let explicit = |one: &&Endpoint| one.flags & Endpoint::IMPLICIT == 0;
    Mptcp {
        state,
        kernel_path_manager: mptcp::kernel_manages_paths(),
        scheduler: text("mptcp/scheduler"),
        limits: limits.map(|(subflows, accept)| Limits { subflows, accept }),
        endpoints: endpoints.map(|all| all.iter().filter(explicit).map(endpoint).collect()),
        fallbacks: Fallbacks::read().ok(),
    }
}

fn endpoint(found: &Endpoint) -> facts::Endpoint {
    let has = |flag: u32| found.flags & flag != 0;
    facts::Endpoint {
        address: found.address,
        signal: has(Endpoint::SIGNAL),
        subflow: has(Endpoint::SUBFLOW),
        laminar: has(Endpoint::LAMINAR),
        backup: has(Endpoint::BACKUP),
        bound: found.device != 0,
    }
}

fn kernel() -> String {
    let name = nix::sys::utsname::uname();
    name.map_or_else(|_| "unknown".to_owned(), |name| name.release().to_string_lossy().into_owned())
}

fn processors() -> Option<u32> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
    let count = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).count();
    u32::try_from(count).ok()
}

fn read_load(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok().filter(|load: &f64| load.is_finite())
}

fn text(name: &str) -> Option<String> {
    Some(fs::read_to_string(format!("{SYSCTLS}/{name}")).ok()?.trim().to_owned())
}

fn number(name: &str) -> Option<u64> {
    text(name)?.parse().ok()
}

fn three(text: &str) -> Option<[u64; 3]> {
    let numbers: Option<Vec<u64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// Rules that name MPTCP; `None` without the program, or the privilege to read them.
fn firewall() -> Option<Vec<String>> {
    let listed = Command::new(FIREWALL).args(["list", "ruleset"]).stdin(Stdio::null()).output().ok()?;
    listed.status.success().then(|| about_mptcp(&listed.stdout))
}

fn about_mptcp(rules: &[u8]) -> Vec<String> {
    let rules = String::from_utf8_lossy(&rules[..rules.len().min(MAX_RULES_BYTES)]);
    let named = rules.lines().filter(|line| MPTCP_RULES.iter().any(|text| line.contains(text)));
    named.map(|line| line.trim().to_owned()).take(MAX_RULES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_texts_are_unknown() {
        assert_eq!(three("4096\t131072\t6291456"), Some([4096, 131_072, 6_291_456]));
        for text in ["", "1 2", "1 2 3 4", "a b c", "-1 2 3"] {
            assert_eq!(three(text), None, "{text}");
        }
        assert_eq!(read_load("0.42 1 2 1/2 3"), Some(0.42));
        for text in ["", "x", "inf"] {
            assert_eq!(read_load(text), None, "{text}");
        }
    }

    #[test]
    fn rules_about_mptcp_are_found() {
        let rules = b"table inet f {\n\tchain c {\n\t\ttcp dport 22 accept\n\t\ttcp option mptcp exists drop\n\t}\n}\n";
        assert_eq!(about_mptcp(rules), ["tcp option mptcp exists drop"]);
        assert!(about_mptcp(&[0xff; 64]).is_empty());
    }

    #[test]
    fn this_host_is_read() {
        let host = host();
        assert!(!host.kernel.is_empty() && host.processors > Some(0) && host.load.is_some(), "{host:?}");
    }
}
