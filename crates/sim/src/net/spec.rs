//! Description of a network before it runs: nodes, links, routes.

use crate::net::rate::{bytes_within, wire_time};
use crate::packet::{LinkId, RouteId};
use crate::time::{Span, Time};

pub use vmcc_network::NodeId;

/// Capacity of a queue. The packet in service does not count: like the kernel's pfifo and bfifo, the queue has given it
/// to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitSpec {
    /// Bytes waiting.
    Bytes(u64),
    /// Packets waiting.
    Packets(u32),
    /// No limit.
    Unlimited,
}

/// Above which backlog an ECN-capable packet is marked on arrival. What waits counts: neither the arriving packet nor the one
/// in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThresholdSpec {
    /// Bytes waiting ahead of the packet.
    Bytes(u64),
    /// Time to send them at the link's rate.
    Time(Span),
}

impl ThresholdSpec {
    /// The most bytes that are not above it.
    pub(crate) fn in_bytes(self, ps_per_byte_q16: u64) -> u64 {
        match self {
            ThresholdSpec::Bytes(bytes) => bytes,
            ThresholdSpec::Time(span) => bytes_within(span, ps_per_byte_q16),
        }
    }
}

/// RED as in Floyd and Jacobson (IEEE/ACM ToN 1(4), 1993), counting bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedSpec {
    /// Hard limit.
    pub limit: LimitSpec,
    /// Average queue from which packets are marked or dropped with rising probability.
    pub min_bytes: u64,
    /// Average queue from which each packet is.
    pub max_bytes: u64,
    /// Probability just below `max_bytes`: 0 to 1.
    pub max_probability: f64,
    /// Weight of a new sample in the average: 0 to 1; 0.002 is the authors' choice.
    pub weight: f64,
    /// Marks ECN-capable packets instead of dropping them, above `max_bytes` too.
    pub ecn: bool,
}

/// One class of a scheduled port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSpec {
    /// Bytes per round of deficit round robin; not used by strict priority. At least 1.
    pub quantum_bytes: u32,
    /// Capacity of the class's queue.
    pub limit: LimitSpec,
    /// The class's own threshold; [`MarkingSpec`] is applied in addition.
    pub mark: Option<ThresholdSpec>,
}

/// Which class is served next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheduling {
    /// Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995).
    DeficitRoundRobin,
    /// The lowest class number first.
    StrictPriority,
}

/// Marking of a scheduled port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MarkingSpec {
    /// Only by the classes' own thresholds.
    None,
    /// MQ-ECN (Bai et al., NSDI 2016): the port's threshold (rate x RTT x lambda), shared among the
    /// backlogged classes in proportion to their service.
    MqEcn {
        /// Threshold of the whole port.
        port_threshold_bytes: u64,
    },
    /// TCN (Bai et al., CoNEXT 2016): packets that waited longer than this are marked as they leave.
    Tcn {
        /// RTT x lambda.
        sojourn: Span,
    },
}

/// One class of a hierarchical shaper. A class is served within its guarantee first, then with what its
/// ancestors can lend, never beyond a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShaperClass {
    /// The class it borrows from: an earlier index. None: a root.
    pub parent: Option<usize>,
    /// Rate it may always use, bits per second, at least 2000.
    pub guarantee_bps: u64,
    /// Rate it never exceeds.
    pub ceiling_bps: u64,
    /// Bytes that may be sent at once after idling, for guarantee and ceiling.
    pub burst_bytes: u64,
    /// Capacity of a leaf's queue.
    pub limit: LimitSpec,
    /// Marks arrivals at a leaf; a time is taken at the guaranteed rate.
    pub mark: Option<ThresholdSpec>,
}

/// The queue in front of a link.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum QueueSpec {
    /// First in, first out; tail drop; optional ECN threshold.
    Fifo {
        /// Arrivals that would exceed it are dropped.
        limit: LimitSpec,
        /// Marks ECN-capable arrivals; others pass unmarked.
        mark: Option<ThresholdSpec>,
    },
    /// Random early detection.
    Red(RedSpec),
    /// Several queues, chosen by [`crate::packet::Packet::class`].
    Classes {
        /// Which is served next.
        scheduling: Scheduling,
        /// Marking of the port.
        marking: MarkingSpec,
        /// The queues.
        classes: Vec<ClassSpec>,
    },
    /// Hierarchical token buckets, work-conserving within ceilings. The leaves, in order of their index,
    /// are the classes 0, 1, ... of packets. A single class is a hard cap.
    Shaper {
        /// Parents before children.
        classes: Vec<ShaperClass>,
    },
}

