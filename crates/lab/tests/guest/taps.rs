//! Marking against tail drop for a VM on taps: a guest's kernel at one end, the host's, its bridge and its algorithms at the
//! other. See docs/how-to/platforms.md.

use crate::switch::compare::{MARKING, compare, compare_multipath};
use crate::switch::vm::{Vm, add_tap};
use crate::switch::{self, Bridge, config, multipath};
use vmcc_port::Port;

/// Each of two ports: what an emulated machine fills on a busy host too.
const SLOW: &str = "20mbit";

/// Towards the VM its tap marks; from the VM the port marks by which its packets leave the bridge.
#[test]
#[ignore = "on demand: a VM on two taps has the same on each"]
fn on_linux_6_18_vm_on_a_tap() {
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
fn guest_vm_on_two_taps_multipath() {
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
