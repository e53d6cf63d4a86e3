//! Topology of a run, built of network namespaces.
//!
//! Every host is a namespace, or several that are plugged in at the same place: flows that differ in congestion
//! control or ECN need TCP stacks of their own, because Linux settles both by namespace when a connection begins.
//! Subnet k is 10.77.k.0/24: a subflow leaves by the port of its addresses without any routing rule.
//! A subnet is a path, or a vNIC of every virtual machine. Nothing is made outside namespaces of this run, so
//! removing these removes everything.
//!
//! | module | |
//! |---|---|
//! | `stack` | the hosts' namespaces, their settings and addresses |
//! | `parallel`, `virtual_host`, `routed` | links, bridges and routers between the hosts |
//! | `wire`, `shape`, `impaired_link` | veth pairs and bridges; rates, queues and delays; delays without netem |

mod impaired_link;
mod parallel;
mod routed;
mod shape;
mod stack;
mod virtual_host;
mod wire;

pub(crate) use shape::QueueReader;
pub(crate) use stack::{on_subnet, subnet_of};
use wire::Interface;
pub(crate) use wire::{in_namespace, no_ipv6};

use crate::spec::{Cut, Flow, LabSpec, Layout, OfPaths, Remap};
use crate::userspace_link::UserspaceLink;
use crate::{Error, netns::Netns, registry::Record};
use stack::{Ends, Stack, StackPlan};
use std::net::Ipv4Addr;
use vmcc_netlink::{Links, TrafficControl};
use vmcc_port::PortConfig;

/// A port of a virtual switch on which packets wait.
#[derive(Debug, Clone)]
pub(crate) struct PortPlace {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name there.
    pub(crate) port: String,
    /// Its configuration.
    pub(crate) config: PortConfig,
    /// The paths that its packets take (at the start of the run).
    pub(crate) paths: OfPaths,
}

/// The namespaces of one run. Dropping it removes them.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    /// Between its namespaces, which outlive them.
    _userspace_links: Vec<UserspaceLink>,
    stacks: Vec<Stack>,
    ends: Ends,
    switches: Vec<Netns>,
    ports: Vec<PortPlace>,
}

/// Ports and user-space links between the hosts.
#[derive(Default)]
struct Between {
    ports: Vec<PortPlace>,
    userspace_links: Vec<UserspaceLink>,
}

impl Topology {
    /// Builds everything that `spec` asks for. On an error what was built is removed.
    pub(crate) fn build(spec: &LabSpec, record: &mut Record) -> Result<Self, Error> {
        let prefix = format!("vmcc-{}", record.run_id());
        let mut make = |name: &str| Netns::create(&format!("{prefix}-{name}"), record);
        let (plans, ends) = stack::plan(spec)?;
        let mut topology = Self { ends, ..Self::default() };
        for (number, plan) in plans.iter().enumerate() {
            let netns = make(&StackPlan::name(&plans, number, &spec.hosts))?;
            let elsewhere = spec.machines.hosts.contains(&plan.host);
            topology.stacks.push(Stack::new(number, plan, netns, (spec, elsewhere))?);
        }
        let switch_names = match &spec.layout {
            Layout::ParallelPaths => (0..spec.paths.len()).map(|path| format!("mid{path}")).collect(),
            Layout::VirtualHost(_) => vec!["switch".to_owned(), "net".to_owned()],
            Layout::Routed(routed) => routed::namespaces(spec, routed),
        };
        for name in switch_names {
            topology.switches.push(make(&name)?);
        }
        let between = match &spec.layout {
            Layout::ParallelPaths => parallel::build(spec, &topology.stacks, &topology.switches)?,
            Layout::VirtualHost(layout) => {
                virtual_host::build(spec, layout, &topology.stacks, &topology.switches)?
            }
            Layout::Routed(routed) => {
                let hosts = (&topology.stacks[..], &topology.ends);
                routed::build(spec, routed, hosts, &topology.switches)?
            }
        };
        (topology.ports, topology._userspace_links) = (between.ports, between.userspace_links);
        topology.stacks.iter().try_for_each(Stack::announce)?;
        Ok(topology)
    }

