//! Networks whose paths are not disjoint: hosts and switches that route.

use super::{Flow, Shape, Wire};
use crate::Error;
use std::collections::{BTreeMap, BTreeSet};
use vmcc_network::{LinkId, RoutePair};

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
    /// Impairments behind the port.
    pub wire: Wire,
    /// The paths that it is part of.
    pub paths: OfPaths,
}

/// The paths whose figures a port counts for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfPaths {
    /// All of them.
    pub carries: Vec<usize>,
    /// Those that it stands for: its queue is theirs.
    pub stands_for: Vec<usize>,
}

impl OfPaths {
    /// One path, for which it stands.
    pub(crate) fn of(path: usize) -> Self {
        Self { carries: vec![path], stands_for: vec![path] }
    }

    /// The places in `ports` of those that a path has, the one that stands for it first.
    pub(crate) fn ports_of<'a>(path: usize, ports: impl Iterator<Item = &'a Self>) -> Vec<usize> {
        let own = ports.enumerate().filter(|(_, port)| port.carries.contains(&path));
        let mut own: Vec<_> = own.map(|(place, port)| (!port.stands_for.contains(&path), place)).collect();
        own.sort_unstable();
        own.into_iter().map(|(_, place)| place).collect()
    }
}

/// Hosts and switches, and the routes between those hosts that send to each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Routed {
    /// The names of all nodes.
    pub nodes: Vec<String>,
    /// The node of each host.
    pub node_of_host: Vec<usize>,
    /// Every direction of every link.
    pub links: Vec<RoutedLink>,
    /// Scenario key that determines the number of routes of a pair.
    pub subnets_key: &'static str,
    /// By sender and receiver: subnet k is route k. Acknowledgments of one pair take the routes of the reversed pair.
    pub routes: BTreeMap<(usize, usize), Vec<RoutePair>>,
}

impl Routed {
    /// The routes from one host to another.
    pub(crate) fn routes(&self, from: usize, to: usize) -> &[RoutePair] {
        self.routes.get(&(from, to)).map_or(&[], Vec::as_slice)
    }

    /// The links that carry data of these flows, and those that carry anything.
    pub(crate) fn used(&self, flows: &[Flow]) -> (BTreeSet<LinkId>, BTreeSet<LinkId>) {
        let routes = || flows.iter().flat_map(|flow| self.routes(flow.from, flow.to));
        let data: BTreeSet<LinkId> = routes().flat_map(|pair| pair.forward.iter().copied()).collect();
        let all =
            routes().flat_map(|pair| pair.reverse.iter().copied()).chain(data.iter().copied()).collect();
        (data, all)
    }

    /// True if a link that carries packets delays or loses them.
    pub(crate) fn is_impaired(&self, flows: &[Flow]) -> bool {
        self.used(flows).1.iter().any(|link| self.links[link.index()].wire.is_impaired())
    }

    pub(crate) fn check(&self, flows: &[Flow]) -> Result<(), Error> {
        let (_, used) = self.used(flows);
        if used.len() > MAX_LINKS {
            let problem = format!("{} links carry packets; it takes {MAX_LINKS}", used.len());
            return Err(Error::not_expressible("topology", problem));
        }
        for link in used.iter().map(|link| &self.links[link.index()]) {
            link.wire.check().and_then(|()| link.shape.check()).map_err(|(setting, problem)| {
                Error::not_expressible("topology", format!("{setting} of link {}: {problem}", link.name))
            })?;
        }
        Ok(())
    }
}
