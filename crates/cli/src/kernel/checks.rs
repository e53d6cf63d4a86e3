//! Whether this host can run the kernel engine or a guest.

use crate::commands::doctor::Check;
use crate::failure::{Failure, chain};
use std::sync::OnceLock;
use vmcc_host::probe;
use vmcc_lab::{LabSpec, Transport, guest};
use vmcc_scenario::Plan;

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
const GUEST_PROGRAM: &str = "qemu-system-x86_64";

/// What the host can do, asked once per process: it takes seconds.
fn all() -> &'static [Check] {
    static ALL: OnceLock<Vec<Check>> = OnceLock::new();
    ALL.get_or_init(|| {
        let probes = probe::checks().into_iter().map(|c| Check {
            name: c.name,
            purpose: c.purpose.to_owned(),
            ok: c.ok,
            unknown: c.unknown,
            reason: c.reason,
            remedy: c.remedy,
        });
        let programs = [
            program("iperf3", "sending traffic", "apt-get install iperf3"),
            program("mptcpize", "MPTCP for programs that do not ask for it", "apt-get install mptcpize"),
            program(GUEST_PROGRAM, "guests", "apt-get install qemu-system-x86"),
        ];
        probes.chain(programs).collect()
    })
}

fn program(name: &str, purpose: &str, install: &str) -> Check {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let ok = std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    Check {
        name: name.to_owned(),
        purpose: purpose.to_owned(),
        ok,
        unknown: false,
        reason: (!ok).then(|| "not installed or not in PATH".to_owned()),
        remedy: (!ok).then(|| install.to_owned()),
    }
}

/// Every check, and whether the kernel and guest engines can be used.
pub(crate) fn host() -> (Vec<Check>, Result<(), Failure>, Result<(), Failure>) {
    (all().to_vec(), required(&REQUIRED), guest_engine())
}

/// Whether this host's kernel can run `plan`.
pub(crate) fn kernel_engine(plan: &Plan) -> Result<(), Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::host(
            "engine kernel: needs root to make network namespaces and load BPF programs",
        )
        .help("run it with sudo, or use --engine sim"));
    }
    let mut names: Vec<String> = REQUIRED.map(str::to_owned).to_vec();
    for spec in plan.cases.iter().filter_map(|case| LabSpec::try_from(case).ok()) {
        if spec.serves_ports() {
            names.extend(["qdisc-clsact".to_owned(), "marker".to_owned()]);
        }
        if spec.paths.iter().any(|path| !path.delay.is_zero()) {
            names.push("qdisc-netem".to_owned());
        }
        for flow in &spec.flows {
            if matches!(flow.transport, Transport::Mptcp { .. }) {
                names.push("mptcp".to_owned());
            }
            if matches!(flow.cc, vmcc_lab::Cc::Registry(_)) {
                names.push(flow.cc.kernel_name());
            }
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    required(&names)
}

fn required(names: &[&str]) -> Result<(), Failure> {
    let missing = all().iter().find(|check| !check.ok && names.contains(&check.name.as_str()));
    match missing {
        None => Ok(()),
        Some(check) => {
            let reason = check.reason.as_deref().unwrap_or("it does not work here");
            let failure = Failure::host(format!("engine kernel: {}: {reason}", check.name));
            Err(failure.help(check.remedy.clone().unwrap_or_else(|| "see `vmcc doctor`".to_owned())))
        }
    }
}

/// Whether a guest can be booted.
pub(crate) fn guest_engine() -> Result<(), Failure> {
    let qemu = program(GUEST_PROGRAM, "", "apt-get install qemu-system-x86");
    if !qemu.ok {
        return Err(Failure::host(format!("engine guest: {GUEST_PROGRAM} is not installed or not in PATH"))
            .help("make setup-guest"));
    }
    match guest::newest_kernel() {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::host(format!("engine guest: {}", chain(&error))).help("make setup-guest")),
    }
}
