//! A scenario's network as the simulator has it: hosts and links by name, routes between hosts, shared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand_xoshiro::rand_core::Rng;
use vmcc_network::{Framing, HostId, Lead, Network, Unloaded};
use vmcc_scenario::Scenario;
use vmcc_scenario::model::{Event, EventKind};
use vmcc_units::BitsPerSec;

use super::error::FabricError;
use super::span;
use crate::engine::Partition;
use crate::net::{NetSpec, NodeId};
use crate::packet::{LinkId, RouteId};
use crate::rng::Stream;
use crate::time::Span;

/// A route from one host to another, and the route back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePair {
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

/// A scenario's network.
#[derive(Clone, Debug)]
pub struct Fabric {
    /// Nodes, links and routes.
    pub net: NetSpec,
    /// Network description from which the rest was built.
    pub(crate) network: Network,
    pub(crate) hosts: Vec<NodeId>,
    names: BTreeMap<String, usize>,
    /// The paths that results are reported for.
    pub paths: Vec<NamedPath>,
    /// Upper bound on each host's sending rate.
    pub(crate) host_rates: Vec<BitsPerSec>,
    /// Two-way propagation delay between the farthest hosts.
    pub(crate) base_rtt: Span,
    /// Time until routes follow a link that fails; `None`: they do not.
    pub(crate) reroute: Option<Span>,
    routes: BTreeMap<Vec<LinkId>, RouteId>,
    /// Timings of transfers, each once: many connections share one.
    unloaded: BTreeSet<Arc<Unloaded>>,
}

/// Numbers are the description's.
fn links(of: &[vmcc_network::LinkId]) -> Vec<LinkId> {
    of.iter().map(|link| LinkId(link.0)).collect()
}

fn host_id(host: usize) -> HostId {
    HostId(u32::try_from(host).unwrap_or(u32::MAX))
}

impl RoutePair {
    /// The same pair, seen from the other end.
    pub(crate) fn reversed(self) -> Self {
        Self { path: self.path, forward: self.reverse, reverse: self.forward }
    }
}

impl Fabric {
    /// Builds the network of a scenario.
    ///
    /// # Errors
    /// [`FabricError`] if the simulator cannot express it.
    pub fn build(scenario: &Scenario) -> Result<Fabric, FabricError> {
        let network = scenario.topology.network();
        let name = |index: usize| network.host_name(host_id(index)).to_owned();
        let path = |path: &vmcc_network::Path| NamedPath {
            name: path.name.clone(),
            queue: LinkId(path.queue.0),
            links: links(&path.links),
        };
        Ok(Fabric {
            net: super::net_spec(&network, scenario.host.mtu)?,
            hosts: network.hosts.iter().map(|host| NodeId(host.node.0)).collect(),
            names: (0..network.hosts.len()).map(|index| (name(index), index)).collect(),
            paths: network.paths.iter().map(path).collect(),
            host_rates: network.hosts.iter().map(|host| host.rate).collect(),
            base_rtt: span(network.base_rtt),
            reroute: network.reroute.map(span),
            routes: BTreeMap::new(),
            unloaded: BTreeSet::new(),
            network,
        })
    }

    /// The number of a host.
    pub(crate) fn host(&self, name: &str) -> Result<usize, FabricError> {
        self.names.get(name).copied().ok_or_else(|| FabricError::UnknownHost(name.to_owned()))
    }

    /// The hosts' names, by number.
    pub(crate) fn host_names(&self) -> Vec<Arc<str>> {
        (0..self.hosts.len()).map(|host| self.network.host_name(host_id(host)).into()).collect()
    }

    /// The name of the host at a node.
    pub(crate) fn host_at(&self, node: u32) -> String {
        let found = self.hosts.iter().position(|at| at.0 == node);
        found.map_or_else(String::new, |host| self.network.host_name(host_id(host)).to_owned())
    }

    /// The named path of a pair of routes, by index.
    pub(crate) fn path_of(&self, route_pair: &RoutePair) -> Option<usize> {
        self.paths.iter().position(|path| Some(&path.name) == route_pair.path.as_ref())
    }

    /// The links of a name in events, both directions.
    pub(crate) fn named_links(&self, name: &str) -> Vec<LinkId> {
        links(self.network.cable(name))
    }

