//! The description of a network from which engines build theirs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use vmcc_units::{BitsPerSec, Nanos};

use crate::{LinkSettings, Reroute};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        $($(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// As an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        })+
    };
}

ids! {
    /// A host or a switch.
    NodeId,
    /// A host, in the order of the language's names.
    HostId,
    /// One direction of a cable, with the port that feeds it.
    LinkId,
    /// Settings that links share.
    PortId,
    /// A named path.
    PathId,
}

/// A node that sends and receives.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// Its node, after which it is called.
    pub node: NodeId,
    /// Its rate.
    pub rate: BitsPerSec,
    /// The queue that all its packets use, whatever the traffic says.
    pub class: Option<u32>,
}

/// Share of a host in a port that serves several hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarantee {
    /// Sent whenever the host has that much to send.
    pub rate: BitsPerSec,
    /// Its part of what is idle, relative to the other hosts.
    pub weight: u32,
}

/// A port and the link behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// Rate, delay, buffer, queues, losses.
    pub settings: LinkSettings,
    /// The RTT of marking rules that give none.
    pub rtt: Nanos,
    /// One queue per host, number k that of class k, all lending to each other; empty: the queues of the settings.
    pub guarantees: Vec<Guarantee>,
}

/// One direction of a cable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Name of its random number stream, independent of other parts of the network; absent: its number.
    pub rng_stream: Option<String>,
    /// The node whose port this is.
    pub from: NodeId,
    /// The node at the far end.
    pub to: NodeId,
    /// Its settings.
    pub port: PortId,
}

/// A path that results are reported for and traffic may be confined to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Its name.
    pub name: String,
    /// The link whose queue stands for it: its bottleneck in the direction of the data.
    pub queue: LinkId,
    /// All its links, both directions.
    pub links: Vec<LinkId>,
}

/// A route from one host to another, and the route back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutePair {
    /// The named path that it takes, if any.
    pub path: Option<PathId>,
    /// Links of the data.
    pub forward: Vec<LinkId>,
    /// Links of the acknowledgments.
    pub reverse: Vec<LinkId>,
}

impl RoutePair {
    /// The same pair, seen from the other end.
    pub fn reversed(self) -> Self {
        Self { path: self.path, forward: self.reverse, reverse: self.forward }
    }
}

/// Source of choices among equal routes: a hash, or a random number.
pub type Draw<'a> = &'a mut dyn FnMut() -> u32;
/// True for links that are down.
pub type IsDown<'a> = &'a dyn Fn(LinkId) -> bool;

/// Routes of packets.
pub trait Routes: fmt::Debug + Send + Sync {
    /// The routes from one host to another; empty if there are none. With ECMP `count` of them, each choice taken
    /// from `draw`; elsewhere each that there is, once.
    fn between(&self, from: HostId, to: HostId, count: usize, draw: Draw<'_>) -> Vec<RoutePair>;

    /// The links from one host to another without those that are down, each choice taken from `draw`. `None`: none is left, or
    /// routes are fixed.
    fn avoiding(
        &self,
        _from: HostId,
        _to: HostId,
        _is_down: IsDown<'_>,
        _draw: Draw<'_>,
    ) -> Option<Vec<LinkId>> {
        None
    }

    /// The routes between a virtual machine and another host over one vNIC, when that is mapped to a NIC. `None`: nothing
    /// there can be moved.
    fn via_nic(&self, _vm: HostId, _vnic: usize, _nic: usize, _peer: HostId) -> Option<RoutePair> {
        None
    }
}

/// Explicit routes between pairs of hosts.
#[derive(Debug, Clone, Default)]
pub struct RouteTable(pub BTreeMap<(HostId, HostId), Vec<RoutePair>>);

impl RouteTable {
    /// Adds a pair of routes, and the same in the other direction.
    pub fn add(&mut self, from: HostId, to: HostId, pair: RoutePair) {
        self.0.entry((from, to)).or_default().push(pair.clone());
        self.0.entry((to, from)).or_default().push(pair.reversed());
    }
}

impl Routes for RouteTable {
    fn between(&self, from: HostId, to: HostId, _count: usize, _draw: Draw<'_>) -> Vec<RoutePair> {
        self.0.get(&(from, to)).cloned().unwrap_or_default()
    }
}

/// A network without routes, while it is built.
#[derive(Debug, Clone, Copy)]
pub struct NoRoutes;

impl Routes for NoRoutes {
    fn between(&self, _: HostId, _: HostId, _: usize, _: Draw<'_>) -> Vec<RoutePair> {
        Vec::new()
    }
}

/// Part of the network to which a node belongs when it is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// To the area of this number.
    Of(u32),
    /// To none: each of its ports belongs to where it leads.
    Between,
}

