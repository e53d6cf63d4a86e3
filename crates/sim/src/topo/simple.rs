//! Disjoint paths, and the dumbbell.

use std::collections::BTreeMap;

use vmcc_scenario::model::{Dumbbell, LinkSettings, ParallelPaths};
use vmcc_units::BitsPerSec;

use super::fabric::{Builder, Fabric, FabricError, NamedPath, Router, Way, span};
use super::queue::{Port, loss};
use crate::net::{JitterSpec, LinkSpec, NodeId};
use crate::packet::LinkId;
use crate::time::Span;

/// Both directions of the link called `name`, with all settings.
pub(crate) fn settled_link(
    builder: &mut Builder,
    name: &str,
    (a, b): (NodeId, NodeId),
    link: &LinkSettings,
    base_rtt: Span,
) -> Result<(LinkId, LinkId), FabricError> {
    let queue = Port::of(link, builder.mtu, base_rtt).spec()?;
    let jitter = (!link.jitter.is_zero()).then(|| JitterSpec { max: span(link.jitter), keep_order: true });
    let spec = |from, to, way| LinkSpec {
        name: Some(format!("{name}/{way}")),
        loss: loss(&link.loss),
        jitter,
        ..LinkSpec::new(from, to, link.rate.get(), span(link.delay), queue.clone())
    };
    Ok((builder.link(spec(a, b, "there"))?, builder.link(spec(b, a, "back"))?))
}

/// Every path is one link in each direction between the two hosts.
pub(crate) fn parallel_paths(mut builder: Builder, t: &ParallelPaths) -> Result<Fabric, FabricError> {
    let links = t.links();
    let total = links.iter().map(|(_, link)| link.rate.get()).fold(0u64, u64::saturating_add);
    let client = builder.host("client".into(), BitsPerSec::new(total));
    let server = builder.host("server".into(), BitsPerSec::new(total));
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for (name, link) in &links {
        // A path's rule refers to that path's RTT.
        let rtt = span(link.delay).times(2);
        let (out, home) = settled_link(&mut builder, name, (client, server), link, rtt)?;
        builder.fabric.base_rtt = builder.fabric.base_rtt.max(rtt);
        builder.fabric.links.insert(name.clone(), vec![out, home]);
        builder.fabric.paths.push(NamedPath { name: name.clone(), queue: out, links: vec![out, home] });
        there.push(Way { path: Some(name.clone()), forward: vec![out], reverse: vec![home] });
        back.push(Way { path: Some(name.clone()), forward: vec![home], reverse: vec![out] });
    }
    let table = BTreeMap::from([((client, server), there), ((server, client), back)]);
    builder.fabric.router = Router::Table(table);
    Ok(builder.fabric)
}

pub(crate) fn dumbbell(mut builder: Builder, t: &Dumbbell) -> Result<Fabric, FabricError> {
    let (left, right) = (builder.fabric.net.node(), builder.fabric.net.node());
    let base_rtt = (span(t.delay) + span(t.access_delay).times(2)).times(2);
    let (there, back) = settled_link(&mut builder, "bottleneck", (left, right), &t.bottleneck(), base_rtt)?;
    let access = t.access();
    let mut ports = Vec::new();
    for (side, switch) in [("left", left), ("right", right)] {
        for i in 0..t.pairs {
            let name = format!("{side}{i}");
            let host = builder.host(name.clone(), access.rate);
            let (up, down) = settled_link(&mut builder, &name, (host, switch), &access, base_rtt)?;
            builder.fabric.links.insert(name, vec![up, down]);
            ports.push((up, down));
        }
    }
    builder.fabric.base_rtt = base_rtt;
    builder.fabric.links.insert("bottleneck".into(), vec![there, back]);
    builder.fabric.paths.push(NamedPath {
        name: "bottleneck".into(),
        queue: there,
        links: vec![there, back],
    });
    builder.fabric.router = Router::Dumbbell { ports, there, back, left: t.pairs as usize };
    Ok(builder.fabric)
}
