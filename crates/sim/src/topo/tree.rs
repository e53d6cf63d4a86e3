//! The fat tree of the language: hosts and links by name, paths by hash.

use rand_xoshiro::rand_core::Rng;
use vmcc_scenario::model;

use super::fabric::{Builder, Fabric, FabricError, Router, Way, span};
use super::queue::{Port, limit};
use super::{FatTree, FatTreeSpec};
use crate::net::QueueSpec;
use crate::rng::Stream;

pub(crate) fn build(mut builder: Builder, t: &model::FatTree) -> Result<Fabric, FabricError> {
    let base_rtt = span(t.delay).times(12);
    let spec = FatTreeSpec {
        k: t.k,
        rate_bps: t.rate.get(),
        delay: span(t.delay),
        switch_queue: Port::of(&t.port(), builder.mtu, base_rtt).spec()?,
        host_queue: QueueSpec::Fifo { limit: limit(t.buffer), mark: None },
    };
    let tree = FatTree::build(&mut builder.fabric.net, &spec)?;
    for host in 0..tree.hosts() {
        builder.known_host(format!("h{host}"), tree.host_node(host), t.rate);
    }
    for (name, links) in tree.named_links() {
        builder.fabric.links.insert(name, links.to_vec());
    }
    builder.fabric.base_rtt = base_rtt;
    builder.fabric.router = Router::FatTree(tree);
    Ok(builder.fabric)
}

/// `count` ways by independent hashes, as ECMP would pick them for that many flows; acknowledgments have
/// hashes of their own.
pub(crate) fn ways(
    tree: &FatTree,
    from: usize,
    to: usize,
    count: usize,
    ecmp: &mut Stream,
) -> Result<Vec<Way>, FabricError> {
    let (from, to) = (from as u32, to as u32);
    let mut one = || {
        let (there, back) = (ecmp.next_u32(), ecmp.next_u32());
        Ok(Way { path: None, forward: tree.path(from, to, there)?, reverse: tree.path(to, from, back)? })
    };
    (0..count).map(|_| one()).collect()
}