/// Cut of a network into parts that exchange little.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Areas {
    /// Number of parts.
    pub count: u32,
    /// The area of each node.
    pub of_node: Vec<Area>,
}

/// A network.
#[derive(Debug, Clone)]
pub struct Network {
    /// The names of all nodes.
    pub nodes: Vec<String>,
    /// The tier of each node of a multi-stage network, for results: `edge`, `spine`.
    pub tiers: Vec<Option<&'static str>>,
    /// Those that send and receive.
    pub hosts: Vec<Host>,
    /// Every direction of every cable.
    pub links: Vec<Link>,
    /// Parts of the links.
    pub ports: Vec<Port>,
    /// Names of links in events, each with both directions.
    pub cables: Vec<(String, Vec<LinkId>)>,
    /// The named paths.
    pub paths: Vec<Path>,
    /// Two-way propagation delay between the farthest hosts.
    pub base_rtt: Nanos,
    /// Its cut into parts. `None`: too small to gain from it.
    pub areas: Option<Areas>,
    /// The routes between hosts.
    pub routes: Arc<dyn Routes>,
    /// Time until routes follow a link that fails or comes back. `None`: they never do.
    pub reroute: Option<Nanos>,
}

impl Network {
    /// The name of a host.
    pub fn host_name(&self, host: HostId) -> &str {
        &self.nodes[self.hosts[host.index()].node.index()]
    }

    /// The links of a name in events; empty if nothing has it.
    pub fn cable(&self, name: &str) -> &[LinkId] {
        self.cables.iter().find(|(own, _)| own == name).map_or(&[], |(_, links)| links)
    }

    /// The name in events of a link; empty if it has none.
    pub fn cable_of(&self, link: LinkId) -> &str {
        self.cables.iter().find(|(_, links)| links.contains(&link)).map_or("", |(name, _)| name)
    }

    /// The tier of a link, from that of its sender to that of its receiver: `edge-agg`.
    pub fn tier(&self, link: LinkId) -> Option<String> {
        let Link { from, to, .. } = &self.links[link.index()];
        Some(format!("{}-{}", self.tiers[from.index()]?, self.tiers[to.index()]?))
    }

    /// A link's settings.
    pub fn port(&self, link: LinkId) -> &Port {
        &self.ports[self.links[link.index()].port.index()]
    }
}

/// A network under construction. Nodes, hosts and links are numbered in the order in which they are added.
#[derive(Debug)]
pub struct Builder(Network);

impl Builder {
    /// Nothing yet.
    pub fn new(base_rtt: Nanos) -> Self {
        Self(Network {
            nodes: Vec::new(),
            tiers: Vec::new(),
            hosts: Vec::new(),
            links: Vec::new(),
            ports: Vec::new(),
            cables: Vec::new(),
            paths: Vec::new(),
            base_rtt,
            areas: None,
            routes: Arc::new(NoRoutes),
            reroute: None,
        })
    }

    /// Adds a switch.
    pub fn node(&mut self, name: impl Into<String>) -> NodeId {
        self.0.nodes.push(name.into());
        self.0.tiers.push(None);
        NodeId(number(self.0.nodes.len() - 1))
    }

