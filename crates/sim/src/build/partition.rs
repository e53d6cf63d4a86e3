//! Partition of a network among threads.
//!
//! Areas of the description, where it has them, are spread over the threads. Elsewhere neighbouring nodes stay together,
//! because threads may work ahead of each other by the delay of the links between them. Nodes joined by links of less than
//! some delay form one piece, and neighbouring pieces go to the same thread. The delay is the longest with which the
//! threads' parts are even; failing that, the one with which they are most nearly even. Threads synchronize several times
//! per delay that is cut. So a link is cut only where enough happens within its delay, and never if it has no delay.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use vmcc_network::{Area, Areas, Network};

use crate::engine::Partition;
use crate::net::{LinkSpec, MAX_SHARDS, NetSpec, NodeId};
use crate::time::Span;

/// A part may be as much larger than its share as this, in percent, before a shorter delay is tried.
const MAX_SHARE_PERCENT: u64 = 120;

/// Packets that all links together send at full rate within a delay that is cut, at least: with fewer, threads wait for
/// each other longer than they work.
const MIN_PACKETS_PER_DELAY: u128 = 64;

/// A packet of 1500 bytes.
const PACKET_BITS: u128 = 12_000;

/// Cost of handling an arrival at a host, in forwardings of a packet by a switch.
const HOST_WEIGHT: u64 = 3;

/// Shares a network among this many threads, or fewer if it cannot be cut into as many parts; results do not depend on it.
/// `least` is the shortest delay that each link has in a run.
pub fn partition(network: &Network, net: &NetSpec, least: &[Span], threads: u32) -> Partition {
    let threads = threads.clamp(1, u32::try_from(MAX_SHARDS).unwrap_or(1));
    if threads == 1 {
        return Partition::whole(net);
    }
    let shortest = shortest_cut(net);
    match &network.areas {
        Some(areas) if areas.count > 1 && delay_between(areas, net, least) >= shortest => {
            of_areas(areas, threads)
        }
        _ => Cut { network, least, shortest }
            .best(threads as usize)
            .map_or_else(|| Partition::whole(net), Partition::new),
    }
}

/// The shortest delay in which links send [`MIN_PACKETS_PER_DELAY`].
fn shortest_cut(net: &NetSpec) -> Span {
    let per_s: u128 = net.links().iter().map(|link| u128::from(link.rate_bps)).sum();
    let ps = (MIN_PACKETS_PER_DELAY * PACKET_BITS * 1_000_000_000_000).div_ceil(per_s.max(1));
    Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX).max(1))
}

/// The shortest delay of the links that leave an area.
fn delay_between(areas: &Areas, net: &NetSpec, least: &[Span]) -> Span {
    let leaves = |link: &LinkSpec| areas.of_node[link.from.0 as usize] != areas.of_node[link.to.0 as usize];
    let between = net.links().iter().zip(least).filter(|(link, _)| leaves(link));
    between.map(|(_, delay)| *delay).min().unwrap_or(Span::MAX)
}

/// Spreads areas evenly.
fn of_areas(areas: &Areas, threads: u32) -> Partition {
    let shards = threads.min(areas.count);
    let shard = |area: &Area| match area {
        Area::Of(area) => area * shards / areas.count,
        Area::Between => 0,
    };
    let shard_of = areas.of_node.iter().map(|area| u8::try_from(shard(area)).unwrap_or(u8::MAX));
    let mut partition = Partition::new(shard_of.collect());
    for (node, area) in (0..).zip(&areas.of_node) {
        if *area == Area::Between {
            partition.split(NodeId(node));
        }
    }
    partition
}

struct Cut<'a> {
    network: &'a Network,
    least: &'a [Span],
    /// Links of less delay are not cut.
    shortest: Span,
}

/// Nodes that stay together, as the number of the piece of each node, and what each piece weighs.
struct Pieces {
    of_node: Vec<usize>,
    weights: Vec<u64>,
    neighbors: Vec<BTreeSet<usize>>,
}

