//! What a network consists of, before it runs: nodes, links, routes.

use crate::engine::wheel::MAX_SOURCE;
use crate::net::link::wire_time;
use crate::packet::{LinkId, RouteId};
use crate::time::Span;

/// A host, virtual switch or switch; links join nodes, and partitions are made of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// How much a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Bytes, the part of the packet in service that is still to be sent included.
    Bytes(u64),
    /// No limit.
    Unlimited,
}

/// Above which backlog an ECN-capable packet is marked on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Threshold {
    /// Bytes in the queue ahead of the packet.
    Bytes(u64),
    /// Time until the packet would be sent.
    Time(Span),
}

/// The queue in front of a link.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum QueueSpec {
    /// First in, first out; tail drop; optional ECN threshold.
    Fifo {
        /// Arrivals that would exceed it are dropped.
        limit: Limit,
        /// Marks ECN-capable arrivals; others pass unmarked.
        mark: Option<Threshold>,
    },
}

impl QueueSpec {
    /// How far ahead a packet's departure may lie when it arrives; an estimate that sizes the event queue.
    pub(crate) fn longest_wait(&self, rate_bps: u64) -> Span {
        let QueueSpec::Fifo { limit, .. } = self;
        match limit {
            Limit::Bytes(bytes) => wire_time(*bytes, rate_bps),
            Limit::Unlimited => Span::from_ms(10),
        }
    }
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Node whose queue this is.
    pub from: NodeId,
    /// Node at the far end.
    pub to: NodeId,
    /// Bits per second on the wire: 2,000 to 10^15.
    pub rate_bps: u64,
    /// Propagation delay.
    pub delay: Span,
    /// Queue in front of the wire.
    pub queue: QueueSpec,
}

/// Why a network cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// Rate out of range.
    #[error("link {link}: rate {rate_bps} bit/s is outside 2000 to 10^15; give the link a usable rate")]
    Rate {
        /// The link.
        link: u32,
        /// Its rate.
        rate_bps: u64,
    },
    /// More links than event keys can name.
    #[error("a network has at most {MAX_SOURCE} links; use a smaller topology")]
    TooManyLinks,
    /// A route without links.
    #[error("a route needs at least one link; sender and receiver must be different nodes")]
    EmptyRoute,
    /// A route over a link that does not exist.
    #[error("route names link {link}, but there are only {links}")]
    UnknownLink {
        /// The link named.
        link: u32,
        /// How many there are.
        links: usize,
    },
    /// Two consecutive links that do not touch.
    #[error("route is broken: link {first} ends at node {ends}, but link {second} starts at node {starts}")]
    Broken {
        /// The earlier link.
        first: u32,
        /// Where it ends.
        ends: u32,
        /// The later link.
        second: u32,
        /// Where it starts.
        starts: u32,
    },
    /// A route that visits a node twice.
    #[error("route visits node {node} twice; remove the cycle")]
    Cycle {
        /// The node.
        node: u32,
    },
    /// The route table is full.
    #[error("all routes together exceed 2^32 hops; use fewer flows or subflows")]
    TooManyRoutes,
    /// A partition that does not fit the network.
    #[error("partition names {given} nodes and {shards} shards for {nodes} nodes and {hosts} host tables")]
    Partition {
        /// Nodes in the partition.
        given: usize,
        /// Highest shard named plus one.
        shards: usize,
        /// Nodes of the network.
        nodes: usize,
        /// Host tables given.
        hosts: usize,
    },
    /// Shards joined by links without delay cannot run in parallel.
    #[error("link {link} joins two shards without any delay; keep both of its ends in one shard")]
    NoLookahead {
        /// The link.
        link: u32,
    },
}

/// A network under construction.
#[derive(Clone, Debug, Default)]
pub struct NetSpec {
    pub(crate) nodes: u32,
    pub(crate) links: Vec<LinkSpec>,
    pub(crate) routes: Vec<u32>,
}

/// Ends a route in the shared array.
pub(crate) const END: u32 = u32::MAX;

impl NetSpec {
    /// An empty network.
    pub fn new() -> NetSpec {
        NetSpec::default()
    }

    /// Adds a node.
    pub fn node(&mut self) -> NodeId {
        self.nodes += 1;
        NodeId(self.nodes - 1)
    }

    /// Adds one direction of a link.
    ///
    /// # Errors
    /// [`NetError::Rate`], [`NetError::TooManyLinks`].
    pub fn link(&mut self, link: LinkSpec) -> Result<LinkId, NetError> {
        let id = self.links.len() as u32;
        if id >= MAX_SOURCE {
            return Err(NetError::TooManyLinks);
        }
        if !(2_000..=1_000_000_000_000_000).contains(&link.rate_bps) {
            return Err(NetError::Rate { link: id, rate_bps: link.rate_bps });
        }
        self.links.push(link);
        Ok(LinkId(id))
    }

    /// Adds a route over `links`, in order. Routes are shared: any number of subflows may use one.
    ///
    /// # Errors
    /// When the links do not form a simple path.
    pub fn route(&mut self, links: &[LinkId]) -> Result<RouteId, NetError> {
        self.check_route(links)?;
        let start = u32::try_from(self.routes.len()).map_err(|_| NetError::TooManyRoutes)?;
        self.routes.extend(links.iter().map(|l| l.0));
        self.routes.push(END);
        Ok(RouteId(start))
    }

    /// The links added so far.
    pub fn links(&self) -> &[LinkSpec] {
        &self.links
    }

    /// The links of a route.
    pub fn route_links(&self, route: RouteId) -> impl Iterator<Item = LinkId> + '_ {
        self.routes[route.0 as usize..].iter().take_while(|&&l| l != END).map(|&l| LinkId(l))
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    fn check_route(&self, links: &[LinkId]) -> Result<(), NetError> {
        let Some(first) = links.first() else { return Err(NetError::EmptyRoute) };
        let mut visited = Vec::with_capacity(links.len() + 1);
        let mut previous: Option<(LinkId, NodeId)> = None;
        for &id in links {
            let unknown = NetError::UnknownLink { link: id.0, links: self.links.len() };
            let link = self.links.get(id.0 as usize).ok_or(unknown)?;
            if id == *first {
                visited.push(link.from);
            }
            if let Some((before, ends)) = previous
                && ends != link.from
            {
                let (ends, starts) = (ends.0, link.from.0);
                return Err(NetError::Broken { first: before.0, ends, second: id.0, starts });
            }
            if visited.contains(&link.to) {
                return Err(NetError::Cycle { node: link.to.0 });
            }
            visited.push(link.to);
            previous = Some((id, link.to));
        }
        Ok(())
    }
}
