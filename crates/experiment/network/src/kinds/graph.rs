//! Free graphs: explicit routes, or shortest paths spread by hash.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos};

use super::{Ends, Kind, default_buffer, path_name};
use crate::check::{self, Check, Fault, MAX_COUNT, fault, require};
use crate::{
    Builder, Draw, HostId, IsDown, LinkId, LinkSettings, Loss, Marking, Network, NodeId, Queue, Reroute,
    Reverse, RoutePair, RouteTable, Routes,
};

/// Routing of a graph's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// Over the shortest routes by number of links, equal ones chosen by hash.
    #[default]
    Ecmp,
    /// Only over the routes given.
    Explicit,
}

/// Nodes and links. A node is a host if it is in `hosts`, otherwise a switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// The nodes that send and receive.
    pub hosts: Vec<String>,
    /// The links; a node exists by being an end of one.
    pub links: Vec<GraphLink>,
    /// Routing of packets.
    #[serde(default)]
    pub routing: Routing,
    /// The routes of `explicit` routing, each usable in both directions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Time until flows are hashed around a link that fails, and back once it is repaired; `"never"`: they stay on it. Absent:
    /// 150ms. Explicit routes are fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reroute: Option<Reroute>,
}

/// One link of a graph, usable in both directions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphLink {
    /// Its name in events and results. Absent: `from-to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// One end.
    pub from: String,
    /// The other end.
    pub to: String,
    /// The rate in each direction.
    pub rate: BitsPerSec,
    /// The one-way delay.
    pub delay: Nanos,
    /// The buffer at each end.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// Marking rule of its queues.
    #[serde(default)]
    pub marking: Marking,
    /// The queues at each end.
    #[serde(default)]
    pub queue: Queue,
    /// Packets lost on it, in each direction.
    #[serde(default)]
    pub loss: Loss,
    /// The most of a random extra delay, uniform from none; packets are not reordered unless `reorder` says so.
    #[serde(default)]
    pub jitter: Nanos,
    /// Reordering: packets overtake each other where jitter exceeds their distance.
    #[serde(default)]
    pub reorder: bool,
    /// Differences of the direction from `to` to `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<Reverse>,
}

impl GraphLink {
    /// Its given name, or `from-to`.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("{}-{}", self.from, self.to))
    }
}

/// One explicit route: the nodes from one host to another, both included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Its name, as a path, in traffic and results. Absent: `a`, `b`, ... in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The nodes, in order.
    pub via: Vec<String>,
}

impl GraphLink {
    fn settings(&self) -> LinkSettings {
        let plain = LinkSettings::plain(self.rate, self.delay, self.buffer);
        let queued = plain.with_queues(self.marking, &self.queue);
        LinkSettings { loss: self.loss, jitter: self.jitter, reorder: self.reorder, ..queued }
    }

    /// The same in the direction from `to` to `from`.
    fn back(&self) -> LinkSettings {
        self.reverse.clone().unwrap_or_default().of(&self.settings())
    }
}

/// Neighbours of each node.
type Neighbors<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// A fault at a name that does not exist.
fn unknown(path: String, message: String, name: &str, neighbors: &Neighbors<'_>) -> Fault {
    let known = neighbors.keys().map(|known| (*known).to_owned()).collect();
    Fault { unknown: Some((name.to_owned(), known)), ..fault(path, message) }
}

impl Graph {
    /// The names of the explicit routes, in order.
    fn route_names(&self) -> Vec<String> {
        let name = |(i, route): (usize, &Route)| route.name.clone().unwrap_or_else(|| path_name(i));
        self.routes.iter().enumerate().map(name).collect()
    }

