//! Marking against tail drop with the `htb` backend on what needs no kernel of its own: Linux bridge with namespaces, with
//! podman's containers; Open vSwitch's userspace datapath (the stand-in for DPDK). See docs/evidence/platforms.md. Needs root.

use crate::switch::compare::{MARKING, compare, compare_multipath};
use crate::switch::ovs::{self, Datapath};
use crate::switch::podman::{Network, Podman, own_mounts};
use crate::switch::traffic::transfer;
use crate::switch::{Bridge, Namespace, config, multipath};
use vmcc_port::Port;
use vmcc_port::PortConfig;

#[test]
fn root_platforms_bridge() {
    let bridge = Bridge::new(2);
    let port = bridge.attach(1, &format!("{MARKING}backend = 'htb'\n"));
    compare("Linux bridge", vec![port], "htb", || transfer(&bridge.hosts[0], &bridge.hosts[1], 5201, "-t 4"));
}

#[test]
fn root_platforms_bridge_multipath() {
    let _vmcc = multipath::load();
    let bridge = Bridge::with_two(2);
    let (from, to) = (&bridge.hosts[0], &bridge.hosts[1]);
    multipath::prepare_pair(from, to);
    let ports = bridge.attach_all(1, &multipath::config("50mbit", "htb"));
    compare_multipath("Linux bridge", ports, "htb", || multipath::transfer(from, to, 5201, 2));
}

#[test]
fn root_platforms_open_vswitch_userspace() {
    let switch = Namespace::new("ovs");
    switch.within(|| ovs::compare_backends(Datapath::Userspace, &["htb"]));
}

#[test]
fn root_platforms_open_vswitch_userspace_multipath() {
    let switch = Namespace::new("ovs");
    switch.within(|| ovs::compare_backends_multipath(Datapath::Userspace, "50mbit", &["htb"]));
}

#[test]
fn root_platforms_podman_with_cni() {
    compare_podman(Network::Cni);
}

#[test]
fn root_platforms_podman_with_netavark() {
    compare_podman(Network::Netavark);
}

fn compare_podman(network: Network) {
    let _vmcc = multipath::load();
    let outside = Namespace::new("pod");
    outside.within(|| {
        own_mounts();
        let mut podman = Podman::new(network);
        let (from, to) = (podman.start(), podman.start());
        let name = format!("podman, {network:?}");
        let attach =
            |port: &str, config: &PortConfig| Port::attach(port, config).unwrap_or_else(|e| panic!("{e}"));
        let port = attach(&to.port, &config(&format!("{MARKING}backend = 'htb'\n")));
        compare(&name, vec![port], "htb", || transfer(&from, &to, 5201, "-t 4"));
        multipath::prepare_pair(&from, &to);
        let marking = multipath::config("50mbit", "htb");
        let ports = to.ports().into_iter().map(|port| attach(port, &marking)).collect();
        compare_multipath(&name, ports, "htb", || multipath::transfer(&from, &to, 5201, 2));
    });
}