    /// The hosts' namespaces alone, inside the virtual machine that is `host`, which has its cards in them: `cards` are their
    /// numbers in this thread's namespace. The other hosts' are empty.
    pub(crate) fn inside(
        spec: &LabSpec,
        host: usize,
        cards: &[u32],
        record: &mut Record,
    ) -> Result<Self, Error> {
        let (plans, ends) = stack::plan(spec)?;
        let mut topology = Self { ends, ..Self::default() };
        for (number, plan) in plans.iter().enumerate() {
            let name = format!("vmcc-{}-{}", record.run_id(), StackPlan::name(&plans, number, &spec.hosts));
            let netns = Netns::create(&name, record)?;
            topology.stacks.push(Stack::new(number, plan, netns, (spec, false))?);
        }
        for stack in topology.stacks.iter().filter(|stack| stack.host == host) {
            for (subnet, card) in cards.iter().enumerate().take(stack.subnets) {
                topology.take_card(spec, stack, subnet, *card)?;
            }
            if matches!(spec.layout, Layout::VirtualHost(_)) {
                virtual_host::answer_for_own(&stack.netns)?;
            }
        }
        topology.stacks.iter().try_for_each(Stack::announce)?;
        Ok(topology)
    }

    fn take_card(&self, spec: &LabSpec, stack: &Stack, subnet: usize, card: u32) -> Result<(), Error> {
        let name = format!("p{subnet}");
        let moved = Links::open().and_then(|mut links| links.move_to(card, stack.netns.raw_fd(), &name));
        moved.map_err(|e| Error::kernel("moving a network card to", stack.netns.name(), e))?;
        let routed = matches!(spec.layout, Layout::Routed(_));
        let interface = Interface {
            name,
            addresses: vec![stack.address(subnet)],
            hardware: routed.then_some(wire::ROUTED),
            routed,
        };
        wire::settle(&stack.netns, interface).map(drop)
    }

    /// Namespaces of a flow's sender and receiver.
    pub(crate) fn ends(&self, flow: usize) -> (&Netns, &Netns) {
        let (sender, receiver) = self.ends[flow];
        (&self.stacks[sender].netns, &self.stacks[receiver].netns)
    }

    /// The namespaces of a host.
    pub(crate) fn stacks_of(&self, host: usize) -> impl Iterator<Item = &Netns> {
        self.stacks.iter().filter(move |stack| stack.host == host).map(|stack| &stack.netns)
    }

    /// The address to which a flow connects.
    pub(crate) fn server_of(&self, flow: usize, described: &Flow) -> Ipv4Addr {
        let (sender, receiver) = self.ends[flow];
        let server = if described.job.is_fetched() { sender } else { receiver };
        self.stacks[server].address(described.first_subnet())
    }

    /// Namespaces in which flows start, and those in which they end, each once.
    pub(crate) fn senders_and_receivers(&self) -> (Vec<&Netns>, Vec<&Netns>) {
        let of = |wanted: fn(&(usize, usize)) -> usize| {
            let used = |index: &usize| self.ends.iter().any(|ends| wanted(ends) == *index);
            (0..self.stacks.len()).filter(used).map(|index| &self.stacks[index].netns).collect()
        };
        (of(|ends| ends.0), of(|ends| ends.1))
    }

    /// The ports where packets wait in the directions in which data flows.
    pub(crate) fn ports(&self) -> &[PortPlace] {
        &self.ports
    }

    /// Counters of a port's queue.
    pub(crate) fn queue_reader(&self, place: &PortPlace) -> Result<QueueReader, Error> {
        let found = self.switches.iter().find(|switch| switch.name() == place.namespace);
        let Some(switch) = found else { return Err(Error::spec("topology", "a port in no namespace")) };
        let port = switch.port_index(&place.port)?;
        let opened = switch.run(TrafficControl::open);
        let tc = opened.map_err(|e| Error::kernel("reading the queues of", switch.name(), e))?;
        Ok(QueueReader::new(tc, port))
    }

    /// Has a path swallow everything, in both directions, or carry packets again.
    pub(crate) fn cut(&self, cut: &Cut) -> Result<(), Error> {
        // Checked: the switches are the middles of parallel paths.
        self.switches.get(cut.path).map_or(Ok(()), |middle| parallel::cut(middle, cut.up))
    }

    /// Moves a vNIC to another physical NIC.
    pub(crate) fn remap(&self, spec: &LabSpec, remap: &Remap) -> Result<(), Error> {
        match &spec.layout {
            Layout::ParallelPaths | Layout::Routed(_) => Ok(()),
            Layout::VirtualHost(layout) => {
                virtual_host::remap(remap, layout.vms, &self.stacks, &self.switches)
            }
        }
    }
}
