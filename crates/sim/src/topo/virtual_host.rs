//! Virtual machines behind a virtual switch.
//!
//! A vNIC's port is a link in each direction between the VM and the virtual switch; the physical path of the
//! NIC that the vNIC is mapped to follows. With a hard cap the port has the vNIC's share of the VM's rate.
//! With borrowing the port only hands packets over, faster than any NIC sends, so that a VM alone on a NIC waits in
//! its own bucket, too; and each NIC serves the VMs by hierarchical token buckets:
//! every VM is guaranteed its share and may use what is idle.

use vmcc_scenario::model::{Marking, Share, VirtualHost};
use vmcc_units::BitsPerSec;

use super::fabric::{Builder, Fabric, FabricError, NamedPath, Router, VmPorts, Way, span};
use super::queue::{Port, limit, loss};
use crate::net::{LinkSpec, NodeId, QueueSpec, ShaperClass, Threshold};
use crate::packet::LinkId;
use crate::time::Span;

pub(crate) fn build(mut builder: Builder, t: &VirtualHost) -> Result<Fabric, FabricError> {
    let base_rtt = span(t.path_delay).times(2);
    builder.fabric.base_rtt = base_rtt;
    let (vms, clients) = hosts(&mut builder, t);
    let switch = builder.fabric.net.node();
    let mut ports = VmPorts { up: Vec::new(), down: Vec::new(), nics: Vec::new(), clients: Vec::new() };
    for i in 0..t.nics as usize {
        let far = if let [only] = clients[..] { only } else { builder.fabric.net.node() };
        let name = vmcc_scenario::model::path_name(i);
        let (out, home) = physical(&mut builder, t, &name, (switch, far), base_rtt)?;
        builder.fabric.links.insert(name.clone(), vec![out, home]);
        builder.fabric.paths.push(NamedPath { name, queue: out, links: vec![out, home] });
        ports.nics.push((out, home));
        ports.clients.push(fan_out(&mut builder, t, far, &clients)?);
    }
    let queue = port_queue(&builder, t, base_rtt)?;
    for vm in vms {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for _ in 0..t.vnics() {
            let (there, back) = builder.duplex((vm, switch), port_rate(t), Span::ZERO, &queue)?;
            up.push(there);
            down.push(back);
        }
        ports.up.push(up);
        ports.down.push(down);
    }
    bottleneck_queues(&mut builder, t, &ports);
    let nic_of_vnic = (0..t.vnics()).map(|vnic| t.nic(vnic)).collect();
    let borrowing = t.share == Share::Htb;
    builder.fabric.router = Router::VirtualHost { ports, vms: t.vms as usize, nic_of_vnic, borrowing };
    Ok(builder.fabric)
}

fn hosts(builder: &mut Builder, t: &VirtualHost) -> (Vec<NodeId>, Vec<NodeId>) {
    let vm_rate = match t.share {
        Share::Hard => t.vm_rate,
        Share::Htb => BitsPerSec::new(t.path_rate.get().saturating_mul(u64::from(t.nics))),
    };
    let vms = (0..t.vms).map(|i| builder.host(format!("vm{i}"), vm_rate)).collect();
    let all = BitsPerSec::new(t.path_rate.get().saturating_mul(u64::from(t.nics)));
    let clients = t.client_names().into_iter().map(|name| builder.host(name, all)).collect();
    (vms, clients)
}

/// How much faster than a NIC a port is that only hands packets over.
const HANDING_OVER: u64 = 10;

/// What a vNIC's port can carry.
fn port_rate(t: &VirtualHost) -> BitsPerSec {
    match t.share {
        Share::Hard => BitsPerSec::new(t.vm_rate.get() / u64::from(t.vnics())),
        Share::Htb => BitsPerSec::new(t.path_rate.get().saturating_mul(HANDING_OVER)),
    }
}

fn port_queue(builder: &Builder, t: &VirtualHost, base_rtt: Span) -> Result<QueueSpec, FabricError> {
    // With borrowing the VM waits in its bucket at the NIC; its own port only hands packets over.
    let marking = if t.share == Share::Htb { &Marking::None } else { &t.marking };
    let (rate, mtu) = (port_rate(t), builder.mtu);
    Port { rate, buffer: t.buffer, marking, queue: &t.queue, mtu, base_rtt }.spec()
}

/// A NIC's path to the far end, both directions.
fn physical(
    builder: &mut Builder,
    t: &VirtualHost,
    name: &str,
    (switch, far): (NodeId, NodeId),
    base_rtt: Span,
) -> Result<(LinkId, LinkId), FabricError> {
    let plain = vmcc_scenario::model::Queue::default();
    let port = Port {
        rate: t.path_rate,
        buffer: t.path_buffer,
        marking: &t.path_marking,
        queue: &plain,
        mtu: builder.mtu,
        base_rtt,
    };
    let sending = match t.share {
        Share::Hard => port.spec()?,
        Share::Htb => buckets(t, builder, base_rtt)?,
    };
    let spec = |from, to, way, queue| LinkSpec {
        name: Some(format!("{name}/{way}")),
        loss: loss(&t.path_loss),
        ..LinkSpec::new(from, to, t.path_rate.get(), span(t.path_delay), queue)
    };
    let out = builder.link(spec(switch, far, "there", sending))?;
    let home = builder.link(spec(far, switch, "back", port.spec()?))?;
    Ok((out, home))
}