    /// Adds a switch of a tier.
    pub fn switch(&mut self, name: impl Into<String>, tier: &'static str) -> NodeId {
        let node = self.node(name);
        self.0.tiers[node.index()] = Some(tier);
        node
    }

    /// Has results tell links by the tiers of their ends: all hosts are one.
    pub fn report_tiers(&mut self) {
        for host in &self.0.hosts {
            self.0.tiers[host.node.index()] = Some("host");
        }
    }

    /// Adds a host that sends at most at `rate`.
    pub fn host(&mut self, name: impl Into<String>, rate: BitsPerSec) -> NodeId {
        let node = self.node(name);
        self.0.hosts.push(Host { node, rate, class: None });
        node
    }

    /// The hosts so far.
    pub fn hosts(&mut self) -> &mut [Host] {
        &mut self.0.hosts
    }

    /// Adds settings that links can share.
    pub fn port(&mut self, settings: LinkSettings, rtt: Nanos) -> PortId {
        self.0.ports.push(Port { settings, rtt, guarantees: Vec::new() });
        PortId(number(self.0.ports.len() - 1))
    }

    /// Adds settings of a port where hosts lend to each other.
    pub fn lending_port(&mut self, settings: LinkSettings, rtt: Nanos, guarantees: Vec<Guarantee>) -> PortId {
        self.0.ports.push(Port { settings, rtt, guarantees });
        PortId(number(self.0.ports.len() - 1))
    }

    /// Adds one direction.
    pub fn link(&mut self, from: NodeId, to: NodeId, port: PortId) -> LinkId {
        self.push(Link { rng_stream: None, from, to, port })
    }

    /// Adds both directions.
    pub fn duplex(&mut self, (a, b): (NodeId, NodeId), port: PortId) -> (LinkId, LinkId) {
        (self.link(a, b, port), self.link(b, a, port))
    }

    /// Adds both directions; their random number streams are named after `name`.
    pub fn named(
        &mut self,
        name: &str,
        (a, b): (NodeId, NodeId),
        ports: (PortId, PortId),
    ) -> (LinkId, LinkId) {
        let rng_stream = |direction: &str| Some(format!("{name}/{direction}"));
        let there = self.push(Link { rng_stream: rng_stream("there"), from: a, to: b, port: ports.0 });
        (there, self.push(Link { rng_stream: rng_stream("back"), from: b, to: a, port: ports.1 }))
    }

    fn push(&mut self, link: Link) -> LinkId {
        self.0.links.push(link);
        LinkId(number(self.0.links.len() - 1))
    }

    /// Gives links a name in events.
    pub fn cable(&mut self, name: impl Into<String>, links: impl Into<Vec<LinkId>>) {
        self.0.cables.push((name.into(), links.into()));
    }

    /// Adds a named path; `queue` stands for it.
    pub fn path(&mut self, name: impl Into<String>, queue: LinkId, links: Vec<LinkId>) -> PathId {
        self.0.paths.push(Path { name: name.into(), queue, links });
        PathId(number(self.0.paths.len() - 1))
    }

    /// The paths so far.
    pub fn paths(&mut self) -> &mut [Path] {
        &mut self.0.paths
    }

    /// The rate of a link.
    pub fn rate(&self, link: LinkId) -> BitsPerSec {
        self.0.port(link).settings.rate
    }

    /// Has routes follow links that fail.
    pub fn reroute(&mut self, reroute: Reroute) {
        self.0.reroute = reroute.delay();
    }

    /// Says how the network can be cut.
    pub fn cut(&mut self, areas: Areas) {
        self.0.areas = Some(areas);
    }

    /// The network with its routes.
    pub fn finish(self, routes: impl Routes + 'static) -> Network {
        Network { routes: Arc::new(routes), ..self.0 }
    }
}

/// Validation keeps networks far below 2^32 of anything.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