impl Cut<'_> {
    /// The shard of each node. `None`: it cannot be cut.
    fn best(&self, threads: usize) -> Option<Vec<u8>> {
        let long_enough = |delay: &Span| *delay >= self.shortest;
        let delays: BTreeSet<Span> = self.least.iter().copied().filter(long_enough).collect();
        let mut best: Option<(u64, Vec<u8>)> = None;
        for delay in delays.into_iter().rev() {
            let pieces = self.pieces(delay);
            let (heaviest, shard_of) = pieces.share(threads);
            let total: u64 = pieces.weights.iter().sum();
            if shard_of.contains(&1) && best.as_ref().is_none_or(|(least, _)| heaviest < *least) {
                best = Some((heaviest, shard_of));
            }
            if heaviest * threads as u64 * 100 <= total * MAX_SHARE_PERCENT {
                break;
            }
        }
        best.map(|(_, shard_of)| shard_of)
    }

    /// Pieces: nodes joined by links of less than `delay`.
    fn pieces(&self, delay: Span) -> Pieces {
        let nodes = self.network.nodes.len();
        let mut joined = vec![Vec::new(); nodes];
        for (link, least) in self.network.links.iter().zip(self.least) {
            if *least < delay {
                joined[link.from.index()].push(link.to.index());
                joined[link.to.index()].push(link.from.index());
            }
        }
        let mut of_node = vec![usize::MAX; nodes];
        let mut count = 0;
        for first in 0..nodes {
            if of_node[first] != usize::MAX {
                continue;
            }
            let mut waiting = vec![first];
            while let Some(node) = waiting.pop() {
                if of_node[node] == usize::MAX {
                    of_node[node] = count;
                    waiting.extend(&joined[node]);
                }
            }
            count += 1;
        }
        self.weighed(of_node, count)
    }

    fn weighed(&self, of_node: Vec<usize>, count: usize) -> Pieces {
        let (mut weights, mut neighbors) = (vec![0; count], vec![BTreeSet::new(); count]);
        for host in &self.network.hosts {
            weights[of_node[host.node.index()]] += HOST_WEIGHT;
        }
        for link in &self.network.links {
            let (from, to) = (of_node[link.from.index()], of_node[link.to.index()]);
            weights[from] += 1;
            if from != to {
                neighbors[from].insert(to);
            }
        }
        Pieces { of_node, weights, neighbors }
    }
}

impl Pieces {
    /// The weight of the heaviest shard, and the shard of each node: a walk over neighbours, cut into parts as even as
    /// they become.
    fn share(&self, threads: usize) -> (u64, Vec<u8>) {
        let total: u64 = self.weights.iter().sum();
        let mut shard_of_piece = vec![0; self.weights.len()];
        let mut before = 0;
        for piece in self.walk() {
            let middle = before + self.weights[piece] / 2;
            shard_of_piece[piece] = middle * threads as u64 / total.max(1);
            before += self.weights[piece];
        }
        // A piece of more than a share leaves a number out.
        let used: BTreeSet<u64> = shard_of_piece.iter().copied().collect();
        let number: BTreeMap<u64, u8> = used.into_iter().zip(0..).collect();
        let mut loads = vec![0; number.len()];
        for (piece, shard) in shard_of_piece.iter().enumerate() {
            loads[usize::from(number[shard])] += self.weights[piece];
        }
        let shard_of = self.of_node.iter().map(|piece| number[&shard_of_piece[*piece]]).collect();
        (loads.into_iter().max().unwrap_or(0), shard_of)
    }

    /// All pieces, neighbours near each other, from one at the edge on.
    fn walk(&self) -> Vec<usize> {
        let edge = self.walk_from(0).last().copied().unwrap_or(0);
        self.walk_from(edge)
    }

