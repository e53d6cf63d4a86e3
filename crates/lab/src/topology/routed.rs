//! Hosts and switches that route.
//!
//! ```text
//!  left0 p0 ── v0.0 [at+left0] o2 ══ i2 [at+left] o0 ══ i0 [at+right] o9 ══ i9 [at+right0] v1.0 ── p0 right0
//!  2+left0 p0 ─ v2.0 ┘          └ the host's own port       └ the bottleneck
//! ```
//!
//! Every node is a namespace that forwards; a host's TCP stacks (see `stack`) are plugged into the host's node. Every
//! direction of a link is a veth pair of its own: leg `o` sends and has the port's queue, leg `i` receives. Where a
//! link delays or loses packets they pass a namespace of wires in between, whose legs have netem, or a user-space link between them.
//!
//! A subflow leaves its stack on its subnet's interface. From there on rules (`from A to B`) say by which port a node
//! sends it on, so that any set of routes is possible, whatever else goes to the same host. Nobody asks for hardware
//! addresses (`wire::ROUTED`). Only what carries packets is made: idle parts of a network change nothing.

use super::stack::{Ends, Stack};
use super::wire::{Interface, Leg, ROUTED, in_namespace, join, no_ipv6, plug};
use super::{Between, PortPlace, impaired_link, shape};
use crate::spec::{LabSpec, Routed, Wire};
use crate::userspace_link::{LinkEnd, UserspaceLink};
use crate::{Error, netns::Netns};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use vmcc_netlink::{Links, Match, os_code};
use vmcc_network::LinkId;

/// Tables of rules begin here: a port's is this and its number.
const FIRST_TABLE: u32 = 1000;

/// The nodes that carry packets, and whether there are wires between them. No host's name has a `+`.
pub(super) fn namespaces(spec: &LabSpec, routed: &Routed) -> Vec<String> {
    let nodes = nodes(spec, routed);
    let mut names: Vec<String> = nodes.iter().map(|node| format!("at+{}", routed.nodes[*node])).collect();
    if routed.is_impaired(&spec.flows) {
        names.push("wires+".to_owned());
    }
    names
}

fn nodes(spec: &LabSpec, routed: &Routed) -> BTreeSet<usize> {
    let (_, used) = routed.used(&spec.flows);
    used.iter().flat_map(|link| [routed.links[link.index()].from, routed.links[link.index()].to]).collect()
}

struct Builder<'a> {
    spec: &'a LabSpec,
    routed: &'a Routed,
    nodes: BTreeMap<usize, &'a Netns>,
    wires: Option<&'a Netns>,
    /// True if user-space links take the place of netem.
    in_userspace: bool,
    userspace_links: Vec<UserspaceLink>,
    /// The table of each port, by namespace and name.
    tables: BTreeMap<(String, String), u32>,
    /// Packets that have a rule, by namespace.
    rules: BTreeSet<(String, Match)>,
}

pub(super) fn build(
    spec: &LabSpec,
    routed: &Routed,
    (stacks, ends): (&[Stack], &Ends),
    switches: &[Netns],
) -> Result<Between, Error> {
    let nodes: BTreeMap<usize, &Netns> = nodes(spec, routed).into_iter().zip(switches).collect();
    let wires = switches.get(nodes.len());
    switches.iter().try_for_each(set_up_router)?;
    let in_userspace = wires.is_some_and(|wires| impaired_link::in_userspace(spec, wires));
    if let Some(wires) = wires.filter(|_| in_userspace) {
        // What arrives there is the user-space links' alone.
        wires.sysctl("net.ipv4.ip_forward", "0")?;
    }
    let (tables, rules, userspace_links) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    let mut builder = Builder { spec, routed, nodes, wires, in_userspace, userspace_links, tables, rules };
    let ports = builder.links()?;
    for stack in stacks {
        (0..stack.subnets).try_for_each(|subnet| builder.plug_in(stack, subnet))?;
    }
    for (flow, (sender, receiver)) in spec.flows.iter().zip(ends) {
        for (subnet, way) in routed.routes(flow.from, flow.to).iter().enumerate() {
            let (from, to) = (stacks[*sender].address(subnet), stacks[*receiver].address(subnet));
            builder.lay(&way.forward, from, to)?;
            builder.lay(&way.reverse, to, from)?;
        }
    }
    Ok(Between { ports, userspace_links: builder.userspace_links })
}

/// Forwards whatever comes, by rules alone.
fn set_up_router(at: &Netns) -> Result<(), Error> {
    no_ipv6(at)?;
    at.sysctl("net.ipv4.ip_forward", "1")?;
    for (key, value) in [("rp_filter", "0"), ("send_redirects", "0")] {
        for of in ["all", "default"] {
            at.sysctl(&format!("net.ipv4.conf.{of}.{key}"), value)?;
        }
    }
    Ok(())
}

