//! Marking against tail drop for a VM on taps: a guest's kernel at one end, the host's, its bridge and its algorithms at the
//! other. See docs/how-to/platforms.md.

use crate::switch::accecn::Counted;
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

const ACCECN_PROGRAM: &str = "guest::taps::vm_with_accecn";

/// Values of the ACE field.
const ACE_VALUES: u32 = 8;

/// With segmentation offload: a mark on a train of segments counts as often as it has segments, and no ACE field of data in either
/// direction is changed on the way from virtio-net over the taps.
#[test]
fn guest_accecn_counts_marks_of_ports_on_taps() {
    let bridge = Bridge::new(0);
    bridge.namespace.within(|| {
        let taps = ["tap0", "tap1"];
        taps.into_iter().for_each(add_tap);
        let marking =
            config("rate = '20mbit'\nbackend = 'htb'\nmarking = { rule = 'threshold', at = '60kB' }\n");
        let ports = taps.map(|tap| Port::attach(tap, &marking).unwrap_or_else(|e| panic!("{e}")));
        let vm = Vm::start_test("7", ACCECN_PROGRAM, taps, "");
        let [to_second, to_first]: [Counted; 2] = vm.measured();
        let [at_first, at_second] = ports.map(|port| port.detach().unwrap().classes[0].clone());
        for (counted, port) in [(to_second, at_second), (to_first, at_first)] {
            println!("{counted:?}, at the port: {} packets, {} marked", port.packets, port.marked);
            assert_eq!(u64::from(counted.arrived_pkt), port.marked, "{counted:?} {port:?}");
            // ACE has three bits: an ACK of a train with more than seven marks says eight too few.
            let missed = counted.arrived_pkt.abs_diff(counted.echoed_pkt);
            assert_eq!(missed % ACE_VALUES, 0, "{counted:?}");
            assert!(port.marked > 0, "nothing was marked");
        }
    });
}

#[test]
#[ignore = "runs in a VM"]
fn vm_with_accecn() {
    switch::accecn::run_in_vm();
}