    /// The routes from one host to another for `count` subflows (`None`: one per route), restricted to the
    /// paths named. Networks that spread flows by hash draw from `ecmp`.
    ///
    /// # Errors
    /// [`FabricError::NoPath`] if none is left.
    pub(crate) fn route_pairs(
        &self,
        from: usize,
        to: usize,
        allowed: Option<&[String]>,
        count: Option<u32>,
        ecmp: &mut Stream,
    ) -> Result<Vec<RoutePair>, FabricError> {
        let (from, to) = (host_id(from), host_id(to));
        let mut draw = || ecmp.next_u32();
        let all = self.network.routes.between(from, to, count.unwrap_or(1) as usize, &mut draw);
        let all = all.into_iter().map(|route_pair| self.route_pair(&route_pair));
        let usable: Vec<RoutePair> = match allowed {
            Some(names) => all.filter(|w| w.path.as_ref().is_none_or(|p| names.contains(p))).collect(),
            None => all.collect(),
        };
        if usable.is_empty() {
            let name = |host| self.network.host_name(host).to_owned();
            return Err(FabricError::NoPath { from: name(from), to: name(to) });
        }
        let count = count.map_or(usable.len(), |n| n as usize).min(vmcc_cc::MAX_PATHS);
        Ok(usable.iter().cycle().take(count.max(1)).cloned().collect())
    }

    /// The routes between a virtual machine and another host over one vNIC, were that mapped to `nic`.
    pub(crate) fn via_nic(&self, vm: usize, vnic: usize, nic: usize, peer: usize) -> Option<RoutePair> {
        let route_pair = self.network.routes.via_nic(host_id(vm), vnic, nic, host_id(peer))?;
        Some(self.route_pair(&route_pair))
    }

    /// Round trip of packets of `bytes` on the empty network.
    pub(crate) fn round_trip(&self, pair: &RoutePair, bytes: u16) -> Span {
        let crossing_ps = |link: &LinkId| {
            let link = &self.net.links()[link.0 as usize];
            link.delay.ps() + u64::from(bytes) * 8_000_000_000_000 / link.rate_bps
        };
        Span::from_ps(pair.forward.iter().chain(&pair.reverse).map(crossing_ps).sum())
    }

    /// The links from one host to another without those that are down; `None` if there are none.
    pub(crate) fn avoiding(
        &self,
        from: usize,
        to: usize,
        down: &BTreeSet<LinkId>,
        draw: &mut dyn FnMut() -> u32,
    ) -> Option<Vec<LinkId>> {
        let is_down = |link: vmcc_network::LinkId| down.contains(&LinkId(link.0));
        self.network.routes.avoiding(host_id(from), host_id(to), &is_down, draw).map(|found| links(&found))
    }

    fn route_pair(&self, route_pair: &vmcc_network::RoutePair) -> RoutePair {
        RoutePair {
            path: route_pair.path.map(|path| self.network.paths[path.index()].name.clone()),
            forward: links(&route_pair.forward),
            reverse: links(&route_pair.reverse),
        }
    }

    /// Timing of transfers over `route_pairs`, whose `forward` carries the payload.
    pub(crate) fn unloaded(
        &mut self,
        route_pairs: &[RoutePair],
        framing: Framing,
        lead: Lead,
    ) -> Option<Arc<Unloaded>> {
        let described = |links: &[LinkId]| links.iter().map(|link| vmcc_network::LinkId(link.0)).collect();
        let one = |pair: &RoutePair| vmcc_network::RoutePair {
            path: None,
            forward: described(&pair.forward),
            reverse: described(&pair.reverse),
        };
        let routes: Vec<_> = route_pairs.iter().map(one).collect();
        let found = self.network.unloaded(&routes, framing, lead)?;
        if let Some(known) = self.unloaded.get(&found) {
            return Some(known.clone());
        }
        let found = Arc::new(found);
        self.unloaded.insert(found.clone());
        Some(found)
    }

    /// The class of what a host sends: the host's own bucket where hosts have some, else the one asked for.
    pub(crate) fn class_of(&self, host: usize, asked: u32) -> u8 {
        u8::try_from(self.network.hosts[host].class.unwrap_or(asked)).unwrap_or(u8::MAX)
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

    /// Partition for this many threads; results do not depend on it.
    pub(crate) fn partition(&self, events: &[Event], threads: u32) -> Partition {
        let mut least: Vec<Span> = self.net.links().iter().map(|link| link.delay).collect();
        for event in events {
            let EventKind::SetDelay(change) = &event.kind else { continue };
            for link in self.named_links(&change.link) {
                let least = &mut least[link.0 as usize];
                *least = span(change.delay).min(*least);
            }
        }
        super::partition(&self.network, &self.net, &least, threads)
    }
}
