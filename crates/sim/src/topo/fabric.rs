//! A scenario's topology as a network: nodes by name, links by name, ways between hosts.

use std::collections::BTreeMap;

use vmcc_scenario::Scenario;
use vmcc_scenario::model::Topology;
use vmcc_units::{BitsPerSec, Bytes};

use super::{FatTree, FatTreeError};
use crate::engine::Partition;
use crate::net::{LinkSpec, NetError, NetSpec, NodeId, QueueSpec};
use crate::packet::{LinkId, RouteId};
use crate::rng::Stream;
use crate::time::Span;

/// Why a scenario's topology cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The network refused a part.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The fat tree refused a part.
    #[error(transparent)]
    FatTree(#[from] FatTreeError),
    /// A combination that the simulator does not have.
    #[error("{what} is not simulated; {remedy}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A host that the topology does not have.
    #[error("the topology has no host called `{0}`")]
    UnknownHost(String),
    /// Two hosts without a way between them.
    #[error("there is no path from `{from}` to `{to}`")]
    NoPath {
        /// The sender.
        from: String,
        /// The receiver.
        to: String,
    },
}

/// One way from a host to another and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The path's name in the scenario, if it has one.
    pub path: Option<String>,
    /// Links of the data.
    pub forward: Vec<LinkId>,
    /// Links of the acknowledgments.
    pub reverse: Vec<LinkId>,
}

/// A named path, for results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPath {
    /// Its name.
    pub name: String,
    /// The queue that stands for it: its bottleneck in the direction of the data.
    pub queue: LinkId,
    /// All its links, both directions.
    pub links: Vec<LinkId>,
}

/// A vNIC's ways through each physical NIC, for remapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VmPorts {
    /// Port of each vNIC of each VM on the virtual switch, sending: `[vm][vnic]`.
    pub(crate) up: Vec<Vec<LinkId>>,
    /// The same, receiving.
    pub(crate) down: Vec<Vec<LinkId>>,
    /// Sending and receiving link of each NIC.
    pub(crate) nics: Vec<(LinkId, LinkId)>,
    /// Last link to each client and its first link back, per NIC; empty with one client.
    pub(crate) clients: Vec<Vec<(LinkId, LinkId)>>,
}

/// How ways are found.
#[derive(Clone, Debug)]
pub(crate) enum Router {
    /// A handful of ways between any two hosts, by `(from, to)`.
    Table(BTreeMap<(NodeId, NodeId), Vec<Way>>),
    /// Equal hosts on both sides of one link: up, down of each host; the bottleneck there and back.
    Dumbbell { ports: Vec<(LinkId, LinkId)>, there: LinkId, back: LinkId, left: usize },
    /// VMs and clients.
    VirtualHost { ports: VmPorts, vms: usize, nic_of_vnic: Vec<u32>, borrowing: bool },
    /// Servers of two pods: per server and NIC up and down; per NIC number the core link there and back;
    /// the server's shared limit.
    TwoPod { ports: Vec<Vec<(LinkId, LinkId)>>, limits: Vec<Option<LinkId>>, cores: Vec<(LinkId, LinkId)> },
    /// Equal-cost paths by number.
    FatTree(FatTree),
    /// Shortest paths of a graph, by hash.
    Shortest(super::graph::Shortest),
}

/// A scenario's network.
#[derive(Clone, Debug)]
pub struct Fabric {
    /// Nodes, links and routes.
    pub net: NetSpec,
    pub(crate) hosts: Vec<NodeId>,
    pub(crate) names: BTreeMap<String, usize>,
    pub(crate) links: BTreeMap<String, Vec<LinkId>>,
    /// The paths that results are reported for.
    pub paths: Vec<NamedPath>,
    pub(crate) router: Router,
    /// What each host can send at most.
    pub(crate) host_rates: Vec<BitsPerSec>,
    /// Two-way propagation delay between the farthest hosts.
    pub(crate) base_rtt: Span,
    routes: BTreeMap<Vec<LinkId>, RouteId>,
}

/// The parts that builders share.
pub(crate) struct Builder {
    pub(crate) fabric: Fabric,
    pub(crate) mtu: Bytes,
}

impl Builder {
    pub(crate) fn new(scenario: &Scenario) -> Builder {
        let fabric = Fabric {
            net: NetSpec::new(),
            hosts: Vec::new(),
            names: BTreeMap::new(),
            links: BTreeMap::new(),
            paths: Vec::new(),
            router: Router::Table(BTreeMap::new()),
            host_rates: Vec::new(),
            base_rtt: Span::ZERO,
            routes: BTreeMap::new(),
        };
        Builder { fabric, mtu: scenario.host.mtu }
    }

    /// Adds a host that sends at most at `rate`.
    pub(crate) fn host(&mut self, name: String, rate: BitsPerSec) -> NodeId {
        let node = self.fabric.net.node();
        self.known_host(name, node, rate);
        node
    }

    /// Makes an existing node a host.
    pub(crate) fn known_host(&mut self, name: String, node: NodeId, rate: BitsPerSec) {
        self.fabric.names.insert(name, self.fabric.hosts.len());
        self.fabric.hosts.push(node);
        self.fabric.host_rates.push(rate);
    }

    /// Adds one direction.
    pub(crate) fn link(&mut self, spec: LinkSpec) -> Result<LinkId, NetError> {
        self.fabric.net.link(spec)
    }

