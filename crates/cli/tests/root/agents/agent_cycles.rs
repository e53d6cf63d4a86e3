//! An agent that starts and ends again and again leaves nothing: no BPF object, queue, sysctl, endpoint or file. How many
//! times says VMCC_TEST_CYCLES.

use crate::kept::{Agent, seen, until};
use crate::pair::Pair;
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::process::Command;
use vmcc_testkit::netns::{Namespace, run};

const CYCLES: u32 = 20;
const FILE: &str = "[algorithm.vmcc]\n[host]\ncongestion_control = 'mp_vmcc'\nnotsent_lowat = '4096B'\n\
                    mptcp = { subflows = 3, endpoint = [{ nic = 'p0', flags = ['signal'] }] }\n\
                    [port.p1]\nrate = '100mbit'\nmarking = { rule = 'threshold', at = '30kB' }\n\
                    [guard]\nenabled = true\n[metrics]\n";

/// Programs, maps and links of algorithms; ports of other tests are served meanwhile.
fn bpf_objects() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for kind in ["map", "prog", "link"] {
        let listed = Command::new("bpftool").args(["--json", kind, "show"]).output().unwrap();
        let all: serde_json::Value =
            serde_json::from_slice(&listed.stdout).unwrap_or_else(|e| panic!("{e}: {listed:?}"));
        let name = |one: &serde_json::Value| one["name"].as_str().unwrap_or_default().to_owned();
        let ours = |name: &str| {
            ["mp_", "cc_", ".data.vmcc", "vmcc_states"].iter().any(|begin| name.starts_with(begin))
        };
        let is_link = |one: &serde_json::Value| kind == "link" && one["type"] == "struct_ops";
        let all = all.as_array().unwrap().iter().filter(|one| ours(&name(one)) || is_link(one));
        found.extend(all.map(|one| format!("{kind} {} {}", one["id"], name(one))));
    }
    found
}

/// Files and pins of ours, and what is attached to the port.
fn rest(here: &Namespace) -> String {
    let files = Command::new("find").args(["/run/vmcc", "/sys/fs/bpf/vmcc"]).output().unwrap();
    let files = String::from_utf8(files.stdout).unwrap();
    files + &run(&format!("tc -n {here} filter show dev p1 egress")) + &seen(here)
}

#[test]
fn root_repeated_agent_runs_leak_nothing() {
    let cycles = std::env::var("VMCC_TEST_CYCLES").map_or(CYCLES, |text| text.parse().unwrap());
    let pair = Pair::new();
    let file = pair.file(FILE);
    let cycle = |many: u32| {
        for _ in 0..many {
            let mut agent = Agent::start(&pair.here, &file);
            agent.signal(Signal::SIGTERM);
            assert_eq!(agent.ends(), Some(0), "{}", agent.heard());
        }
    };
    // The first one makes folders that stay.
    cycle(1);
    let before = (bpf_objects(), rest(&pair.here));
    cycle(cycles);
    // The kernel lets go of programs a moment after they are gone.
    until("no BPF object that was not there before", || bpf_objects().is_subset(&before.0));
    assert_eq!(rest(&pair.here), before.1);
    let _agent = Agent::start(&pair.here, &file);
    let new: Vec<String> = bpf_objects().difference(&before.0).cloned().collect();
    assert!(new.len() >= 5 && rest(&pair.here) != before.1, "what is looked at can be seen: {new:?}");
}
