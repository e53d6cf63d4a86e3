//! Marking against tail drop with the `bpf` backend, and on the switch that needs a kernel module: Linux bridge and Open
//! vSwitch's kernel datapath. See docs/how-to/platforms.md.

use crate::inside::run_inside;
use crate::switch::compare::{MARKING, compare, compare_multipath};
use crate::switch::ovs::{self, Datapath, Ovs};
use crate::switch::traffic::transfer;
use crate::switch::{Bridge, Host, config, multipath, run};
use std::time::Duration;
use vmcc_port::Port;

const LIMIT: Duration = Duration::from_secs(580);
const BACKENDS: [&str; 2] = ["bpf", "htb"];
/// Each of two ports: what an emulated machine fills on a busy host too.
const SLOW: &str = "20mbit";

/// Every switch in one guest: each loads its programs again, but a boot is as long as a test.
#[test]
fn guest_platforms_switches() {
    run_inside(module_path!(), "6.18", &["inside_"], LIMIT);
}

#[test]
#[ignore = "on demand: root_platforms has the same switches with the host's backend"]
fn on_linux_6_18_switches_multipath() {
    run_inside(module_path!(), "6.18", &["more_"], LIMIT);
}

#[test]
#[ignore = "runs in a guest"]
fn inside_linux_bridge() {
    linux_bridge("bpf");
}

#[test]
#[ignore = "runs in a guest"]
fn more_linux_bridge() {
    linux_bridge("htb");
}

fn linux_bridge(backend: &str) {
    let bridge = Bridge::new(2);
    let port = bridge.attach(1, &format!("{MARKING}backend = '{backend}'\n"));
    compare("Linux bridge", vec![port], backend, || {
        transfer(&bridge.hosts[0], &bridge.hosts[1], 5201, "-t 3")
    });
}

#[test]
#[ignore = "runs in a guest"]
fn inside_open_vswitch_kernel_datapath() {
    ovs::compare_backends(Datapath::Kernel, &BACKENDS);
}

#[test]
#[ignore = "runs in a guest"]
fn more_multipath_linux_bridge() {
    let _vmcc = multipath::load();
    let bridge = Bridge::with_two(2);
    let (from, to) = (&bridge.hosts[0], &bridge.hosts[1]);
    multipath::prepare_pair(from, to);
    multipath::warm_up(from, to);
    for backend in BACKENDS {
        let ports = bridge.attach_all(1, &multipath::config(SLOW, backend));
        compare_multipath("Linux bridge", ports, backend, || multipath::transfer(from, to, 5201, 4));
    }
}

#[test]
#[ignore = "runs in a guest"]
fn inside_multipath_open_vswitch_kernel_datapath() {
    ovs::compare_backends_multipath(Datapath::Kernel, SLOW, &["bpf"]);
}

/// On one path the switch has both backends above.
#[test]
#[ignore = "runs in a guest"]
fn more_multipath_open_vswitch_kernel_datapath() {
    ovs::compare_backends_multipath(Datapath::Kernel, SLOW, &["htb"]);
}

/// With the backend that the host does not have.
#[test]
#[ignore = "runs in a guest"]
fn more_multipath_open_vswitch_userspace_datapath() {
    ovs::compare_backends_multipath(Datapath::Userspace, SLOW, &["bpf"]);
}

/// Open vSwitch without `linux-noop` removes a queue that it finds when it starts, as docs/how-to/platforms.md warns.
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