    fn walk_from(&self, first: usize) -> Vec<usize> {
        let mut seen = vec![false; self.weights.len()];
        let mut order = Vec::new();
        // What nothing joins to the first comes after it.
        for start in std::iter::once(first).chain(0..self.weights.len()) {
            let mut waiting = VecDeque::from([start]);
            while let Some(piece) = waiting.pop_front() {
                if !std::mem::replace(&mut seen[piece], true) {
                    order.push(piece);
                    waiting.extend(&self.neighbors[piece]);
                }
            }
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::net_spec;
    use vmcc_network::Topology;
    use vmcc_units::Bytes;

    /// Names of the nodes of each shard.
    fn shards(text: &str, threads: u32) -> Vec<Vec<String>> {
        let topology: Topology = serde_json::from_str(text).unwrap();
        let network = topology.network();
        let net = net_spec(&network, Bytes::new(1500)).unwrap();
        let least: Vec<Span> = net.links().iter().map(|link| link.delay).collect();
        let partition = partition(&network, &net, &least, threads);
        let mut shards = vec![Vec::new(); partition.shards()];
        for (node, shard) in network.nodes.iter().zip(partition.shard_of()) {
            shards[usize::from(*shard)].push(node.clone());
        }
        shards
    }

    const DUMBBELL: &str =
        r#"{"kind":"dumbbell","pairs":2,"rate":"1gbit","delay":"5ms","access_delay":"1ms"}"#;

    #[test]
    fn longest_delay_with_even_parts_is_cut() {
        let two = shards(DUMBBELL, 2);
        let side =
            |shard: &Vec<String>, side: &str| shard.len() == 3 && shard.iter().all(|n| n.starts_with(side));
        assert!(two.iter().any(|s| side(s, "left")) && two.iter().any(|s| side(s, "right")), "{two:?}");
    }

    #[test]
    fn shorter_delays_are_cut_for_more_threads() {
        let four = shards(DUMBBELL, 4);
        assert!(four.len() == 4 && four.iter().all(|shard| !shard.is_empty()), "{four:?}");
    }

    #[test]
    fn hosts_joined_without_delay_stay_in_one_part() {
        let plain = DUMBBELL.replace(r#","access_delay":"1ms""#, "");
        assert_eq!(shards(&plain, 4).len(), 2);
        assert_eq!(shards(&plain.replace("5ms", "0s"), 4).len(), 1);
        let paths = r#"{"kind":"parallel-paths","paths":3,"rate":"1gbit","delay":"1ms"}"#;
        assert_eq!(shards(paths, 4).len(), 2);
        let tree = r#"{"kind":"fat-tree","k":4,"rate":"1gbit","delay":"0s"}"#;
        assert_eq!(shards(tree, 2).len(), 1);
    }

    #[test]
    fn links_with_few_events_per_delay_stay_in_one_part() {
        let paths = r#"{"kind":"parallel-paths","paths":2,"rate":"100mbit","delay":"10us"}"#;
        assert_eq!(shards(paths, 2).len(), 1);
        assert_eq!(shards(&paths.replace("10us", "10ms"), 2).len(), 2);
        let access = DUMBBELL
            .replace(r#""pairs":2"#, r#""pairs":4"#)
            .replace("1gbit", "20mbit")
            .replace("1ms", "10us");
        assert_eq!(shards(&access, 3).len(), 2);
        let tree = r#"{"kind":"fat-tree","k":4,"rate":"10gbit","delay":"1us"}"#;
        assert_eq!(shards(tree, 2).len(), 2);
        assert_eq!(shards(&tree.replace("10gbit", "10mbit"), 2).len(), 1);
    }

    #[test]
    fn parts_of_a_ring_are_even_and_contiguous() {
        let link = |i: u32| {
            let next = (i + 1) % 16;
            format!(
                r#"{{"from":"s{i}","to":"s{next}","rate":"1gbit","delay":"1ms"}},
                   {{"from":"h{i}","to":"s{i}","rate":"1gbit","delay":"1us"}}"#
            )
        };
        let list = |of: &dyn Fn(u32) -> String| (0..16).map(of).collect::<Vec<_>>().join(",");
        let hosts = list(&|i| format!(r#""h{i}""#));
        let text = format!(r#"{{"kind":"graph","hosts":[{hosts}],"links":[{}]}}"#, list(&link));
        let four = shards(&text, 4);
        assert!(four.len() == 4 && four.iter().all(|shard| shard.len() == 8), "{four:?}");
        for shard in &four {
            assert!(
                shard
                    .iter()
                    .filter(|name| name.starts_with('h'))
                    .all(|h| shard.contains(&h.replace('h', "s")))
            );
        }
    }
}