    fn check_links(&self, mtu: Bytes) -> Result<Neighbors<'_>, Fault> {
        let mut neighbors: Neighbors<'_> = BTreeMap::new();
        for (index, edge) in self.links.iter().enumerate() {
            let path = format!("topology.links[{index}]");
            check::name(&edge.from, &format!("{path}.from"))?;
            check::name(&edge.to, &format!("{path}.to"))?;
            require(edge.from != edge.to, &format!("{path}.to"), "a link joins two different nodes")?;
            edge.settings().check(mtu, &path)?;
            if let Some(reverse) = &edge.reverse {
                reverse.check(&edge.settings(), mtu, &path)?;
            }
            neighbors.entry(&edge.from).or_default().insert(&edge.to);
            let fresh = neighbors.entry(&edge.to).or_default().insert(&edge.from);
            // Two links between the same nodes would make `via` ambiguous.
            let clear = fresh || self.routing == Routing::Ecmp;
            require(
                clear,
                &path,
                "another link joins the same nodes; explicit routes could not tell them apart",
            )?;
        }
        Ok(neighbors)
    }

    fn check_routes(&self, neighbors: &Neighbors<'_>) -> Check {
        match self.routing {
            Routing::Ecmp => {
                require(self.routes.is_empty(), "topology.routes", "routes need routing = \"explicit\"")
            }
            Routing::Explicit => {
                let message = "explicit routes are fixed; leave the key out";
                require(self.reroute.is_none(), "topology.reroute", message)?;
                let given = !self.routes.is_empty();
                require(given, "topology.routes", "routing = \"explicit\" needs routes")?;
                check::unique(&self.route_names(), |i| format!("topology.routes[{i}].name"))?;
                let mut routes = self.routes.iter().enumerate();
                routes.try_for_each(|(index, route)| self.check_route(route, index, neighbors))
            }
        }
    }

    fn check_route(&self, route: &Route, index: usize, neighbors: &Neighbors<'_>) -> Check {
        let at = |i: usize| format!("topology.routes[{index}].via[{i}]");
        let whole = format!("topology.routes[{index}].via");
        require(route.via.len() >= 2, &whole, "a route has at least two nodes")?;
        let last = route.via.len() - 1;
        let mut seen = BTreeSet::new();
        for (i, node) in route.via.iter().enumerate() {
            if !neighbors.contains_key(node.as_str()) {
                return Err(unknown(at(i), format!("the graph has no node `{node}`"), node, neighbors));
            }
            require(seen.insert(node), &at(i), &format!("the route passes `{node}` twice: a cycle"))?;
            let is_host = self.hosts.contains(node);
            let is_end = i == 0 || i == last;
            require(is_host == is_end, &at(i), "a route leads from a host over switches to a host")?;
            if let Some(before) = i.checked_sub(1).map(|b| route.via[b].as_str()) {
                let joined = neighbors.get(before).is_some_and(|n| n.contains(node.as_str()));
                require(joined, &at(i), &format!("no link joins `{before}` and `{node}`"))?;
            }
        }
        Ok(())
    }

    /// Rate of a host: the sum over its links.
    fn host_rate(&self, host: &str) -> BitsPerSec {
        let own = self.links.iter().filter_map(|link| match () {
            () if link.from == host => Some(link.rate),
            () if link.to == host => Some(link.back().rate),
            () => None,
        });
        BitsPerSec::new(own.map(BitsPerSec::get).fold(0u64, u64::saturating_add))
    }
}

impl Kind for Graph {
    fn ends(&self) -> Ends {
        let all = self.hosts.len();
        Ends { hosts: self.hosts.clone(), senders: 0..1.min(all), receivers: 1.min(all)..all }
    }

    fn paths(&self) -> Vec<String> {
        self.route_names()
    }

    fn queues(&self) -> Vec<&Queue> {
        self.links.iter().map(|link| &link.queue).collect()
    }

    fn check(&self, mtu: Bytes) -> Check {
        require(!self.links.is_empty(), "topology.links", "a graph needs links")?;
        let size = self.links.len() <= MAX_COUNT as usize && self.hosts.len() <= MAX_COUNT as usize;
        require(size, "topology.links", &format!("at most {MAX_COUNT} links and hosts"))?;
        require(self.hosts.len() >= 2, "topology.hosts", "a graph needs at least two hosts")?;
        check::unique(&self.hosts, |i| format!("topology.hosts[{i}]"))?;
        let labels: Vec<String> = self.links.iter().map(GraphLink::label).collect();
        check::unique(&labels, |i| format!("topology.links[{i}]"))?;
        let neighbors = self.check_links(mtu)?;
        for (index, host) in self.hosts.iter().enumerate() {
            if !neighbors.contains_key(host.as_str()) {
                let path = format!("topology.hosts[{index}]");
                return Err(unknown(path, format!("no link ends at host `{host}`"), host, &neighbors));
            }
        }
        self.check_routes(&neighbors)
    }

