//! The Debian package on a machine with systemd: installed, upgraded while connections go on, removed, purged.

use crate::agent;
use crate::kept::{seen, sysctl, until};
use crate::machine::{Machine, package_of};
use crate::pair::Pair;
use std::path::Path;

const FILE: &str = "[algorithm.vmcc]\n[host]\ncongestion_control = 'mp_vmcc'\nnotsent_lowat = '4096B'\nmptcp = { subflows = 3 }\n";

fn algorithm_is_up() -> bool {
    agent::available().split_whitespace().any(|name| name == "mp_vmcc")
}

#[test]
fn root_package_is_installed_upgraded_removed_and_purged() {
    let pair = Pair::new();
    let machine = Machine::start(&pair.here);
    let before = seen(&pair.here);
    let pid = || machine.run("systemctl show --property MainPID --value vmcc.service");
    let congestion_control = || sysctl(&pair.here, "ipv4.tcp_congestion_control").trim().to_owned();

    // It asks for nothing until somebody writes what.
    let first = machine.put(&package_of("VMCC_OLD_PACKAGE", pair.dir.path(), "0.0.1"));
    let said = machine.run(&format!("dpkg --install {}", first.display()));
    assert_eq!(
        machine.run("systemctl is-active vmcc; systemctl is-enabled vmcc"),
        "active\nenabled\n",
        "{said}"
    );
    assert_eq!(seen(&pair.here), before);
    for line in [
        "vmcc --version | grep -qx 'vmcc [0-9.]*'",
        "MANWIDTH=200 man vmcc-up | tr -s ' ' | grep -q 'Run the agent'",
        "bash -c '. /usr/share/bash-completion/completions/vmcc && complete -p vmcc'",
        "grep -q '^#compdef vmcc' /usr/share/zsh/vendor-completions/_vmcc",
        "test -s /usr/share/vmcc/vmcc-alerts.yml -a -s /usr/share/vmcc/grafana-vmcc.json",
        "dpkg --verify vmcc",
    ] {
        machine.run(line);
    }

    // What the administrator wrote is kept over an upgrade, and so is all that the agent has set.
    machine.configure(FILE);
    until("what the file asks for", || {
        congestion_control() == "mp_vmcc" && sysctl(&pair.here, "ipv4.tcp_notsent_lowat") == "4096\n"
    });
    let (old, set) = (pid(), seen(&pair.here));
    let newer = package_of("VMCC_NEW_PACKAGE", pair.dir.path(), "0.0.2");
    let symbols = newer.to_str().unwrap().replace("/vmcc_", "/vmcc-dbgsym_");
    assert!(Path::new(&symbols).is_file(), "debug symbols have a package of their own");
    let second = machine.put(&newer);
    machine.run(&format!("dpkg --install {}", second.display()));
    until("the new agent", || machine.run("systemctl is-active vmcc || true") == "active\n");
    assert_ne!(pid(), old);
    assert_eq!(seen(&pair.here), set);
    let journal = machine.run("journalctl --unit vmcc --no-pager --output cat");
    let (until_handed, after) = journal.split_once("everything stays as it is").expect(&journal);
    assert!(!until_handed.contains("as before") && after.contains("ready: "), "{journal}");
    assert!(!after.contains(" set: "), "nothing had to be set again: {journal}");

    machine.run("dpkg --remove vmcc");
    // The kernel frees what was unpinned a moment later.
    until("the state before", || seen(&pair.here) == before);
    assert!(!algorithm_is_up());
    assert_eq!(machine.run("cat /etc/vmcc/vmcc.toml"), FILE);
    machine.run("dpkg --purge vmcc");
    assert_eq!(machine.run("ls /etc/vmcc /run/vmcc /sys/fs/bpf/vmcc 2>/dev/null || true"), "");
    assert_eq!(machine.files_of("vmcc"), [""; 0]);

    // An agent that was killed is no obstacle.
    machine.run(&format!("dpkg --install {}", second.display()));
    machine.configure(FILE);
    until("an algorithm", algorithm_is_up);
    machine.run("systemctl kill --signal KILL vmcc && systemctl stop vmcc");
    assert!(algorithm_is_up(), "it left what it had set");
    machine.run("dpkg --purge vmcc");
    until("the state before", || seen(&pair.here) == before);
    assert!(!algorithm_is_up());
}
