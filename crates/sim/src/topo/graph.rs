//! Free graphs: explicit routes, or shortest paths spread by hash.

use std::collections::{BTreeMap, VecDeque};

use rand_xoshiro::rand_core::Rng;
use vmcc_scenario::model::{Graph, Routing};
use vmcc_units::BitsPerSec;

use super::fabric::{Builder, Fabric, FabricError, NamedPath, Router, Way, span};
use super::simple::settled_link;
use crate::net::NodeId;
use crate::packet::LinkId;
use crate::rng::Stream;
use crate::time::Span;

/// Neighbors of every node, and which nodes are hosts (which do not forward).
#[derive(Clone, Debug, Default)]
pub(crate) struct Shortest {
    neighbors: BTreeMap<NodeId, Vec<(NodeId, LinkId)>>,
    hosts: Vec<NodeId>,
}

pub(crate) fn build(mut builder: Builder, t: &Graph) -> Result<Fabric, FabricError> {
    let mut nodes: BTreeMap<&str, NodeId> = BTreeMap::new();
    for host in &t.hosts {
        let rate = t.links.iter().filter(|l| l.from == *host || l.to == *host);
        let rate = rate.map(|l| l.rate.get()).fold(0u64, u64::saturating_add);
        nodes.insert(host, builder.host(host.clone(), BitsPerSec::new(rate)));
    }
    let delays = t.links.iter().map(|l| span(l.delay)).fold(Span::ZERO, |a, b| a + b);
    let mut shortest = Shortest { neighbors: BTreeMap::new(), hosts: builder.fabric.hosts.clone() };
    // Between two nodes, by direction; explicit routes have at most one link there.
    let mut between: BTreeMap<(NodeId, NodeId), LinkId> = BTreeMap::new();
    for edge in &t.links {
        let (a, b) = (node(&mut builder, &mut nodes, &edge.from), node(&mut builder, &mut nodes, &edge.to));
        let (there, back) =
            settled_link(&mut builder, &edge.label(), (a, b), &edge.settings(), delays.times(2))?;
        builder.fabric.links.insert(edge.label(), vec![there, back]);
        shortest.neighbors.entry(a).or_default().push((b, there));
        shortest.neighbors.entry(b).or_default().push((a, back));
        between.insert((a, b), there);
        between.insert((b, a), back);
    }
    builder.fabric.base_rtt = delays.times(2);
    builder.fabric.router = match t.routing {
        Routing::Ecmp => Router::Shortest(shortest),
        Routing::Explicit => Router::Table(explicit(&mut builder, t, &nodes, &between)),
    };
    Ok(builder.fabric)
}

fn node<'a>(builder: &mut Builder, nodes: &mut BTreeMap<&'a str, NodeId>, name: &'a str) -> NodeId {
    *nodes.entry(name).or_insert_with(|| builder.fabric.net.node())
}

fn explicit(
    builder: &mut Builder,
    t: &Graph,
    nodes: &BTreeMap<&str, NodeId>,
    between: &BTreeMap<(NodeId, NodeId), LinkId>,
) -> BTreeMap<(NodeId, NodeId), Vec<Way>> {
    let mut table: BTreeMap<(NodeId, NodeId), Vec<Way>> = BTreeMap::new();
    for (name, route) in t.route_names().into_iter().zip(&t.routes) {
        let via: Vec<NodeId> = route.via.iter().filter_map(|n| nodes.get(n.as_str()).copied()).collect();
        let (Some(&from), Some(&to)) = (via.first(), via.last()) else { continue };
        let link = |pair: &[NodeId]| between.get(&(pair[0], pair[1])).copied();
        let forward: Vec<LinkId> = via.windows(2).filter_map(link).collect();
        let backward: Vec<NodeId> = via.iter().rev().copied().collect();
        let reverse: Vec<LinkId> = backward.windows(2).filter_map(link).collect();
        let slowest = forward.iter().min_by_key(|l| builder.fabric.net.links()[l.0 as usize].rate_bps);
        if let Some(&queue) = slowest {
            let links = [forward.clone(), reverse.clone()].concat();
            builder.fabric.paths.push(NamedPath { name: name.clone(), queue, links });
        }
        let way = Way { path: Some(name), forward, reverse };
        let turned =
            Way { path: way.path.clone(), forward: way.reverse.clone(), reverse: way.forward.clone() };
        table.entry((from, to)).or_default().push(way);
        table.entry((to, from)).or_default().push(turned);
    }
    table
}

impl Shortest {
    /// Links from every node to `to`, by distance; hosts other than `to` do not forward.
    fn distances(&self, to: NodeId) -> BTreeMap<NodeId, u32> {
        let mut found = BTreeMap::from([(to, 0)]);
        let mut waiting = VecDeque::from([to]);
        while let Some(node) = waiting.pop_front() {
            let next = found[&node] + 1;
            for (neighbor, _) in self.neighbors.get(&node).into_iter().flatten() {
                if !found.contains_key(neighbor) {
                    found.insert(*neighbor, next);
                    if !self.hosts.contains(neighbor) {
                        waiting.push_back(*neighbor);
                    }
                }
            }
        }
        found
    }

    /// A shortest walk from `from` along falling distances, choosing by hash; empty if there is none.
    fn walk(&self, from: NodeId, distances: &BTreeMap<NodeId, u32>, ecmp: &mut Stream) -> Vec<LinkId> {
        let mut links = Vec::new();
        let mut at = from;
        while let Some(&left) = distances.get(&at).filter(|d| **d > 0) {
            let nearer: Vec<(NodeId, LinkId)> = self
                .neighbors
                .get(&at)
                .into_iter()
                .flatten()
                .filter(|(n, _)| distances.get(n).is_some_and(|d| *d + 1 == left))
                .filter(|(n, _)| left == 1 || !self.hosts.contains(n))
                .copied()
                .collect();
            let hash = ecmp.next_u32() as usize;
            let Some(&(next, link)) = nearer.get(hash % nearer.len().max(1)) else { return Vec::new() };
            links.push(link);
            at = next;
        }
        links
    }

    pub(crate) fn ways(&self, from: NodeId, to: NodeId, count: usize, ecmp: &mut Stream) -> Vec<Way> {
        let (forth, back) = (self.distances(to), self.distances(from));
        let one = |_| Way {
            path: None,
            forward: self.walk(from, &forth, ecmp),
            reverse: self.walk(to, &back, ecmp),
        };
        (0..count).map(one).filter(|way| !way.forward.is_empty() && !way.reverse.is_empty()).collect()
    }
}