    fn network(&self) -> Network {
        let delays = self.links.iter().flat_map(|link| [link.delay, link.back().delay]);
        let base_rtt = Nanos::new(delays.map(Nanos::get).fold(0u64, u64::saturating_add));
        let mut builder = Builder::new(base_rtt);
        let mut nodes: BTreeMap<&str, NodeId> = BTreeMap::new();
        for host in &self.hosts {
            nodes.insert(host, builder.host(host.as_str(), self.host_rate(host)));
        }
        let mut joined = Joined { neighbors: BTreeMap::new(), hosts: self.hosts.len() };
        for edge in &self.links {
            let mut node = |name| *nodes.entry(name).or_insert_with(|| builder.switch(name, "switch"));
            let ends = (node(edge.from.as_str()), node(edge.to.as_str()));
            let ports = (builder.port(edge.settings(), base_rtt), builder.port(edge.back(), base_rtt));
            let (there, back) = builder.named(&edge.label(), ends, ports);
            builder.cable(edge.label(), [there, back]);
            joined.neighbors.entry(ends.0).or_default().push((ends.1, there));
            joined.neighbors.entry(ends.1).or_default().push((ends.0, back));
        }
        builder.report_tiers();
        match self.routing {
            Routing::Ecmp => {
                builder.reroute(self.reroute.unwrap_or_default());
                builder.finish(joined)
            }
            Routing::Explicit => {
                let table = explicit(&mut builder, self, &nodes, &joined);
                builder.finish(table)
            }
        }
    }

    /// Routes may have different queues at their narrowest links, which have no common names.
    fn path_classes(&self) -> Vec<String> {
        Vec::new()
    }

    fn is_symmetric(&self) -> bool {
        self.routing == Routing::Ecmp
    }

    /// Hosts themselves do not forward.
    fn reachable(&self, from: &str) -> Option<BTreeSet<String>> {
        if self.routing == Routing::Explicit {
            let ends = |r: &Route| match (r.via.first(), r.via.last()) {
                (Some(a), Some(b)) if a == from => Some(b.clone()),
                (Some(a), Some(b)) if b == from => Some(a.clone()),
                _ => None,
            };
            return Some(self.routes.iter().filter_map(ends).collect());
        }
        let hosts: BTreeSet<&str> = self.hosts.iter().map(String::as_str).collect();
        let mut neighbors: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for edge in &self.links {
            neighbors.entry(&edge.from).or_default().push(&edge.to);
            neighbors.entry(&edge.to).or_default().push(&edge.from);
        }
        let mut found = BTreeSet::new();
        let mut waiting = vec![from];
        while let Some(node) = waiting.pop() {
            for next in neighbors.get(node).into_iter().flatten() {
                if found.insert((*next).to_owned()) && !hosts.contains(next) {
                    waiting.push(next);
                }
            }
        }
        Some(found)
    }
}

fn explicit(builder: &mut Builder, t: &Graph, nodes: &BTreeMap<&str, NodeId>, joined: &Joined) -> RouteTable {
    let mut table = RouteTable::default();
    for (name, route) in t.route_names().into_iter().zip(&t.routes) {
        let via: Vec<NodeId> = route.via.iter().filter_map(|n| nodes.get(n.as_str()).copied()).collect();
        let (Some(&from), Some(&to)) = (via.first(), via.last()) else { continue };
        let forward: Vec<LinkId> = via.windows(2).filter_map(|pair| joined.link(pair[0], pair[1])).collect();
        let reverse: Vec<LinkId> =
            via.windows(2).rev().filter_map(|pair| joined.link(pair[1], pair[0])).collect();
        let slowest = forward.iter().min_by_key(|link| builder.rate(**link)).copied();
        let links = [forward.clone(), reverse.clone()].concat();
        let path = slowest.map(|queue| builder.path(name, queue, links));
        // Hosts come first among the nodes.
        table.add(HostId(from.0), HostId(to.0), RoutePair { path, forward, reverse });
    }
    table
}

