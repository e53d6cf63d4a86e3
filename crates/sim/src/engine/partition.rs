//! Division of a network among shards.

use crate::net::{LinkSpec, NetSpec, NodeId};

/// Which shard each node belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    shard_of: Vec<u8>,
    split: Vec<bool>,
}

impl Partition {
    /// Everything in one shard.
    pub fn whole(net: &NetSpec) -> Partition {
        Partition::new(vec![0; net.nodes() as usize])
    }

    /// Node `i` belongs to shard `shard_of[i]`; shards are numbered from 0.
    pub fn new(shard_of: Vec<u8>) -> Partition {
        let split = vec![false; shard_of.len()];
        Partition { shard_of, split }
    }

    /// Gives each port of `node` to the shard of the node it leads to. Ports share nothing, so a switch in
    /// the middle need not belong to any one shard, and packets cross at most once there. Not for hosts.
    pub fn split(&mut self, node: NodeId) {
        self.split[node.0 as usize] = true;
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.shard_of.iter().max().map_or(1, |&s| usize::from(s) + 1)
    }

    /// Shard of each node.
    pub fn shard_of(&self) -> &[u8] {
        &self.shard_of
    }

    /// The shard that handles a link's queue.
    pub(crate) fn owner(&self, link: &LinkSpec) -> u8 {
        let node = if self.split[link.from.0 as usize] { link.to } else { link.from };
        self.shard_of[node.0 as usize]
    }

    /// The shard of a link's far end.
    pub(crate) fn far_end(&self, link: &LinkSpec) -> u8 {
        self.shard_of[link.to.0 as usize]
    }
}
