//! Errors of endpoint creation.

use super::MAX_INDEX;
use vmcc_cc::MAX_PATHS;

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
