//! The k-ary fat tree of Al-Fares, Loukissas and Vahdat (SIGCOMM 2008, section 3): k pods of k/2 edge and
//! k/2 aggregation switches, (k/2)^2 cores, k^3/4 hosts, full bisection bandwidth.
//!
//! Between hosts of different pods there are (k/2)^2 shortest paths, one per core; within a pod k/2, one
//! per aggregation switch; under one edge switch a single one. A path is named by its number, so ECMP is
//! drawing a number and explicit multipath is choosing several.

use crate::engine::Partition;
use crate::net::{LinkSpec, NetError, NetSpec, NodeId, QueueSpec};
use crate::packet::{LinkId, RouteId};
use crate::time::Span;

/// What all links of a tree have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct FatTreeSpec {
    /// Ports per switch: even, 2 to 64.
    pub k: u32,
    /// Rate of every link, bits per second.
    pub rate_bps: u64,
    /// Propagation delay of every link.
    pub delay: Span,
    /// Queue at every switch port.
    pub switch_queue: QueueSpec,
    /// Queue at every host's own port.
    pub host_queue: QueueSpec,
}

/// Why a tree cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FatTreeError {
    /// Unusable number of ports.
    #[error("fat tree: k = {0} is not an even number from 2 to 64; choose for example 4, 8 or 16")]
    Ports(u32),
    /// A host that does not exist.
    #[error("fat tree: host {host} does not exist; there are {hosts}, numbered from 0")]
    Host {
        /// The host asked for.
        host: u32,
        /// How many there are.
        hosts: u32,
    },
    /// The network refused a part.
    #[error(transparent)]
    Net(#[from] NetError),
}

/// A tree that has been added to a network.
///
/// Nodes and links are numbered pod by pod, so that a pod's state lies together and pods make natural
/// partitions; the cores come last.
#[derive(Clone, Debug)]
pub struct FatTree {
    k: u32,
    first_node: u32,
    first_link: u32,
}

impl FatTree {
    /// Adds the switches, hosts and links of a tree to `net`.
    ///
    /// # Errors
    /// [`FatTreeError::Ports`] or [`FatTreeError::Net`].
    pub fn build(net: &mut NetSpec, spec: &FatTreeSpec) -> Result<FatTree, FatTreeError> {
        let k = spec.k;
        if !(2..=64).contains(&k) || !k.is_multiple_of(2) {
            return Err(FatTreeError::Ports(k));
        }
        let tree = FatTree { k, first_node: net.nodes(), first_link: net.links().len() as u32 };
        let nodes = k * tree.nodes_per_pod() + (k / 2) * (k / 2);
        for _ in 0..nodes {
            net.node();
        }
        for pod in 0..k {
            tree.add_pod(net, spec, pod)?;
        }
        Ok(tree)
    }

    /// Number of hosts: k^3/4.
    pub fn hosts(&self) -> u32 {
        self.k * self.hosts_per_pod()
    }

    /// Node of host `host`.
    pub fn host_node(&self, host: u32) -> NodeId {
        let (pod, within) = (host / self.hosts_per_pod(), host % self.hosts_per_pod());
        NodeId(self.first_node + pod * self.nodes_per_pod() + within)
    }

    /// Number of shortest paths from `from` to `to`.
    pub fn paths(&self, from: u32, to: u32) -> u32 {
        let half = self.k / 2;
        if from / half == to / half {
            1
        } else if from / self.hosts_per_pod() == to / self.hosts_per_pod() {
            half
        } else {
            half * half
        }
    }

    /// The links of path number `path` (taken modulo [`FatTree::paths`]) from host `from` to `to`.
    ///
    /// # Errors
    /// [`FatTreeError::Host`] for a host that does not exist.
    pub fn path(&self, from: u32, to: u32, path: u32) -> Result<Vec<LinkId>, FatTreeError> {
        for host in [from, to] {
            if host >= self.hosts() {
                return Err(FatTreeError::Host { host, hosts: self.hosts() });
            }
        }
        let half = self.k / 2;
        let path = path % self.paths(from, to);
        let (edge_from, edge_to) = (from / half, to / half);
        let mut links = vec![self.host_up(from)];
        if edge_from == edge_to {
            links.push(self.host_down(to));
            return Ok(links);
        }
        let agg = path % half;
        links.push(self.edge_up(edge_from, agg));
        if edge_from / half != edge_to / half {
            let core = path / half;
            links.push(self.agg_up(edge_from / half, agg, core));
            links.push(self.agg_down(edge_to / half, agg, core));
        }
        links.push(self.edge_down(edge_to, agg));
        links.push(self.host_down(to));
        Ok(links)
    }

    /// Adds path number `path` as a route to `net`.
    ///
    /// # Errors
    /// As [`FatTree::path`] and [`NetSpec::route`].
    pub fn route(&self, net: &mut NetSpec, from: u32, to: u32, path: u32) -> Result<RouteId, FatTreeError> {
        let links = self.path(from, to, path)?;
        Ok(net.route(&links)?)
    }

    /// Spreads the pods evenly over `shards` shards (at most k); the ports of the cores belong to the pods
    /// they lead to. Nodes outside the tree go to shard 0.
    pub fn partition(&self, net: &NetSpec, shards: u32) -> Partition {
        let shards = shards.clamp(1, self.k);
        let cores = self.first_node + self.k * self.nodes_per_pod();
        let pod = |node: u32| (node - self.first_node) / self.nodes_per_pod();
        let shard = |node: u32| {
            if (self.first_node..cores).contains(&node) { pod(node) * shards / self.k } else { 0 }
        };
        let mut partition = Partition::new((0..net.nodes()).map(|n| shard(n) as u8).collect());
        for core in 0..(self.k / 2) * (self.k / 2) {
            partition.split(NodeId(cores + core));
        }
        partition
    }

