//! Marking against tail drop with the `bpf` backend, and on the switch that needs a kernel module: Linux bridge and Open
//! vSwitch's kernel datapath; and a VM on a tap. See docs/platforms.md.
#![cfg(feature = "root-tests")]

mod switch;

use std::time::Duration;
use switch::compare::{MARKING, compare, compare_multipath};
use switch::ovs::{self, Datapath, Ovs};
use switch::traffic::transfer;
use switch::vm::{Vm, add_tap};
use switch::{Bridge, Host, config, multipath, run};
use vmcc_host::port::Port;

const LIMIT: Duration = Duration::from_secs(580);
const BACKENDS: [&str; 2] = ["bpf", "htb"];
/// Each of two ports: what an emulated machine fills on a busy host too.
const SLOW: &str = "20mbit";

/// Every switch in one guest: each loads its programs anew, but a boot is as long as a test.
#[test]
fn guest_platforms_switches() {
    switch::guests::run_inside("6.18", &["inside_"], LIMIT);
}

#[test]
#[ignore = "on demand: root_platforms has the same switches with the host's backend"]
fn on_linux_6_18_switches_multipath() {
    switch::guests::run_inside("6.18", &["more_"], LIMIT);
}

/// Towards the VM its tap marks; from the VM the port marks by which its packets leave the bridge.
#[test]
fn guest_platforms_vm_on_a_tap() {
    let bridge = Bridge::new(1);
    let host = &bridge.hosts[0];
    bridge.namespace.within(|| {
        add_tap("tap0");
        let vm = Vm::start("tap0", &host.address);
        vm.receive(host);
        let slow = MARKING.replace("100mbit", "50mbit");
        for (name, port) in [("tap, to the VM", "tap0"), ("uplink, from the VM", host.port.as_str())] {
            let text = format!("{slow}backend = 'htb'\n");
            let port = Port::attach(port, &config(&text)).unwrap_or_else(|e| panic!("{e}"));
            let measure = || if name.starts_with("tap") { vm.receive(host) } else { vm.send(host) };
            compare(&format!("QEMU VM: {name}"), vec![port], "htb", measure);
        }
    });
}

/// The same for a VM with two taps, each a port of its own, under vMCC.
#[test]
fn guest_platforms_vm_on_two_taps_multipath() {
    let _vmcc = multipath::load();
    let bridge = Bridge::with_two(2);
    let (sender, receiver) = (&bridge.hosts[0], &bridge.hosts[1]);
    multipath::prepare_pair(sender, receiver);
    bridge.namespace.within(|| {
        let taps = ["tap0", "tap1"];
        taps.into_iter().for_each(add_tap);
        let vm = Vm::start_multipath(taps, &receiver.address);
        vm.receive_multipath(sender);
        let marking = multipath::config(SLOW, "htb");
        let attach = |port: &str| Port::attach(port, &marking).unwrap_or_else(|e| panic!("{e}"));
        let ports = taps.map(attach).into();
        compare_multipath("QEMU VM: taps, to the VM", ports, "htb", || vm.receive_multipath(sender));
        let ports = receiver.ports().into_iter().map(attach).collect();
        compare_multipath("QEMU VM: uplinks, from the VM", ports, "htb", || vm.send_multipath(receiver));
    });
}

#[test]
#[ignore = "runs in a VM"]
fn vm_with_two_interfaces() {
    switch::vm::run_multipath();
}

#[test]
#[ignore = "runs in a guest"]
fn inside_linux_bridge() {
    let bridge = Bridge::new(2);
    for backend in BACKENDS {
        let port = bridge.attach(1, &format!("{MARKING}backend = '{backend}'\n"));
        compare("Linux bridge", vec![port], backend, || {
            transfer(&bridge.hosts[0], &bridge.hosts[1], 5201, "-t 3")
        });
    }
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
    ovs::compare_backends_multipath(Datapath::Kernel, SLOW, &BACKENDS);
}

/// With the backend that the host does not have.
#[test]
#[ignore = "runs in a guest"]
fn more_multipath_open_vswitch_userspace_datapath() {
    ovs::compare_backends_multipath(Datapath::Userspace, SLOW, &["bpf"]);
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
