//! Two pods of servers with several NICs, each NIC to its own switch of the pod.

use vmcc_scenario::model::TwoPod;
use vmcc_units::BitsPerSec;

use super::fabric::{Builder, Fabric, FabricError, NamedPath, Router, Way, span};
use super::queue::{Port, limit};
use crate::net::{LinkSpec, NodeId, QueueSpec};
use crate::packet::LinkId;
use crate::time::Span;

/// Sending and receiving links of one server's NICs, and its shared limit.
type Server = (Vec<(LinkId, LinkId)>, Option<LinkId>);

pub(crate) fn build(mut builder: Builder, t: &TwoPod) -> Result<Fabric, FabricError> {
    let base_rtt = span(t.delay).times(6);
    builder.fabric.base_rtt = base_rtt;
    let core_rate =
        t.core_rate.unwrap_or(BitsPerSec::new(t.rate.get().saturating_mul(u64::from(t.servers_per_pod))));
    let queue = |rate: BitsPerSec, builder: &Builder| {
        let mtu = builder.mtu;
        Port { rate, buffer: t.buffer, marking: &t.marking, queue: &t.queue, mtu, base_rtt }.spec()
    };
    let (port_queue, core_queue) = (queue(t.rate, &builder)?, queue(core_rate, &builder)?);
    let mut cores = Vec::new();
    let mut switches: [Vec<NodeId>; 2] = [Vec::new(), Vec::new()];
    for nic in 0..t.nics {
        let (a, b) = (builder.fabric.net.node(), builder.fabric.net.node());
        let core = builder.duplex((a, b), core_rate, span(t.delay), &core_queue)?;
        builder.fabric.links.insert(format!("core{nic}"), vec![core.0, core.1]);
        let name = vmcc_scenario::model::path_name(nic as usize);
        builder.fabric.paths.push(NamedPath { name, queue: core.0, links: vec![core.0, core.1] });
        cores.push(core);
        switches[0].push(a);
        switches[1].push(b);
    }
    let (mut ports, mut limits) = (Vec::new(), Vec::new());
    for pod in 0..2u32 {
        for name in t.server_names(pod) {
            let (nics, limit) = server(&mut builder, t, &name, &switches[pod as usize], &port_queue)?;
            ports.push(nics);
            limits.push(limit);
        }
    }
    builder.fabric.router = Router::TwoPod { ports, limits, cores };
    Ok(builder.fabric)
}

fn server(
    builder: &mut Builder,
    t: &TwoPod,
    name: &str,
    switches: &[NodeId],
    queue: &QueueSpec,
) -> Result<Server, FabricError> {
    let nic_rate = t.nic_limit.unwrap_or(t.rate);
    let all = BitsPerSec::new(nic_rate.get().saturating_mul(switches.len() as u64));
    let most = t.server_limit.map_or(all, |limit| limit.min(all));
    let host = builder.host(name.to_owned(), most);
    let shared = match t.server_limit {
        Some(rate) => {
            let inner = builder.fabric.net.node();
            let queue = QueueSpec::Fifo { limit: limit(t.buffer), mark: None };
            let link = builder.link(LinkSpec::new(host, inner, rate.get(), Span::ZERO, queue))?;
            Some((link, inner))
        }
        None => None,
    };
    let out = shared.map_or(host, |(_, inner)| inner);
    let mut nics = Vec::new();
    for (nic, &switch) in switches.iter().enumerate() {
        // The server's own port drops at its end; only switches mark.
        let own = QueueSpec::Fifo { limit: limit(t.buffer), mark: None };
        let up = builder.link(LinkSpec::new(out, switch, nic_rate.get(), span(t.delay), own))?;
        let down = builder.link(LinkSpec::new(switch, host, t.rate.get(), span(t.delay), queue.clone()))?;
        builder.fabric.links.insert(format!("{name}.{nic}"), vec![up, down]);
        builder.fabric.paths[nic].links.extend([up, down]);
        nics.push((up, down));
    }
    Ok((nics, shared.map(|(link, _)| link)))
}

pub(crate) fn ways(
    ports: &[Vec<(LinkId, LinkId)>],
    limits: &[Option<LinkId>],
    cores: &[(LinkId, LinkId)],
    from: usize,
    to: usize,
) -> Vec<Way> {
    let half = ports.len() / 2;
    let one = |a: usize, b: usize, nic: usize| {
        let core = match (a < half, b < half) {
            (true, false) => Some(cores[nic].0),
            (false, true) => Some(cores[nic].1),
            _ => None,
        };
        [limits[a], Some(ports[a][nic].0), core, Some(ports[b][nic].1)].into_iter().flatten().collect()
    };
    let way = |nic: usize| Way {
        path: Some(vmcc_scenario::model::path_name(nic)),
        forward: one(from, to, nic),
        reverse: one(to, from, nic),
    };
    (0..cores.len()).map(way).collect()
}