/// Random loss on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum LossSpec {
    /// Each packet is lost with this probability, independently.
    Bernoulli(f64),
    /// Two states with their own loss probabilities (Gilbert and Elliott); starts in the good one.
    GilbertElliott {
        /// Probability per packet to turn bad.
        to_bad: f64,
        /// Probability per packet to turn good.
        to_good: f64,
        /// Loss in the good state.
        loss_good: f64,
        /// Loss in the bad state.
        loss_bad: f64,
    },
}

/// Random extra delay, uniform between 0 and `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitterSpec {
    /// The most.
    pub max: Span,
    /// Packets do not overtake each other.
    pub keep_order: bool,
}

/// Change of a link during a run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum LinkChange {
    /// The queue is emptied, arrivals are dropped. What is on the wire arrives.
    Down,
    /// Sends again, after `Down` or `Pause`.
    Up,
    /// Nothing leaves, arrivals wait: a descheduled VM.
    Pause,
    /// New rate, from the next packet on.
    Rate {
        /// Bits per second, 2,000 to 10^15.
        rate_bps: u64,
    },
    /// New propagation delay, from the next packet on; packets may overtake.
    Delay(Span),
    /// New loss; `None` ends it.
    Loss(Option<LossSpec>),
}

impl QueueSpec {
    /// Longest time from a packet's arrival to its departure; an estimate that sizes the event queue.
    pub(crate) fn longest_wait(&self, rate_bps: u64) -> Span {
        let limit = match self {
            QueueSpec::Fifo { limit, .. } | QueueSpec::Red(RedSpec { limit, .. }) => *limit,
            QueueSpec::Classes { .. } | QueueSpec::Shaper { .. } => LimitSpec::Packets(1),
        };
        match limit {
            LimitSpec::Bytes(bytes) => wire_time(bytes, rate_bps),
            LimitSpec::Packets(count) => wire_time(1500 * u64::from(count), rate_bps),
            LimitSpec::Unlimited => Span::from_ms(10),
        }
    }
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// After what its random streams are called, so that they do not depend on what else there is; absent: its number.
    pub name: Option<String>,
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
    /// Random loss on the wire.
    pub loss: Option<LossSpec>,
    /// Random extra delay.
    pub jitter: Option<JitterSpec>,
}

impl LinkSpec {
    /// A link without loss and jitter.
    pub fn new(from: NodeId, to: NodeId, rate_bps: u64, delay: Span, queue: QueueSpec) -> LinkSpec {
        LinkSpec { name: None, from, to, rate_bps, delay, queue, loss: None, jitter: None }
    }
}

/// Error of a network that cannot be built.
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
    /// Settings that contradict each other.
    #[error("link {link}: {problem}")]
    Queue {
        /// The link.
        link: u32,
        /// Description of the problem.
        problem: &'static str,
    },
    /// More links than can be named.
    #[error("a network has at most {MAX_LINKS} links; use a smaller topology")]
    TooManyLinks,
    /// A route without links.
    #[error("a route needs at least one link; sender and receiver must be different nodes")]
    EmptyRoute,
    /// A link that does not exist.
    #[error("there is no link {link}: the network has {links}, numbered from 0")]
    UnknownLink {
        /// The link named.
        link: u32,
        /// Number of links of the network.
        links: usize,
    },
    /// Two consecutive links that do not touch.
    #[error("route is broken: link {first} ends at node {ends}, but link {second} starts at node {starts}")]
    Broken {
        /// The earlier link.
        first: u32,
        /// Node at which it ends.
        ends: u32,
        /// The later link.
        second: u32,
        /// Node at which it starts.
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
    pub(crate) changes: Vec<Change>,
    pub(crate) probes: Vec<Probe>,
}

/// A change to come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) at: Time,
    pub(crate) link: LinkId,
    pub(crate) change: LinkChange,
}

/// A queue to be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) link: LinkId,
    pub(crate) every: Span,
}

