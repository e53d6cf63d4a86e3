//! Marking against tail drop with the `htb` backend on what needs no kernel of its own: Linux bridge with namespaces, with
//! podman's containers; Open vSwitch's userspace datapath (the stand-in for DPDK). See docs/platforms.md. Needs root.
#![cfg(feature = "root-tests")]

mod switch;

use switch::ovs::{self, Datapath};
use switch::podman::{Podman, own_mounts};
use switch::traffic::{MARKING, compare, transfer};
use switch::{Bridge, Namespace, config};
use vmcc_host::port::Port;

#[test]
fn root_platforms_bridge() {
    let bridge = Bridge::new(2);
    let port = bridge.attach(1, &format!("{MARKING}backend = 'htb'\n"));
    compare("Linux bridge", port, "htb", || transfer(&bridge.hosts[0], &bridge.hosts[1], 5201, "-t 4"));
}

#[test]
fn root_platforms_open_vswitch_userspace() {
    let switch = Namespace::new("ovs");
    switch.within(|| ovs::compare_backends(Datapath::Userspace, &["htb"]));
}

#[test]
fn root_platforms_podman() {
    let outside = Namespace::new("pod");
    outside.within(|| {
        own_mounts();
        let mut podman = Podman::new();
        let (from, to) = (podman.start(), podman.start());
        let port = Port::attach(&to.port, &config(&format!("{MARKING}backend = 'htb'\n")));
        let port = port.unwrap_or_else(|e| panic!("{e}"));
        compare("podman, CNI bridge", port, "htb", || transfer(&from, &to, 5201, "-t 4"));
    });
}