/// One leaf per VM, guaranteed the VM's share of this NIC, all lending to each other.
fn buckets(t: &VirtualHost, builder: &Builder, base_rtt: Span) -> Result<QueueSpec, FabricError> {
    let capacity = t.path_rate.get();
    let weights: u64 = (0..t.vms).map(|vm| u64::from(t.weight(vm))).sum();
    let leaf = |vm: u32| {
        let share = u128::from(t.vm_rate.get()) * u128::from(t.weight(vm)) * u128::from(t.vms)
            / u128::from(weights.max(1))
            / u128::from(t.nics);
        let guarantee_bps = u64::try_from(share).unwrap_or(capacity).clamp(2_000, capacity);
        ShaperClass {
            parent: Some(0),
            guarantee_bps,
            ceiling_bps: capacity,
            burst_bytes: 2 * builder.mtu.get(),
            limit: limit(t.buffer),
            mark: None,
        }
    };
    let root = ShaperClass {
        parent: None,
        guarantee_bps: capacity,
        ceiling_bps: capacity,
        burst_bytes: 2 * builder.mtu.get(),
        limit: limit(t.buffer),
        mark: None,
    };
    let mut classes = vec![root];
    for vm in 0..t.vms {
        let mut class = leaf(vm);
        class.mark = leaf_mark(t, builder, class.guarantee_bps, base_rtt)?;
        classes.push(class);
    }
    Ok(QueueSpec::Shaper { classes })
}

fn leaf_mark(
    t: &VirtualHost,
    builder: &Builder,
    guarantee_bps: u64,
    base_rtt: Span,
) -> Result<Option<Threshold>, FabricError> {
    let rate = BitsPerSec::new(guarantee_bps);
    let port =
        Port { rate, buffer: t.buffer, marking: &t.marking, queue: &t.queue, mtu: builder.mtu, base_rtt };
    match &t.marking {
        Marking::None => Ok(None),
        Marking::Threshold(rule) => Ok(Some(port.threshold(rule.at))),
        Marking::MqEcn(rule) => Ok(Some(Threshold::Bytes(port.port_bytes(rule.lambda, rule.rtt)))),
        Marking::Red(_) | Marking::Tcn(_) => Err(FabricError::Unsupported {
            what: "marking by RED or TCN in hierarchical token buckets",
            remedy: "use the rule threshold or mq-ecn with share = \"htb\"",
        }),
    }
}

/// Links from a path's far end to each of several clients.
fn fan_out(
    builder: &mut Builder,
    t: &VirtualHost,
    far: NodeId,
    clients: &[NodeId],
) -> Result<Vec<(LinkId, LinkId)>, FabricError> {
    if clients.len() == 1 {
        return Ok(Vec::new());
    }
    let queue = QueueSpec::Fifo { limit: limit(t.path_buffer), mark: None };
    let mut links = Vec::new();
    for &client in clients {
        links.push(builder.duplex((far, client), t.path_rate, Span::ZERO, &queue)?);
    }
    Ok(links)
}

/// A path's queue in results is where its packets wait: with a hard cap the ports of the vNICs, of which the
/// first stands for all.
fn bottleneck_queues(builder: &mut Builder, t: &VirtualHost, ports: &VmPorts) {
    if t.share == Share::Htb {
        return;
    }
    for (nic, path) in builder.fabric.paths.iter_mut().enumerate() {
        let mapped = (0..t.vnics()).filter(|vnic| t.nic(*vnic) as usize == nic);
        let vnics: Vec<usize> = mapped.map(|vnic| vnic as usize).collect();
        if let (Some(&first), Some(vm)) = (vnics.first(), ports.up.first()) {
            path.queue = vm[first];
        }
        for (up, down) in ports.up.iter().zip(&ports.down) {
            path.links.extend(vnics.iter().flat_map(|&vnic| [up[vnic], down[vnic]]));
        }
    }
}

/// The ways of one vNIC through one NIC to one client, and back.
pub(crate) fn through(ports: &VmPorts, vm: usize, vnic: usize, nic: usize, client: usize) -> Way {
    let (out, home) = ports.nics[nic];
    let last = ports.clients[nic].get(client);
    let forward = [Some(ports.up[vm][vnic]), Some(out), last.map(|l| l.0)];
    let reverse = [last.map(|l| l.1), Some(home), Some(ports.down[vm][vnic])];
    Way {
        path: Some(vmcc_scenario::model::path_name(nic)),
        forward: forward.into_iter().flatten().collect(),
        reverse: reverse.into_iter().flatten().collect(),
    }
}

pub(crate) fn ways(ports: &VmPorts, vms: usize, nic_of_vnic: &[u32], from: usize, to: usize) -> Vec<Way> {
    let each = |vm: usize, client: usize| {
        nic_of_vnic.iter().enumerate().map(move |(vnic, nic)| through(ports, vm, vnic, *nic as usize, client))
    };
    let turned = |way: Way| Way { forward: way.reverse, reverse: way.forward, ..way };
    match (from < vms, to < vms) {
        (true, false) => each(from, to - vms).collect(),
        (false, true) => each(to, from - vms).map(turned).collect(),
        // Two VMs talk through the virtual switch alone, each on the vNIC of the same number.
        (true, true) => (0..nic_of_vnic.len())
            .map(|vnic| Way {
                path: Some(vmcc_scenario::model::path_name(nic_of_vnic[vnic] as usize)),
                forward: vec![ports.up[from][vnic], ports.down[to][vnic]],
                reverse: vec![ports.up[to][vnic], ports.down[from][vnic]],
            })
            .collect(),
        (false, false) => Vec::new(),
    }
}