/// Neighbours of every node. The first `hosts` nodes are hosts, which do not forward.
#[derive(Debug)]
struct Joined {
    neighbors: BTreeMap<NodeId, Vec<(NodeId, LinkId)>>,
    hosts: usize,
}

impl Joined {
    fn of(&self, node: NodeId) -> &[(NodeId, LinkId)] {
        self.neighbors.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The link from one node to another; with explicit routes there is at most one.
    fn link(&self, from: NodeId, to: NodeId) -> Option<LinkId> {
        self.of(from).iter().rev().find(|(node, _)| *node == to).map(|(_, link)| *link)
    }

    fn forwards(&self, node: NodeId) -> bool {
        node.index() >= self.hosts
    }

    /// Hops from every node to `to` over links that are not down; hosts other than `to` do not forward.
    fn distances(&self, to: NodeId, is_down: &dyn Fn(LinkId) -> bool) -> BTreeMap<NodeId, u32> {
        let mut found = BTreeMap::from([(to, 0)]);
        let mut waiting = VecDeque::from([to]);
        while let Some(node) = waiting.pop_front() {
            let next = found[&node] + 1;
            for (neighbor, _) in self.of(node) {
                let leads_here = |(end, link): &(NodeId, LinkId)| *end == node && !is_down(*link);
                if !found.contains_key(neighbor) && self.of(*neighbor).iter().any(leads_here) {
                    found.insert(*neighbor, next);
                    if self.forwards(*neighbor) {
                        waiting.push_back(*neighbor);
                    }
                }
            }
        }
        found
    }

    /// A shortest walk from `from` along falling distances, choosing by hash; empty if there is none.
    fn walk(
        &self,
        from: NodeId,
        distances: &BTreeMap<NodeId, u32>,
        is_down: &dyn Fn(LinkId) -> bool,
        draw: &mut dyn FnMut() -> u32,
    ) -> Vec<LinkId> {
        let mut links = Vec::new();
        let mut at = from;
        while let Some(&left) = distances.get(&at).filter(|d| **d > 0) {
            let nearer = |node: &NodeId| distances.get(node).is_some_and(|d| *d + 1 == left);
            let open = |node: NodeId| left == 1 || self.forwards(node);
            let usable = |(n, link): &&(NodeId, LinkId)| nearer(n) && open(*n) && !is_down(*link);
            let next: Vec<(NodeId, LinkId)> = self.of(at).iter().filter(usable).copied().collect();
            let hash = draw() as usize;
            let Some(&(node, link)) = next.get(hash % next.len().max(1)) else { return Vec::new() };
            links.push(link);
            at = node;
        }
        links
    }
}

impl Routes for Joined {
    fn between(&self, from: HostId, to: HostId, count: usize, draw: Draw<'_>) -> Vec<RoutePair> {
        let (from, to) = (NodeId(from.0), NodeId(to.0));
        let (forth, back) = (self.distances(to, &|_| false), self.distances(from, &|_| false));
        let mut one = |_| RoutePair {
            path: None,
            forward: self.walk(from, &forth, &|_| false, draw),
            reverse: self.walk(to, &back, &|_| false, draw),
        };
        let whole = |pair: &RoutePair| !pair.forward.is_empty() && !pair.reverse.is_empty();
        (0..count).map(&mut one).filter(whole).collect()
    }

    fn avoiding(&self, from: HostId, to: HostId, is_down: IsDown<'_>, draw: Draw<'_>) -> Option<Vec<LinkId>> {
        let (from, to) = (NodeId(from.0), NodeId(to.0));
        let links = self.walk(from, &self.distances(to, is_down), is_down, draw);
        (!links.is_empty()).then_some(links)
    }
}