/// Most links: ids take 24 bits at run time.
const MAX_LINKS: u32 = 1 << 24;

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
        if id >= MAX_LINKS {
            return Err(NetError::TooManyLinks);
        }
        check_rate(id, link.rate_bps)?;
        check_queue(id, &link.queue)?;
        if let Some(loss) = &link.loss {
            check_loss(id, loss)?;
        }
        self.links.push(link);
        Ok(LinkId(id))
    }

    /// Changes `link` at `at`.
    ///
    /// # Errors
    /// [`NetError::UnknownLink`], [`NetError::Rate`], [`NetError::Queue`].
    pub fn change(&mut self, at: Time, link: LinkId, change: LinkChange) -> Result<(), NetError> {
        self.check_link(link)?;
        match change {
            LinkChange::Rate { rate_bps } => check_rate(link.0, rate_bps)?,
            LinkChange::Loss(Some(loss)) => check_loss(link.0, &loss)?,
            _ => {}
        }
        self.changes.push(Change { at, link, change });
        Ok(())
    }

    /// Samples the queue of `link` at multiples of `every`, which must not be zero.
    ///
    /// # Errors
    /// [`NetError::UnknownLink`], [`NetError::Queue`].
    pub fn sample(&mut self, link: LinkId, every: Span) -> Result<(), NetError> {
        self.check_link(link)?;
        if every == Span::ZERO {
            return Err(NetError::Queue { link: link.0, problem: "the sampling interval is zero" });
        }
        self.probes.push(Probe { link, every });
        Ok(())
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

    fn check_link(&self, link: LinkId) -> Result<(), NetError> {
        if (link.0 as usize) < self.links.len() {
            return Ok(());
        }
        Err(NetError::UnknownLink { link: link.0, links: self.links.len() })
    }

    fn check_route(&self, links: &[LinkId]) -> Result<(), NetError> {
        let Some(first) = links.first() else { return Err(NetError::EmptyRoute) };
        let mut visited = Vec::with_capacity(links.len() + 1);
        let mut previous: Option<(LinkId, NodeId)> = None;
        for &id in links {
            self.check_link(id)?;
            let link = &self.links[id.0 as usize];
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

fn check_rate(link: u32, rate_bps: u64) -> Result<(), NetError> {
    if (2_000..=1_000_000_000_000_000).contains(&rate_bps) {
        return Ok(());
    }
    Err(NetError::Rate { link, rate_bps })
}

fn check_queue(link: u32, queue: &QueueSpec) -> Result<(), NetError> {
    let problem = match queue {
        QueueSpec::Fifo { .. } => return Ok(()),
        QueueSpec::Red(red) => red_problem(red),
        QueueSpec::Classes { classes, .. } if !(1..=256).contains(&classes.len()) => {
            Some("a scheduled port needs 1 to 256 classes")
        }
        QueueSpec::Classes { classes, .. } => {
            let zero = classes.iter().any(|c| c.quantum_bytes == 0);
            zero.then_some("a class needs a quantum of at least one byte")
        }
        QueueSpec::Shaper { classes } => {
            classes.iter().try_for_each(|c| check_rate(link, c.guarantee_bps.min(c.ceiling_bps)))?;
            shaper_problem(classes)
        }
    };
    problem.map_or(Ok(()), |problem| Err(NetError::Queue { link, problem }))
}

fn red_problem(red: &RedSpec) -> Option<&'static str> {
    let fraction = |x: f64| (0.0..=1.0).contains(&x);
    if red.min_bytes >= red.max_bytes {
        return Some("RED's lower threshold must lie below the upper one");
    }
    let valid = fraction(red.max_probability) && fraction(red.weight) && red.weight > 0.0;
    (!valid).then_some("RED's probability must be from 0 to 1 and its weight above 0 and at most 1")
}

fn shaper_problem(classes: &[ShaperClass]) -> Option<&'static str> {
    if !(1..=256).contains(&classes.len()) {
        return Some("a shaper needs 1 to 256 classes");
    }
    if classes.iter().enumerate().any(|(i, c)| c.parent.is_some_and(|p| p >= i)) {
        return Some("a shaper's classes must come after their parents");
    }
    let high = classes.iter().any(|c| c.guarantee_bps > c.ceiling_bps);
    high.then_some("a shaper class guarantees more than its ceiling; raise the ceiling")
}

fn check_loss(link: u32, loss: &LossSpec) -> Result<(), NetError> {
    let valid = match *loss {
        LossSpec::Bernoulli(p) => (0.0..=1.0).contains(&p),
        LossSpec::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
            [to_bad, to_good, loss_good, loss_bad].iter().all(|p| (0.0..=1.0).contains(p))
        }
    };
    if valid {
        Ok(())
    } else {
        Err(NetError::Queue { link, problem: "a loss probability is not from 0 to 1" })
    }
}
