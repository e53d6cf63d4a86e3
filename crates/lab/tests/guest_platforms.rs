//! Marking against tail drop on the switches that this host's kernel lacks, and with the `bpf` backend: Linux bridge,
//! Open vSwitch with its kernel datapath, and with its userspace datapath (the stand-in for DPDK). See docs/platforms.md.
#![cfg(feature = "root-tests")]

mod switch;

use std::time::Duration;
use switch::ovs::{Datapath, Ovs};
use switch::traffic::{MARKING, compare, transfer};
use switch::{Bridge, Host, config, run};
use vmcc_host::port::Port;

const LIMIT: Duration = Duration::from_secs(150);
const BACKENDS: [&str; 2] = ["bpf", "htb"];

#[test]
fn guest_platforms_bridge() {
    switch::guests::run_inside("6.18", "inside_linux_bridge", LIMIT);
}

#[test]
fn guest_platforms_open_vswitch_kernel() {
    switch::guests::run_inside("6.18", "inside_open_vswitch_kernel_datapath", LIMIT);
}

#[test]
fn guest_platforms_open_vswitch_userspace() {
    switch::guests::run_inside("6.18", "inside_open_vswitch_userspace_datapath", LIMIT);
}

#[test]
fn guest_platforms_open_vswitch_without_noop() {
    switch::guests::run_inside("6.18", "inside_open_vswitch_without_noop", LIMIT);
}

#[test]
#[ignore = "runs in a guest"]
fn inside_linux_bridge() {
    let bridge = Bridge::new(2);
    for backend in BACKENDS {
        let port = bridge.attach(1, &format!("{MARKING}backend = '{backend}'\n"));
        compare("Linux bridge", port, backend, || transfer(&bridge.hosts[0], &bridge.hosts[1], 5201, "-t 3"));
    }
}

fn on_open_vswitch(datapath: Datapath) {
    let ovs = Ovs::start(datapath);
    let hosts = [Host::new(None, 1), Host::new(None, 2)];
    for host in &hosts {
        ovs.add_port(&host.port);
        ovs.leave_queues_alone(&host.port);
    }
    let root = |port: &str| run(&format!("tc qdisc show dev {port}")).lines().next().map(str::to_owned);
    for backend in BACKENDS {
        let text = format!("{MARKING}backend = '{backend}'\n");
        let port = Port::attach(&hosts[1].port, &config(&text)).unwrap_or_else(|e| panic!("{e}"));
        let ours = root(&hosts[1].port);
        ovs.change_other_things(&hosts[1].port);
        ovs.restart();
        assert_eq!(root(&hosts[1].port), ours, "Open vSwitch left the queue alone");
        compare(&format!("Open vSwitch, {}", datapath.name()), port, backend, || {
            transfer(&hosts[0], &hosts[1], 5201, "-t 3")
        });
    }
}

#[test]
#[ignore = "runs in a guest"]
fn inside_open_vswitch_kernel_datapath() {
    on_open_vswitch(Datapath::Kernel);
}

#[test]
#[ignore = "runs in a guest"]
fn inside_open_vswitch_userspace_datapath() {
    on_open_vswitch(Datapath::Userspace);
}

/// What docs/platforms.md warns of: without `linux-noop`, Open vSwitch removes a queue that it finds when it starts.
#[test]
#[ignore = "runs in a guest"]
fn inside_open_vswitch_without_noop_removes_the_queue() {
    let ovs = Ovs::start(Datapath::Kernel);
    let host = Host::new(None, 3);
    ovs.add_port(&host.port);
    let port = Port::attach(&host.port, &config("rate = '100mbit'\nbackend = 'htb'\n")).unwrap();
    assert!(run(&format!("tc qdisc show dev {}", host.port)).contains("htb"));
    ovs.restart();
    assert!(
        !run(&format!("tc qdisc show dev {}", host.port)).contains("htb"),
        "Open vSwitch leaves queues alone now"
    );
    port.detach().unwrap_or_else(|e| panic!("a port whose queue somebody took is let go: {e}"));
}
