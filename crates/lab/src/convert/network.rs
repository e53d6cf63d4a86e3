//! Topologies.

use super::{OWN_DELAY, refuse};
use crate::Error;
use crate::spec::{Layout, Path, Shape, Sharing, VirtualHost};
use vmcc_scenario::model;
use vmcc_scenario::model::{Discipline, LinkSettings, Loss, Marking, Queue, Share, Topology};
use vmcc_units::{BitsPerSec, Nanos};

pub(super) fn convert(topology: &Topology) -> Result<(Layout, Vec<Path>), Error> {
    match topology {
        Topology::ParallelPaths(t) => {
            let path = |(name, link): (String, LinkSettings)| parallel(name, &link);
            Ok((Layout::ParallelPaths, t.links().into_iter().map(path).collect::<Result<_, _>>()?))
        }
        Topology::VirtualHost(t) => virtual_host(t),
        _ => {
            refuse("topology.kind", "only \"parallel-paths\" and \"virtual-host\" are built from namespaces")
        }
    }
}

fn parallel(name: String, link: &LinkSettings) -> Result<Path, Error> {
    if !link.jitter.is_zero() {
        return refuse("topology.jitter", format!("jitter on path {name}"));
    }
    no_loss(&link.loss, "topology.loss")?;
    let shape = shape(link.rate, link.buffer, &link.marking, &link.queue, "topology.marking")?;
    Ok(Path { name, delay: delay(link.delay), shape: Some(shape) })
}

fn no_loss(loss: &Loss, key: &str) -> Result<(), Error> {
    if loss.probability == 0.0 { Ok(()) } else { refuse(key, "random loss") }
}

fn delay(delay: Nanos) -> Nanos {
    if delay <= OWN_DELAY { Nanos::ZERO } else { delay }
}

fn shape(
    rate: BitsPerSec,
    buffer: vmcc_units::Limit,
    marking: &Marking,
    queue: &Queue,
    key: &str,
) -> Result<Shape, Error> {
    if matches!(marking, Marking::Red(_)) {
        return refuse(key, "rule \"red\"; ports mark by \"threshold\", \"mq-ecn\" or \"tcn\"");
    }
    if queue.weights.len() > vmcc_port::MAX_CLASSES {
        let problem =
            format!("{} queues; a port has at most {}", queue.weights.len(), vmcc_port::MAX_CLASSES);
        return refuse("topology.queue.weights", problem);
    }
    Ok(Shape { rate, buffer, marking: *marking, queue: queue.clone() })
}

fn virtual_host(t: &model::VirtualHost) -> Result<(Layout, Vec<Path>), Error> {
    no_loss(&t.path_loss, "topology.path_loss")?;
    let nic_of_vnic: Vec<usize> = (0..t.vnics()).map(|vnic| t.nic(vnic) as usize).collect();
    let sharing = match t.share {
        Share::Hard => Sharing::Hard(port_of_vnic(t)?),
        Share::Htb if t.queue.kind != Discipline::Fifo => {
            return refuse("topology.queue", "a NIC's port has one queue per VM where VMs borrow");
        }
        Share::Htb => Sharing::Borrowing(t.guarantees()),
    };
    let layout = VirtualHost { vms: t.vms as usize, nic_of_vnic, sharing };
    let shape = path_shape(t)?;
    let path = |nic| Path { name: model::path_name(nic), delay: delay(t.path_delay), shape: shape.clone() };
    Ok((Layout::VirtualHost(layout), (0..t.nics as usize).map(path).collect()))
}

fn port_of_vnic(t: &model::VirtualHost) -> Result<Shape, Error> {
    shape(t.vnic_rate(), t.buffer, &t.marking, &t.queue, "topology.marking")
}

/// The link behind a NIC. With hard caps it is shaped only where the VMs together could fill it, or where it
/// marks: otherwise no queue builds there. With borrowing it is where the VMs meet.
fn path_shape(t: &model::VirtualHost) -> Result<Option<Shape>, Error> {
    if t.share == Share::Htb {
        if t.path_marking != Marking::None {
            return refuse("topology.path_marking", "the NIC's port marks for the VMs that borrow there");
        }
        return shape(t.path_rate, t.buffer, &t.marking, &Queue::default(), "topology.marking").map(Some);
    }
    let fed = u128::from(t.vm_rate.get()) * u128::from(t.vms);
    if fed <= u128::from(t.path_rate.get()) && t.path_marking == Marking::None {
        return Ok(None);
    }
    shape(t.path_rate, t.path_buffer, &t.path_marking, &Queue::default(), "topology.path_marking").map(Some)
}