    /// Adds both directions of a plain link.
    pub(crate) fn duplex(
        &mut self,
        (a, b): (NodeId, NodeId),
        rate: BitsPerSec,
        delay: Span,
        queue: &QueueSpec,
    ) -> Result<(LinkId, LinkId), NetError> {
        let there = self.link(LinkSpec::new(a, b, rate.get(), delay, queue.clone()))?;
        let back = self.link(LinkSpec::new(b, a, rate.get(), delay, queue.clone()))?;
        Ok((there, back))
    }
}

pub(crate) fn span(time: vmcc_units::Nanos) -> Span {
    Span::from_ns(time.get())
}

impl Fabric {
    /// Builds the network of a scenario.
    ///
    /// # Errors
    /// [`FabricError`] if the simulator cannot express it.
    pub fn build(scenario: &Scenario) -> Result<Fabric, FabricError> {
        let builder = Builder::new(scenario);
        match &scenario.topology {
            Topology::ParallelPaths(t) => super::simple::parallel_paths(builder, t),
            Topology::Dumbbell(t) => super::simple::dumbbell(builder, t),
            Topology::VirtualHost(t) => super::virtual_host::build(builder, t),
            Topology::TwoPod(t) => super::two_pod::build(builder, t),
            Topology::FatTree(t) => super::tree::build(builder, t),
            Topology::Graph(t) => super::graph::build(builder, t),
        }
    }

    /// The number of a host.
    pub(crate) fn host(&self, name: &str) -> Result<usize, FabricError> {
        self.names.get(name).copied().ok_or_else(|| FabricError::UnknownHost(name.to_owned()))
    }

    /// The links of a name in events, both directions.
    pub(crate) fn named_links(&self, name: &str) -> &[LinkId] {
        self.links.get(name).map_or(&[], Vec::as_slice)
    }

    /// The ways from one host to another for `count` subflows (`None`: one per way), restricted to the
    /// paths named. Networks that spread flows by hash draw from `ecmp`.
    ///
    /// # Errors
    /// [`FabricError::NoPath`] if none is left.
    pub(crate) fn ways(
        &self,
        from: usize,
        to: usize,
        allowed: Option<&[String]>,
        count: Option<u32>,
        ecmp: &mut Stream,
    ) -> Result<Vec<Way>, FabricError> {
        let all = self.router.ways(self, from, to, count.unwrap_or(1) as usize, ecmp)?;
        let kept: Vec<Way> = match allowed {
            Some(names) => {
                all.into_iter().filter(|w| w.path.as_ref().is_none_or(|p| names.contains(p))).collect()
            }
            None => all,
        };
        if kept.is_empty() {
            let name = |index: usize| {
                self.names.iter().find(|(_, i)| **i == index).map_or_else(String::new, |(n, _)| n.clone())
            };
            return Err(FabricError::NoPath { from: name(from), to: name(to) });
        }
        let count = count.map_or(kept.len(), |n| n as usize).min(vmcc_cc::MAX_PATHS);
        Ok(kept.iter().cycle().take(count.max(1)).cloned().collect())
    }

    /// The class of what a host sends: the VM's own bucket where VMs borrow, else the one asked for.
    pub(crate) fn class_of(&self, host: usize, asked: u32) -> u8 {
        let class = match &self.router {
            Router::VirtualHost { vms, borrowing: true, .. } if host < *vms => host,
            _ => asked as usize,
        };
        u8::try_from(class).unwrap_or(u8::MAX)
    }

    /// A route over these links; the same links share one route.
    pub(crate) fn route(&mut self, links: &[LinkId]) -> Result<RouteId, FabricError> {
        if let Some(route) = self.routes.get(links) {
            return Ok(*route);
        }
        let route = self.net.route(links)?;
        self.routes.insert(links.to_vec(), route);
        Ok(route)
    }

    /// Partition for so many threads; results do not depend on it.
    pub(crate) fn partition(&self, threads: u32) -> Partition {
        match &self.router {
            Router::FatTree(tree) => tree.partition(&self.net, threads),
            // The other networks are too small to gain from being split.
            _ => Partition::whole(&self.net),
        }
    }
}

impl Router {
    fn ways(
        &self,
        fabric: &Fabric,
        from: usize,
        to: usize,
        count: usize,
        ecmp: &mut Stream,
    ) -> Result<Vec<Way>, FabricError> {
        match self {
            Router::Table(table) => {
                let key = (fabric.hosts[from], fabric.hosts[to]);
                Ok(table.get(&key).cloned().unwrap_or_default())
            }
            Router::Dumbbell { ports, there, back, left } => {
                let (up, down) = (ports[from], ports[to]);
                let (first, second) = if from < *left { (*there, *back) } else { (*back, *there) };
                let across = (from < *left) != (to < *left);
                let (middle, home) = if across { (vec![first], vec![second]) } else { (vec![], vec![]) };
                Ok(vec![Way {
                    path: across.then(|| "bottleneck".into()),
                    forward: [vec![up.0], middle, vec![down.1]].concat(),
                    reverse: [vec![down.0], home, vec![up.1]].concat(),
                }])
            }
            Router::VirtualHost { ports, vms, nic_of_vnic, .. } => {
                Ok(super::virtual_host::ways(ports, *vms, nic_of_vnic, from, to))
            }
            Router::TwoPod { ports, limits, cores } => {
                Ok(super::two_pod::ways(ports, limits, cores, from, to))
            }
            Router::FatTree(tree) => super::tree::ways(tree, from, to, count, ecmp),
            Router::Shortest(shortest) => {
                Ok(shortest.ways(fabric.hosts[from], fabric.hosts[to], count, ecmp))
            }
        }
    }
}
