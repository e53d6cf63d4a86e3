//! The k-ary fat tree of Al-Fares, Loukissas and Vahdat (SIGCOMM 2008, section 3): k pods of k/2 edge and
//! k/2 aggregation switches, (k/2)^2 cores, k^3/4 hosts, full bisection bandwidth.
//!
//! Between hosts of different pods there are (k/2)^2 shortest paths, one per core; within a pod k/2, one
//! per aggregation switch; under one edge switch a single one. A path is named by its number, so ECMP is
//! drawing a number and explicit multipath is choosing several.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos};

use super::{Ends, Kind, default_buffer, numbered, times};
use crate::check::{Check, require};
use crate::{
    Area, Areas, Builder, Draw, HostId, IsDown, LinkId, LinkSettings, Marking, Network, NodeId, PortId,
    Queue, Reroute, RoutePair, Routes,
};

/// The k-ary fat tree (Al-Fares et al., SIGCOMM 2008): k^3/4 hosts `h0`, `h1`, ...; flows are spread by ECMP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FatTree {
    /// Ports of each switch; even, from 2 to 64.
    #[schemars(range(min = 2, max = 64), extend("multipleOf" = 2))]
    pub k: u32,
    /// The rate of every link, in each direction.
    pub rate: BitsPerSec,
    /// The one-way delay of every link.
    pub delay: Nanos,
    /// The buffer of every port.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// Marking rule of the queues.
    #[serde(default)]
    pub marking: Marking,
    /// The queues of each port.
    #[serde(default)]
    pub queue: Queue,
    /// Time until flows are hashed around a link that fails, and back once it is repaired; `"never"`: they stay on it.
    #[serde(default)]
    pub reroute: Reroute,
}

impl FatTree {
    /// k^3/4 hosts; `k` is bounded by validation.
    pub fn hosts(&self) -> u32 {
        self.k.saturating_mul(self.k).saturating_mul(self.k) / 4
    }

    /// Positions of nodes and links.
    pub fn tree(&self) -> Tree {
        Tree { k: self.k }
    }

    /// The settings of a switch's port.
    fn port(&self) -> LinkSettings {
        LinkSettings::plain(self.rate, self.delay, self.buffer).with_queues(self.marking, &self.queue)
    }
}

impl Kind for FatTree {
    fn ends(&self) -> Ends {
        Ends::all(numbered("h", self.hosts()))
    }

    fn paths(&self) -> Vec<String> {
        Vec::new()
    }

    fn queues(&self) -> Vec<&Queue> {
        vec![&self.queue]
    }

    fn check(&self, mtu: Bytes) -> Check {
        let even = self.k.is_multiple_of(2) && (2..=64).contains(&self.k);
        require(even, "topology.k", "k is an even number from 2 to 64")?;
        self.port().check(mtu, "topology")
    }

    fn network(&self) -> Network {
        let (tree, base_rtt) = (self.tree(), times(self.delay, 12));
        let mut builder = Builder::new(base_rtt);
        let switch = builder.port(self.port(), base_rtt);
        let host = builder.port(LinkSettings::plain(self.rate, self.delay, self.buffer), base_rtt);
        tree.add_nodes(&mut builder, self.rate);
        (0..self.k).for_each(|pod| tree.add_links(&mut builder, pod, (host, switch)));
        tree.name_cables(&mut builder);
        builder.report_tiers();
        builder.cut(tree.areas());
        builder.reroute(self.reroute);
        builder.finish(tree)
    }
}

/// Positions in a tree, as arithmetic.
///
/// Nodes and links are numbered pod by pod, so that a pod's state lies together and pods make natural
/// partitions; the cores come last.
#[derive(Debug, Clone, Copy)]
pub struct Tree {
    k: u32,
}

impl Tree {
    /// Number of hosts: k^3/4.
    pub fn hosts(&self) -> u32 {
        self.k * self.hosts_per_pod()
    }

    /// Number of shortest paths between two hosts.
    pub fn paths(&self, from: HostId, to: HostId) -> u32 {
        let half = self.k / 2;
        if from.0 / half == to.0 / half {
            1
        } else if from.0 / self.hosts_per_pod() == to.0 / self.hosts_per_pod() {
            half
        } else {
            half * half
        }
    }

    /// The links of path number `path` (taken modulo [`Tree::paths`]) from one host to another.
    pub fn path(&self, from: HostId, to: HostId, path: u32) -> Vec<LinkId> {
        let half = self.k / 2;
        let path = path % self.paths(from, to);
        let (edge_from, edge_to) = (from.0 / half, to.0 / half);
        let mut links = vec![self.host_up(from.0)];
        if edge_from == edge_to {
            links.push(self.host_down(to.0));
            return links;
        }
        let agg = path % half;
        links.push(self.edge_up(edge_from, agg));
        if edge_from / half != edge_to / half {
            let core = path / half;
            links.push(self.agg_up(edge_from / half, agg, core));
            links.push(self.agg_down(edge_to / half, agg, core));
        }
        links.push(self.edge_down(edge_to, agg));
        links.push(self.host_down(to.0));
        links
    }

    fn hosts_per_pod(&self) -> u32 {
        self.k * self.k / 4
    }

    fn nodes_per_pod(&self) -> u32 {
        self.hosts_per_pod() + self.k
    }