    /// Both directions of every cable by name: `h3` is host 3's, `p0e1-p0a0` joins edge switch 1 and
    /// aggregation switch 0 of pod 0, `p0a0-c1` joins an aggregation switch and core switch 1.
    pub(crate) fn named_links(&self) -> Vec<(String, [LinkId; 2])> {
        let half = self.k / 2;
        let mut named: Vec<(String, [LinkId; 2])> =
            (0..self.hosts()).map(|h| (format!("h{h}"), [self.host_up(h), self.host_down(h)])).collect();
        for (pod, agg, i) in (0..self.k).flat_map(|p| (0..half * half).map(move |n| (p, n / half, n % half)))
        {
            let edge = pod * half + i;
            let name = format!("p{pod}e{i}-p{pod}a{agg}");
            named.push((name, [self.edge_up(edge, agg), self.edge_down(edge, agg)]));
            let name = format!("p{pod}a{agg}-c{}", agg * half + i);
            named.push((name, [self.agg_up(pod, agg, i), self.agg_down(pod, agg, i)]));
        }
        named
    }

    fn hosts_per_pod(&self) -> u32 {
        self.k * self.k / 4
    }

    fn nodes_per_pod(&self) -> u32 {
        self.hosts_per_pod() + self.k
    }

    /// Six directions per host: host-edge, edge-aggregation, aggregation-core, up and down.
    fn link(&self, pod: u32, layer: u32, index: u32) -> LinkId {
        LinkId(self.first_link + (pod * 6 + layer) * self.hosts_per_pod() + index)
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

    fn add_pod(&self, net: &mut NetSpec, spec: &FatTreeSpec, pod: u32) -> Result<(), NetError> {
        let half = self.k / 2;
        let base = self.first_node + pod * self.nodes_per_pod();
        let host = |i: u32| NodeId(base + i);
        let edge = |i: u32| NodeId(base + self.hosts_per_pod() + i);
        let agg = |i: u32| NodeId(base + self.hosts_per_pod() + half + i);
        let core = |i: u32| NodeId(self.first_node + self.k * self.nodes_per_pod() + i);
        let ends = |layer: u32, i: u32| match layer / 2 {
            0 => (host(i), edge(i / half)),
            1 => (edge(i / half), agg(i % half)),
            _ => (agg(i / half), core(i)),
        };
        for layer in 0..6 {
            let queue = if layer == 0 { &spec.host_queue } else { &spec.switch_queue };
            for i in 0..self.hosts_per_pod() {
                let (low, high) = ends(layer, i);
                let (from, to) = if layer % 2 == 0 { (low, high) } else { (high, low) };
                let queue = queue.clone();
                net.link(LinkSpec::new(from, to, spec.rate_bps, spec.delay, queue))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Limit;
    use std::collections::BTreeSet;

    fn tree(k: u32) -> Result<(NetSpec, FatTree), FatTreeError> {
        let queue = QueueSpec::Fifo { limit: Limit::Bytes(150_000), mark: None };
        let mut net = NetSpec::new();
        let spec = FatTreeSpec {
            k,
            rate_bps: 10_000_000_000,
            delay: Span::from_us(1),
            switch_queue: queue.clone(),
            host_queue: queue,
        };
        let tree = FatTree::build(&mut net, &spec)?;
        Ok((net, tree))
    }

    /// `NetSpec::route` checks that links join; here: ends, lengths, and that all paths differ.
    #[test]
    fn every_path_is_a_distinct_shortest_path() {
        let (mut net, tree) = tree(4).unwrap();
        assert_eq!((tree.hosts(), net.links().len()), (16, 96));
        for from in 0..16 {
            for to in (0..16).filter(|&to| to != from) {
                let mut seen = BTreeSet::new();
                for path in 0..tree.paths(from, to) {
                    let links = tree.path(from, to, path).unwrap();
                    assert_eq!(links.len(), [0, 2, 4, 0, 6][tree.paths(from, to) as usize]);
                    let ends = |l: LinkId| net.links()[l.0 as usize].clone();
                    assert_eq!(ends(links[0]).from, tree.host_node(from));
                    assert_eq!(ends(*links.last().unwrap()).to, tree.host_node(to));
                    net.route(&links).unwrap();
                    assert!(seen.insert(links));
                }
            }
        }
    }

    #[test]
    fn every_link_is_used() {
        let (_, tree) = tree(4).unwrap();
        let mut used = BTreeSet::new();
        for (from, to) in (0..16).flat_map(|f| (0..16).map(move |t| (f, t))).filter(|(f, t)| f != t) {
            for path in 0..tree.paths(from, to) {
                used.extend(tree.path(from, to, path).unwrap());
            }
        }
        assert_eq!(used.len(), 96);
    }

    #[test]
    fn bad_sizes_are_refused() {
        assert_eq!(tree(5).unwrap_err(), FatTreeError::Ports(5));
        let (_, tree) = tree(4).unwrap();
        assert_eq!(tree.path(0, 16, 0).unwrap_err(), FatTreeError::Host { host: 16, hosts: 16 });
    }
}
