//! Virtual machines behind the virtual switch of one host with several NICs.
//!
//! ```text
//!            namespace switch: the virtual switch                        namespace net
//!  vm0 p0 ── v0.0 ─┐
//!                  ├─ bridge b0.0 ── u0.0 ══ w0.0 ─┐
//!  2+vm0 p0 ─ v1.0 ┘                port of vNIC   ├─ bridge n0 ── up0 ══ dn0 ── bridge f0 ── c2.0 ── p0 client
//!  vm1 p0 ── v2.0 ─── bridge b1.0 ── u1.0 ══ w1.0 ─┘   physical NIC 0: path a
//! ```
//!
//! A vNIC's packets enter the switch, and what enters a port of Linux does not queue. So the port of vNIC j of
//! VM i is a veth pair: its leg `u` sends towards the network, its leg `w` towards the VM, and each has the queue of
//! one direction. The mapping of vNICs to NICs is which bridge `w` belongs to; a vNIC moves by changing that.
//! Several namespaces of one VM (see `stack`) share the VM's ports.
//!
//! With hard caps the legs `u` and `w` have the vNIC's rate, and `up` and `dn` are shaped only where the VMs could
//! fill the path. With borrowing the legs are plain and `up` has one class per VM.
//!
//! Subnet j, that of vNIC j, reaches a client at the NIC that vNIC j is mapped to. All ports of a client have
//! one hardware address, so that a vNIC that moved finds the client at its new NIC as a machine behind a
//! routed network would be found; the client's way back is one route.

use super::stack::Stack;
use super::wire::{Interface, Leg, add_bridge, bring_up, in_namespace, join, no_ipv6, plug};
use super::{Between, PortPlace, impaired_link, shape};
use crate::spec::{LabSpec, OfPaths, Remap, Shape, Sharing, VirtualHost};
use crate::{Error, netns::Netns};
use vmcc_netlink::Links;
use vmcc_network::Guarantee;
use vmcc_port::{ClassConfig, Filter, PortConfig};
use vmcc_scenario::model::Discipline;

struct Builder<'a> {
    spec: &'a LabSpec,
    layout: &'a VirtualHost,
    stacks: &'a [Stack],
    switch: &'a Netns,
    net: &'a Netns,
    /// True if user-space links take the place of netem.
    in_userspace: bool,
    between: Between,
}

pub(super) fn build(
    spec: &LabSpec,
    layout: &VirtualHost,
    stacks: &[Stack],
    switches: &[Netns],
) -> Result<Between, Error> {
    let [switch, net] = switches else { return Err(Error::spec("topology", "it needs two namespaces")) };
    let in_userspace = impaired_link::in_userspace(spec, net);
    let mut builder =
        Builder { spec, layout, stacks, switch, net, in_userspace, between: Between::default() };
    no_ipv6(switch)?;
    no_ipv6(net)?;
    (0..spec.paths.len()).try_for_each(|nic| builder.nic(nic))?;
    for vm in 0..layout.vms {
        (0..layout.nic_of_vnic.len()).try_for_each(|vnic| builder.vnic(vm, vnic))?;
    }
    stacks.iter().filter(|stack| stack.host >= layout.vms).try_for_each(|stack| builder.client(stack))?;
    Ok(builder.between)
}

