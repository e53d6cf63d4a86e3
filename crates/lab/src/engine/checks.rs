//! Checks of this host for the kernel engine and for guests.

use crate::energy::{EnergyError, POWERCAP, Rapl};
use crate::engine::Unusable;
use crate::guest;
use crate::instructions::{self, CounterError};
use crate::process::is_installed;
use crate::{Cc, LabSpec, Transport};
use std::path::Path;
use std::sync::OnceLock;
use vmcc_bpf::probe;
use vmcc_scenario::Plan;
use vmcc_system::probe::Check;

/// Checks without which no case runs on the kernel engine.
const REQUIRED: [&str; 10] = [
    "root",
    "btf",
    "bpf",
    "struct-ops",
    "socket-diagnostics",
    "network-namespaces",
    "qdisc-htb",
    "qdisc-bfifo",
    "iperf3",
    "mptcpize",
];
const TUN: &str = "/dev/net/tun";
const EMULATOR: &str = "qemu-system-x86_64";

/// Checks of the host: its kernel, and the programs of the lab. They run once per process, as they take seconds.
pub fn checks() -> &'static [Check] {
    static ALL: OnceLock<Vec<Check>> = OnceLock::new();
    ALL.get_or_init(|| {
        let programs = [
            program("iperf3", "sending traffic", "apt-get install iperf3"),
            program("mptcpize", "MPTCP for programs that do not ask for it", "apt-get install mptcpize"),
            program(EMULATOR, "guests", "apt-get install qemu-system-x86"),
        ];
        let kernel = [probe::checks(), vmcc_port::probe::checks(), probe::algorithm_checks()].concat();
        kernel.into_iter().chain(programs).chain([energy(), counted_instructions()]).collect()
    })
}

fn program(name: &str, purpose: &'static str, install: &str) -> Check {
    let ok = is_installed(name);
    Check {
        name: name.to_owned(),
        purpose,
        ok,
        unknown: false,
        reason: (!ok).then(|| "not installed or not in PATH".to_owned()),
        remedy: (!ok).then(|| install.to_owned()),
    }
}

/// Check that the energy counters (RAPL) can be read.
fn energy() -> Check {
    let unread = Rapl::open(Path::new(POWERCAP)).err();
    Check {
        name: "rapl".to_owned(),
        purpose: "joules of processors and memory",
        ok: unread.is_none(),
        unknown: false,
        reason: unread.as_ref().map(ToString::to_string),
        remedy: unread.as_ref().and_then(EnergyError::remedy).map(str::to_owned),
    }
}

/// Check that instructions can be counted.
fn counted_instructions() -> Check {
    let uncounted = instructions::try_to_count().err();
    Check {
        name: "instructions".to_owned(),
        purpose: "counting instructions, a proxy for energy",
        ok: uncounted.is_none(),
        unknown: uncounted.as_ref().is_some_and(CounterError::is_unknown),
        reason: uncounted.as_ref().map(ToString::to_string),
        remedy: uncounted.as_ref().and_then(CounterError::remedy).map(str::to_owned),
    }
}

/// Checks that the kernel engine can run on this host.
///
/// # Errors
/// The first thing that is missing.
pub fn kernel_usable() -> Result<(), Unusable> {
    required(&REQUIRED)
}

/// Checks that this host's kernel can run `plan`.
pub(super) fn kernel_can(plan: &Plan) -> Result<(), Unusable> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Unusable::NotRoot);
    }
    let mut names: Vec<String> = REQUIRED.map(str::to_owned).to_vec();
    let specs = super::specs(plan).unwrap_or_default();
    specs.iter().for_each(|spec| names.extend(needed(spec)));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    required(&names)?;
    specs.iter().find_map(LabSpec::first_machine).map_or(Ok(()), |(key, host)| {
        machine_usable().map_err(|cause| Unusable::Machine { key, host, cause: Box::new(cause) })
    })
}

/// Checks that a host can be a virtual machine.
fn machine_usable() -> Result<(), Unusable> {
    if !Path::new(TUN).exists() {
        return Err(Unusable::Lacks {
            check: "taps".to_owned(),
            reason: format!("{TUN} is not there, and a virtual machine's cables end at it"),
            remedy: Some("modprobe tun".to_owned()),
        });
    }
    guest_usable()
}

/// Names of the checks that `spec` needs beyond `REQUIRED`.
fn needed(spec: &LabSpec) -> Vec<String> {
    let mut names = Vec::new();
    if spec.serves_ports() {
        names.extend(["qdisc-clsact".to_owned(), "marker".to_owned()]);
    }
    if spec.needs_netem() {
        names.push("qdisc-netem".to_owned());
    }
    for flow in &spec.flows {
        if matches!(flow.transport, Transport::Mptcp { .. }) {
            names.push("mptcp".to_owned());
        }
        if matches!(flow.cc, Cc::Registry(_)) {
            names.push(flow.cc.kernel_name());
        }
    }
    names
}

fn required(names: &[&str]) -> Result<(), Unusable> {
    let missing = checks().iter().find(|check| !check.ok && names.contains(&check.name.as_str()));
    missing.map_or(Ok(()), |check| {
        let reason = check.reason.clone().unwrap_or_else(|| "it does not work here".to_owned());
        Err(Unusable::Lacks { check: check.name.clone(), reason, remedy: check.remedy.clone() })
    })
}

/// Checks that a guest can be booted.
///
/// # Errors
/// The thing that is missing.
pub fn guest_usable() -> Result<(), Unusable> {
    if !is_installed(EMULATOR) {
        return Err(Unusable::NoEmulator { program: EMULATOR });
    }
    guest::newest_kernel().map(drop).map_err(Unusable::NoKernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::tests::of_text;

    #[test]
    fn netem_is_required_for_reordering() {
        let asks = |text: &str| {
            let traffic = "[[traffic]]\nkind='bulk'\nprotocol='tcp'\nfrom='a'\nto='b'\n";
            needed(&of_text(&format!("{text}{traffic}")).unwrap()).contains(&"qdisc-netem".to_owned())
        };
        let graph = |used: &str, idle: &str| {
            format!(
                "[topology]\nkind='graph'\nhosts=['a','b','c']\nlinks=[{{from='a',to='b',rate='20mbit',{used}}},\
                 {{from='b',to='c',rate='20mbit',{idle}}}]\n"
            )
        };
        let routed = "routing='explicit'\nroutes=[{via=['a','b']},{via=['b','c']}]\n";
        for routes in ["", routed] {
            assert!(!asks(&(graph("delay='20us'", "delay='20us'") + routes)), "{routes}");
            assert!(!asks(&(graph("delay='5ms',loss=0.01", "delay='20us'") + routes)), "{routes}");
            let jitter = "delay='5ms',jitter='2ms',reorder=true";
            assert!(asks(&(graph(jitter, "delay='20us'") + routes)), "{routes}");
            assert!(!asks(&(graph("delay='20us'", jitter) + routes)), "idle: {routes}");
        }
    }

    #[test]
    fn netem_is_required_for_jitter() {
        let asks = |more: &str| {
            let text = format!(
                "[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20us'\n{more}\
                 [[traffic]]\nkind='bulk'\n"
            );
            needed(&of_text(&text).unwrap()).contains(&"qdisc-netem".to_owned())
        };
        assert!(!asks(""));
        assert!(!asks("loss=0.01\n"));
        assert!(asks("jitter='2ms'\nreorder=true\n"));
    }
}
