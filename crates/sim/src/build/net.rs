//! Nodes and links, number by number: what has a number in the description has the same in the simulator.

use vmcc_network::{Network, Port};
use vmcc_units::Bytes;

use super::error::FabricError;
use super::queue::{self, loss};
use super::span;
use crate::net::{JitterSpec, LinkSpec, NetSpec, NodeId, QueueSpec};

/// The nodes and links of a network, for packets of `mtu`.
///
/// # Errors
/// [`FabricError`] if the simulator cannot express a port.
pub fn net_spec(network: &Network, mtu: Bytes) -> Result<NetSpec, FabricError> {
    let queues = network.ports.iter().map(|port| queue::of(port, mtu)).collect::<Result<Vec<_>, _>>()?;
    let mut net = NetSpec::new();
    network.nodes.iter().for_each(|_| _ = net.node());
    for link in &network.links {
        let port = link.port.index();
        let spec = link_spec((link.from, link.to), &network.ports[port], queues[port].clone());
        net.link(LinkSpec { name: link.rng_stream.clone(), ..spec })?;
    }
    Ok(net)
}

fn link_spec((from, to): (NodeId, NodeId), port: &Port, queue: QueueSpec) -> LinkSpec {
    let link = &port.settings;
    let jitter =
        (!link.jitter.is_zero()).then(|| JitterSpec { max: span(link.jitter), keep_order: !link.reorder });
    LinkSpec {
        loss: loss(&link.loss),
        jitter,
        ..LinkSpec::new(from, to, link.rate.get(), span(link.delay), queue)
    }
}
