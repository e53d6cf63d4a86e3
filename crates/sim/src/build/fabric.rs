//! A scenario's network as the simulator has it: hosts and links by name, routes between hosts, shared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand_xoshiro::rand_core::Rng;
use vmcc_network::{Framing, HostId, Lead, Network, PathId, RoutePair, Unloaded};
use vmcc_scenario::Scenario;
use vmcc_scenario::model::{Event, EventKind};

use super::error::FabricError;
use super::span;
use crate::engine::Partition;
use crate::net::{NetSpec, NodeId};
use crate::packet::{LinkId, RouteId};
use crate::rng::Stream;
use crate::time::Span;

/// A scenario's network.
#[derive(Clone, Debug)]
pub struct Fabric {
    /// Nodes, links and routes.
    pub net: NetSpec,
    /// Network description from which the rest was built.
    pub(crate) network: Network,
    names: BTreeMap<String, usize>,
    /// Two-way propagation delay between the farthest hosts.
    pub(crate) base_rtt: Span,
    /// Time until routes follow a link that fails; `None`: they do not.
    pub(crate) reroute: Option<Span>,
    routes: BTreeMap<Vec<LinkId>, RouteId>,
    /// Timings of transfers, each once: many connections share one.
    unloaded: BTreeSet<Arc<Unloaded>>,
}

fn host_id(host: usize) -> HostId {
    HostId(u32::try_from(host).unwrap_or(u32::MAX))
}

impl Fabric {
    /// Builds the network of a scenario.
    ///
    /// # Errors
    /// [`FabricError`] if the simulator cannot express it.
    pub fn build(scenario: &Scenario) -> Result<Fabric, FabricError> {
        let network = scenario.topology.network();
        let name = |index: usize| network.host_name(host_id(index)).to_owned();
        Ok(Fabric {
            net: super::net_spec(&network, scenario.host.mtu)?,
            names: (0..network.hosts.len()).map(|index| (name(index), index)).collect(),
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
        (0..self.network.hosts.len()).map(|host| self.network.host_name(host_id(host)).into()).collect()
    }

    /// The node of a host.
    pub(crate) fn node(&self, host: usize) -> NodeId {
        self.network.hosts[host].node
    }

    /// The name of the host at a node.
    pub(crate) fn host_at(&self, node: u32) -> String {
        let found = self.network.hosts.iter().position(|host| host.node.0 == node);
        found.map_or_else(String::new, |host| self.network.host_name(host_id(host)).to_owned())
    }

    /// The named path of a pair of routes, by index.
    pub(crate) fn path_of(&self, route_pair: &RoutePair) -> Option<usize> {
        route_pair.path.map(PathId::index)
    }

    /// The links of a name in events, both directions.
    pub(crate) fn named_links(&self, name: &str) -> Vec<LinkId> {
        self.network.cable(name).to_vec()
    }

    /// The routes from one host to another for `count` subflows (`None`: one per route), restricted to the
    /// paths named. Networks with ECMP draw them at random from `ecmp`.
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
        let name = |path: PathId| &self.network.paths[path.index()].name;
        let named = |path: PathId| allowed.is_none_or(|names| names.contains(name(path)));
        let usable: Vec<RoutePair> = all.into_iter().filter(|pair| pair.path.is_none_or(named)).collect();
        if usable.is_empty() {
            let name = |host| self.network.host_name(host).to_owned();
            return Err(FabricError::NoPath { from: name(from), to: name(to) });
        }
        let count = count.map_or(usable.len(), |n| n as usize).min(vmcc_cc::MAX_PATHS);
        Ok(usable.iter().cycle().take(count.max(1)).cloned().collect())
    }

    /// The routes between a virtual machine and another host over one vNIC, were that mapped to `nic`.
    pub(crate) fn via_nic(&self, vm: usize, vnic: usize, nic: usize, peer: usize) -> Option<RoutePair> {
        self.network.routes.via_nic(host_id(vm), vnic, nic, host_id(peer))
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
        let is_down = |link| down.contains(&link);
        self.network.routes.avoiding(host_id(from), host_id(to), &is_down, draw)
    }

    /// Timing of transfers over `route_pairs`, whose `forward` carries the payload.
    pub(crate) fn unloaded(
        &mut self,
        route_pairs: &[RoutePair],
        framing: Framing,
        lead: Lead,
    ) -> Option<Arc<Unloaded>> {
        let found = self.network.unloaded(route_pairs, framing, lead)?;
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