    /// Six directions per host: host-edge, edge-aggregation, aggregation-core, up and down.
    fn link(&self, pod: u32, layer: u32, index: u32) -> LinkId {
        LinkId((pod * 6 + layer) * self.hosts_per_pod() + index)
    }

    fn host_up(&self, host: u32) -> LinkId {
        self.link(host / self.hosts_per_pod(), 0, host % self.hosts_per_pod())
    }

    fn host_down(&self, host: u32) -> LinkId {
        self.link(host / self.hosts_per_pod(), 1, host % self.hosts_per_pod())
    }

    fn edge_up(&self, edge: u32, agg: u32) -> LinkId {
        let half = self.k / 2;
        self.link(edge / half, 2, edge % half * half + agg)
    }

    fn edge_down(&self, edge: u32, agg: u32) -> LinkId {
        let half = self.k / 2;
        self.link(edge / half, 3, edge % half * half + agg)
    }

    fn agg_up(&self, pod: u32, agg: u32, core: u32) -> LinkId {
        self.link(pod, 4, agg * (self.k / 2) + core)
    }

    fn agg_down(&self, pod: u32, agg: u32, core: u32) -> LinkId {
        self.link(pod, 5, agg * (self.k / 2) + core)
    }

    fn add_nodes(&self, builder: &mut Builder, rate: BitsPerSec) {
        let half = self.k / 2;
        for pod in 0..self.k {
            for host in 0..self.hosts_per_pod() {
                builder.host(format!("h{}", pod * self.hosts_per_pod() + host), rate);
            }
            for (layer, tier) in [("e", "edge"), ("a", "agg")] {
                (0..half).for_each(|i| _ = builder.switch(format!("p{pod}{layer}{i}"), tier));
            }
        }
        (0..half * half).for_each(|core| _ = builder.switch(format!("c{core}"), "core"));
    }

    fn add_links(&self, builder: &mut Builder, pod: u32, (own, switch): (PortId, PortId)) {
        let half = self.k / 2;
        let base = pod * self.nodes_per_pod();
        let host = |i: u32| NodeId(base + i);
        let edge = |i: u32| NodeId(base + self.hosts_per_pod() + i);
        let agg = |i: u32| NodeId(base + self.hosts_per_pod() + half + i);
        let core = |i: u32| NodeId(self.k * self.nodes_per_pod() + i);
        let ends = |layer: u32, i: u32| match layer / 2 {
            0 => (host(i), edge(i / half)),
            1 => (edge(i / half), agg(i % half)),
            _ => (agg(i / half), core(i)),
        };
        for layer in 0..6 {
            let port = if layer == 0 { own } else { switch };
            for i in 0..self.hosts_per_pod() {
                let (low, high) = ends(layer, i);
                let (from, to) = if layer % 2 == 0 { (low, high) } else { (high, low) };
                builder.link(from, to, port);
            }
        }
    }

    /// `h3` is host 3's cable; `p0e1-p0a0` joins edge switch 1 and aggregation switch 0 of pod 0; `p0a0-c1` joins an
    /// aggregation switch and core switch 1.
    fn name_cables(&self, builder: &mut Builder) {
        let half = self.k / 2;
        for host in 0..self.hosts() {
            builder.cable(format!("h{host}"), [self.host_up(host), self.host_down(host)]);
        }
        for (pod, agg) in (0..self.k).flat_map(|pod| (0..half).map(move |agg| (pod, agg))) {
            for i in 0..half {
                let edge = pod * half + i;
                let links = [self.edge_up(edge, agg), self.edge_down(edge, agg)];
                builder.cable(format!("p{pod}e{i}-p{pod}a{agg}"), links);
            }
            for i in 0..half {
                let links = [self.agg_up(pod, agg, i), self.agg_down(pod, agg, i)];
                builder.cable(format!("p{pod}a{agg}-c{}", agg * half + i), links);
            }
        }
    }

    /// Pods are areas; the ports of the cores belong to the pods they lead to.
    fn areas(&self) -> Areas {
        let pods = (0..self.k * self.nodes_per_pod()).map(|node| Area::Of(node / self.nodes_per_pod()));
        let cores = (0..self.hosts_per_pod()).map(|_| Area::Between);
        Areas { count: self.k, of_node: pods.chain(cores).collect() }
    }
}

impl Routes for Tree {
    /// By independent choices, as ECMP's of that many flows; acknowledgments have choices of their own.
    fn between(&self, from: HostId, to: HostId, count: usize, draw: Draw<'_>) -> Vec<RoutePair> {
        let mut one = |_| {
            let (there, back) = (draw(), draw());
            RoutePair { path: None, forward: self.path(from, to, there), reverse: self.path(to, from, back) }
        };
        (0..count).map(&mut one).collect()
    }

    fn avoiding(&self, from: HostId, to: HostId, is_down: IsDown<'_>, draw: Draw<'_>) -> Option<Vec<LinkId>> {
        let paths = (0..self.paths(from, to)).map(|path| self.path(from, to, path));
        let mut live: Vec<_> = paths.filter(|links| !links.iter().any(|link| is_down(*link))).collect();
        let chosen = draw() as usize % live.len().max(1);
        (chosen < live.len()).then(|| live.swap_remove(chosen))
    }
}
