//! What is built where paths are not disjoint: hosts and switches that route.

use super::{Flow, Shape};
use crate::Error;
use std::collections::{BTreeMap, BTreeSet};
use vmcc_network::{LinkId, Way};
use vmcc_units::Nanos;

/// Links of one run, each a veth pair with a queue; two cores serve them all.
const MAX_LINKS: usize = 128;

/// One direction of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct RoutedLink {
    /// As events call it.
    pub name: String,
    /// The node whose port this is.
    pub from: usize,
    /// The node at the far end.
    pub to: usize,
    /// Its port.
    pub shape: Shape,
    /// One-way propagation delay; needs the kernel's netem unless it is zero.
    pub delay: Nanos,
    /// The probability with which a packet is lost; needs netem unless it is zero.
    pub loss: f64,
    /// The path whose figures its port counts for.
    pub path: Option<usize>,
    /// Whether it stands for that path: its queue is the path's.
    pub stands_for_path: bool,
}

/// Hosts and switches, and the ways between those hosts that send to each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Routed {
    /// The names of all nodes.
    pub nodes: Vec<String>,
    /// The node of each host.
    pub node_of_host: Vec<usize>,
    /// Every direction of every link.
    pub links: Vec<RoutedLink>,
    /// By sender and receiver: lane k is way k. Acknowledgments of one pair take the ways of the reversed pair.
    pub ways: BTreeMap<(usize, usize), Vec<Way>>,
}

impl Routed {
    /// The ways from one host to another.
    pub(crate) fn ways(&self, from: usize, to: usize) -> &[Way] {
        self.ways.get(&(from, to)).map_or(&[], Vec::as_slice)
    }

    /// The links that carry data of these flows, and those that carry anything.
    pub(crate) fn used(&self, flows: &[Flow]) -> (BTreeSet<LinkId>, BTreeSet<LinkId>) {
        let ways = || flows.iter().flat_map(|flow| self.ways(flow.from, flow.to));
        let data: BTreeSet<LinkId> = ways().flat_map(|way| way.forward.iter().copied()).collect();
        let all = ways().flat_map(|way| way.reverse.iter().copied()).chain(data.iter().copied()).collect();
        (data, all)
    }

    pub(crate) fn check(&self, flows: &[Flow]) -> Result<(), Error> {
        let (_, used) = self.used(flows);
        if used.len() > MAX_LINKS {
            let problem = format!("{} links carry packets; the kernel engine takes {MAX_LINKS}", used.len());
            return Err(Error::spec("topology", problem));
        }
        for link in used.iter().map(|link| &self.links[link.index()]) {
            let key = |key: &str| format!("topology.links[{}].{key}", link.name);
            if link.delay > Nanos::from_secs(2) {
                return Err(Error::spec(key("delay"), format!("{} is more than 2s", link.delay)));
            }
            link.shape.check(key)?;
        }
        Ok(())
    }
}