impl Builder<'_> {
    /// A physical NIC, its path, and the far end.
    fn nic(&mut self, nic: usize) -> Result<(), Error> {
        let (near, far) = (format!("n{nic}"), format!("f{nic}"));
        let (up, down) = (format!("up{nic}"), format!("dn{nic}"));
        add_bridge(self.switch, &near)?;
        add_bridge(self.net, &far)?;
        let legs = (
            &Leg::new(self.switch, up.as_str(), near.as_str()),
            &Leg::new(self.net, down.as_str(), far.as_str()),
        );
        let path = &self.spec.paths[nic];
        match self.in_userspace {
            true => {
                let userspace_link =
                    impaired_link::lay(legs, (path.out.wire, path.back.wire), (self.spec, nic))?;
                self.between.userspace_links.push(userspace_link);
            }
            false => join(legs.0, legs.1)?,
        }
        let Some(shape) = &path.out.shape else { return Ok(()) };
        let sending = match &self.layout.sharing {
            Sharing::Hard(_) => shape.config(),
            Sharing::Borrowing(guarantees) => self.lending(shape, guarantees),
        };
        self.port(self.switch, &up, true, (shape, sending, nic))?;
        self.port(self.net, &down, false, (shape, shape.config(), nic))
    }

    /// Shapes a port; where data flows, it is one of those that mark and are measured.
    fn port(
        &mut self,
        at: &Netns,
        port: &str,
        outward: bool,
        (shape, config, path): (&Shape, PortConfig, usize),
    ) -> Result<(), Error> {
        if !self.spec.flows.iter().any(|flow| self.spec.layout.is_outward(flow) == outward) {
            return shape::limit(at, port, shape);
        }
        let namespace = at.name().to_owned();
        self.between.ports.push(PortPlace {
            namespace,
            port: port.to_owned(),
            config,
            paths: OfPaths::of(path),
        });
        Ok(())
    }

    /// One class per VM, by the addresses of all its stacks and vNICs.
    fn lending(&self, shape: &Shape, guarantees: &[Guarantee]) -> PortConfig {
        let class = |(vm, guarantee): (usize, &Guarantee)| {
            let stacks = self.stacks.iter().filter(move |stack| stack.host == vm);
            let subnets = self.layout.nic_of_vnic.len();
            let addresses = stacks.flat_map(|stack| (0..subnets).map(|subnet| stack.address(subnet)));
            let filter = addresses.map(|address| Filter { from: Some(address.into()), ..Filter::default() });
            ClassConfig {
                weight: guarantee.weight,
                guarantee: Some(guarantee.rate),
                filter: filter.collect(),
                ..ClassConfig::named(self.spec.hosts[vm].as_str())
            }
        };
        let classes = guarantees.iter().enumerate().map(class).collect();
        PortConfig { queue: Some(Discipline::Drr), classes, ..shape.config() }
    }

    /// A vNIC of a VM and its port on the virtual switch.
    fn vnic(&mut self, vm: usize, vnic: usize) -> Result<(), Error> {
        let nic = self.layout.nic_of_vnic[vnic];
        let own = format!("b{vm}.{vnic}");
        let (out, home) = (format!("u{vm}.{vnic}"), format!("w{vm}.{vnic}"));
        add_bridge(self.switch, &own)?;
        join(
            &Leg::new(self.switch, out.as_str(), own.as_str()),
            &Leg::new(self.switch, home.as_str(), format!("n{nic}")),
        )?;
        for stack in self.stacks.iter().filter(|stack| stack.host == vm) {
            let port = format!("v{}.{vnic}", stack.number);
            let addresses = stack.addresses_here(vnic);
            let interface = Interface { name: format!("p{vnic}"), addresses, ..Interface::default() };
            plug(&Leg::new(self.switch, port.as_str(), own.as_str()), &stack.netns, interface)?;
            // One that is no container lets go by itself.
            if !stack.is_elsewhere() {
                shape::let_go(&stack.netns, &format!("p{vnic}"))?;
            }
            answer_for_own(&stack.netns)?;
            if !self.in_userspace {
                shape::behind(self.switch, &port, &self.spec.paths[nic].back)?;
            }
        }
        let Sharing::Hard(shape) = &self.layout.sharing else { return Ok(()) };
        self.port(self.switch, &out, true, (shape, shape.config(), nic))?;
        self.port(self.switch, &home, false, (shape, shape.config(), nic))
    }

    fn client(&self, stack: &Stack) -> Result<(), Error> {
        for (nic, path) in self.spec.paths.iter().enumerate() {
            let port = format!("c{}.{nic}", stack.number);
            let subnets = self.layout.nic_of_vnic.iter().enumerate().filter(|(_, mapped)| **mapped == nic);
            let addresses = subnets.map(|(subnet, _)| stack.address(subnet)).collect();
            let number = u8::try_from(stack.number).unwrap_or(u8::MAX);
            // Locally administered, the same at every NIC.
            let hardware = Some([0x02, 0x76, 0x6d, 0, 0, number]);
            let interface = Interface { name: format!("p{nic}"), addresses, hardware, routed: false };
            plug(&Leg::new(self.net, port.as_str(), format!("f{nic}")), &stack.netns, interface)?;
            if !self.in_userspace {
                shape::behind(self.net, &port, &path.out)?;
            }
        }
        Ok(())
    }
}

/// Two vNICs of a VM may be at the same NIC; each answers for its own address only.
pub(super) fn answer_for_own(vm: &Netns) -> Result<(), Error> {
    vm.sysctl("net.ipv4.conf.all.arp_ignore", "1")
}

/// Moves a vNIC to another NIC's bridge, and updates the route at every client. The first `vms` hosts are VMs.
pub(super) fn remap(remap: &Remap, vms: usize, stacks: &[Stack], switches: &[Netns]) -> Result<(), Error> {
    let Some(switch) = switches.first() else { return Ok(()) };
    let &Remap { vm, vnic, nic, .. } = remap;
    bring_up(switch, &format!("w{vm}.{vnic}"), Some(&format!("n{nic}")))?;
    for client in stacks.iter().filter(|stack| stack.host >= vms) {
        let port = client.netns.port_index(&format!("p{nic}"))?;
        let from = client.address(vnic);
        for address in stacks.iter().filter(|stack| stack.host == vm).map(|stack| stack.address(vnic)) {
            in_namespace(&client.netns, "routing to a vNIC that moved in", move || {
                Links::open()?.replace_host_route(address, port, from)
            })?;
        }
    }
    Ok(())
}
