//! Errors of a case that cannot be simulated, and of its endpoints.

use crate::build::FabricError;
use crate::endpoint::MAX_INDEX;
use crate::net::NetError;
use vmcc_cc::MAX_PATHS;

/// Error of a case that cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The topology.
    #[error("topology: {0}")]
    Fabric(#[from] FabricError),
    /// The network.
    #[error("network: {0}")]
    Net(#[from] NetError),
    /// A connection or sender.
    #[error("traffic `{traffic}`: {source}")]
    Host {
        /// The traffic entry.
        traffic: String,
        /// The reason.
        source: HostError,
    },
    /// Host settings.
    #[error("host settings: {0}")]
    Config(HostError),
    /// An event of subflows that are not there.
    #[error(
        "event at {at_s} s: no connection with several subflows has one there; name another `path`, `subflow` or `traffic`"
    )]
    NoSubflow {
        /// Time of the event, in seconds.
        at_s: f64,
    },
    /// Something that the simulator does not have.
    #[error("{what} is not simulated; {remedy}")]
    Unsupported {
        /// Unsupported feature.
        what: String,
        /// Alternative for the user.
        remedy: &'static str,
    },
    /// More connections, requests or busy periods than fit.
    #[error(
        "traffic `{traffic}` makes more than {most} connections, requests or busy periods; shorten the run, lower the load, or let clients `think`"
    )]
    TooMany {
        /// The traffic entry.
        traffic: String,
        /// The limit.
        most: usize,
    },
    /// More probes than fit.
    #[error("traffic `{traffic}` sends more than {most} probes; lengthen `interval`, or shorten the run")]
    TooManyProbes {
        /// The traffic entry.
        traffic: String,
        /// The limit.
        most: usize,
    },
    /// The caller asked to stop.
    #[error("the run was interrupted")]
    Canceled,
}

/// Error of the creation of a connection or sender. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A node number beyond the network.
    #[error("node {node} does not exist: the network has {nodes} nodes, numbered from 0")]
    UnknownNode {
        /// The number given.
        node: u32,
        /// Nodes of the network.
        nodes: usize,
    },
    /// No subflow, or more than a connection can have.
    #[error("a connection has 1 to {MAX_PATHS} subflows, not {count}")]
    Subflows {
        /// The number given.
        count: usize,
    },
    /// A size, rate or count of zero, or a stream longer than sequence numbers reach.
    #[error("{what} of {value} is out of range: {range}")]
    Quantity {
        /// Name of the quantity.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Allowed range.
        range: &'static str,
    },
    /// More subflows in one shard than timers can name.
    #[error("one shard holds at most {MAX_INDEX} subflows: use more shards or fewer connections")]
    Full,
}

/// `ok`, or what is wrong with a quantity.
pub(crate) fn check(what: &'static str, value: u64, ok: bool, range: &'static str) -> Result<(), HostError> {
    if ok { Ok(()) } else { Err(HostError::Quantity { what, value, range }) }
}

/// The shard of a node.
pub(crate) fn shard_of(shards: &[u8], node: u32) -> Result<u8, HostError> {
    shards.get(node as usize).copied().ok_or(HostError::UnknownNode { node, nodes: shards.len() })
}