impl<'a> Builder<'a> {
    /// Every link that carries packets.
    fn links(&mut self) -> Result<Vec<PortPlace>, Error> {
        let (data, used) = self.routed.used(&self.spec.flows);
        let mut places = Vec::new();
        for id in used {
            self.link(id)?;
            let link = &self.routed.links[id.index()];
            let (at, port) = (self.nodes[&link.from], sending(id));
            if !data.contains(&id) {
                shape::limit(at, &port, &link.shape)?;
                continue;
            }
            let (namespace, config) = (at.name().to_owned(), link.shape.config());
            places.push(PortPlace { namespace, port, config, paths: link.paths.clone() });
        }
        Ok(places)
    }

    fn link(&mut self, id: LinkId) -> Result<(), Error> {
        let link = &self.routed.links[id.index()];
        let (from, to) = (self.nodes[&link.from], self.nodes[&link.to]);
        let (out, into) = (Leg::routed(from, sending(id)), Leg::routed(to, format!("i{}", id.0)));
        let Some(wires) = self.wires.filter(|_| link.wire.is_impaired()) else { return join(&out, &into) };
        let (near, far) = (format!("a{}", id.0), format!("b{}", id.0));
        join(&out, &Leg::routed(wires, near.as_str()))?;
        join(&Leg::routed(wires, far.as_str()), &into)?;
        if self.in_userspace {
            let ends = (LinkEnd { at: wires, name: near }, LinkEnd { at: wires, name: far });
            // Back nothing comes: the other direction of a link is one of its own.
            let userspace_link = UserspaceLink::start(
                &ends.0,
                &ends.1,
                (link.wire, Wire::default()),
                (self.spec.machines.seed, id.index()),
            )?;
            self.userspace_links.push(userspace_link);
            return Ok(());
        }
        shape::impair(wires, &far, link.shape.rate, &link.wire)?;
        self.rule(wires, Match::ReceivedBy(near), &far)
    }

    /// A stack's interface on a subnet.
    fn plug_in(&mut self, stack: &Stack, subnet: usize) -> Result<(), Error> {
        let Some(&at) = self.nodes.get(&self.routed.node_of_host[stack.host]) else { return Ok(()) };
        let (port, address) = (format!("v{}.{subnet}", stack.number), stack.address(subnet));
        let name = format!("p{subnet}");
        let addresses = stack.addresses_here(subnet);
        let interface = Interface { name, addresses, hardware: Some(ROUTED), routed: true };
        plug(&Leg::routed(at, port.as_str()), &stack.netns, interface)?;
        self.rule(at, Match::To(address), &port)
    }

    /// The route of packets between two addresses.
    fn lay(&mut self, links: &[LinkId], from: Ipv4Addr, to: Ipv4Addr) -> Result<(), Error> {
        for id in links {
            let at = self.nodes[&self.routed.links[id.index()].from];
            self.rule(at, Match::Between(from, to), &sending(*id))?;
        }
        Ok(())
    }

    /// Has such packets leave by `port`, once; the routes of one pair of hosts are the same for all its flows.
    fn rule(&mut self, at: &'a Netns, packets: Match, port: &str) -> Result<(), Error> {
        if !self.rules.insert((at.name().to_owned(), packets.clone())) {
            return Ok(());
        }
        let table = self.table(at, port)?;
        let done = at.run(move || Links::open()?.add_rule(&packets, table));
        done.map_err(|e| no_rules(e, at))
    }

    fn table(&mut self, at: &Netns, port: &str) -> Result<u32, Error> {
        let key = (at.name().to_owned(), port.to_owned());
        if let Some(table) = self.tables.get(&key) {
            return Ok(*table);
        }
        let index = at.port_index(port)?;
        let table = FIRST_TABLE + index;
        in_namespace(at, "routing in", move || Links::open()?.add_table(table, index))?;
        self.tables.insert(key, table);
        Ok(table)
    }
}

/// The leg that sends.
fn sending(link: LinkId) -> String {
    format!("o{}", link.0)
}

fn no_rules(error: std::io::Error, at: &Netns) -> Error {
    match os_code(&error) {
        Some(nix::libc::EOPNOTSUPP | nix::libc::EAFNOSUPPORT) => Error::KernelFeature {
            feature: "policy routing (CONFIG_IP_MULTIPLE_TABLES)".to_owned(),
            cause: "it takes no rule".to_owned(),
            remedy: "use \"parallel-paths\" or \"virtual-host\", else `--engine guest` or `--engine sim`"
                .to_owned(),
        },
        _ => Error::kernel("adding a routing rule in", format!("namespace {}", at.name()), error),
    }
}
