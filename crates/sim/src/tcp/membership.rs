//! A connection's part in a pool of connections that detect shared bottlenecks together.

use vmcc_cc::SHARING_PATHS;

/// A connection's place in a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Membership {
    /// Index of the pool in the shard's table.
    pub(crate) pool: u32,
    /// Route of each subflow.
    pub(crate) routes: [u8; SHARING_PATHS],
}

impl Membership {
    /// The subflow on a route, if the connection has one there.
    pub(crate) fn subflow_on(&self, route: usize, count: usize) -> Option<usize> {
        self.routes[..count].iter().position(|&own| usize::from(own) == route)
    }
}
