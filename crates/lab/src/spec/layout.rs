//! Networks: paths, shaped ports, virtual machines.

use super::link::{Refusal, Shape, Wire};
use super::{Flow, LabSpec, Routed};
use crate::Error;
use vmcc_network::Guarantee;

/// vNICs of one run; each is two veth pairs and a bridge, and two cores serve them all.
const MAX_PORTS: usize = 32;

/// One direction of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// The port of the link. `None`: as fast as the machine forwards, where what feeds the link cannot fill it.
    pub shape: Option<Shape>,
    /// Impairments behind the port.
    pub wire: Wire,
}

/// A route between the hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// As results call it.
    pub name: String,
    /// From host 0's side to the other.
    pub out: Direction,
    /// The other direction.
    pub back: Direction,
}

/// The hosts and what is between them.
#[derive(Debug, Clone, PartialEq)]
pub enum Layout {
    /// Hosts 0 (`client`) and 1 (`server`), joined by the paths.
    ParallelPaths,
    /// Virtual machines behind the virtual switch of one host; each path begins at a physical NIC.
    VirtualHost(VirtualHost),
    /// Hosts and switches that route.
    Routed(Routed),
}

/// Virtual machines, their vNICs, and who is at the far end of the paths.
#[derive(Debug, Clone, PartialEq)]
pub struct VirtualHost {
    /// Hosts 0 to `vms` - 1 are virtual machines, the others are behind the network.
    pub vms: usize,
    /// The NIC, and so the path, of each vNIC of every VM at the start.
    pub nic_of_vnic: Vec<usize>,
    /// Sharing of the NICs between the VMs.
    pub sharing: Sharing,
}

/// Modes of sharing the NICs between the VMs.
#[derive(Debug, Clone, PartialEq)]
pub enum Sharing {
    /// Each vNIC's port is capped.
    Hard(Shape),
    /// Each NIC guarantees every VM a rate, by the VM's number, and lends what is idle.
    Borrowing(Vec<Guarantee>),
}

impl Layout {
    /// Subnets between the hosts, and so subflows of an MPTCP connection: one per path, or one per vNIC.
    pub(crate) fn subnets(&self, paths: usize) -> usize {
        match self {
            Self::ParallelPaths => paths,
            Self::VirtualHost(host) => host.nic_of_vnic.len(),
            Self::Routed(routed) => routed.routes.values().map(Vec::len).max().unwrap_or(0),
        }
    }

    /// Numbers of the elements that are limited, with their scenario keys, in a network of `paths` paths.
    pub(super) fn counts(&self, paths: usize) -> Vec<(usize, &'static str)> {
        let subnets = self.subnets(paths);
        match self {
            Self::ParallelPaths => vec![(paths, "topology.paths")],
            Self::VirtualHost(_) => vec![(paths, "topology.nics"), (subnets, "topology.vnics")],
            Self::Routed(routed) => vec![(subnets, routed.subnets_key)],
        }
    }

    /// The path that each subnet between two hosts takes at the start, of this many `paths`. From that number on they are
    /// routes that have no name.
    pub(crate) fn paths_between(&self, from: usize, to: usize, paths: usize) -> Vec<usize> {
        match self {
            Self::ParallelPaths => (0..paths).collect(),
            Self::VirtualHost(host) => host.nic_of_vnic.clone(),
            Self::Routed(routed) => {
                let routes = routed.routes(from, to).iter().enumerate();
                routes.map(|(subnet, pair)| pair.path.map_or(paths + subnet, |path| path.index())).collect()
            }
        }
    }
}

impl Path {
    /// One that is the same in both directions.
    pub fn alike(name: impl Into<String>, both: Direction) -> Self {
        Self { name: name.into(), out: both.clone(), back: both }
    }

    pub(super) fn check(&self) -> Result<(), Refusal> {
        for direction in [&self.out, &self.back] {
            direction.wire.check()?;
            direction.shape.as_ref().map_or(Ok(()), Shape::check)?;
        }
        Ok(())
    }
}

impl Layout {
    /// Data crosses the network: from one side to the other, if there are sides.
    pub(crate) fn check_direction(&self, flow: &Flow, hosts: usize, key: &str) -> Result<(), Error> {
        let left = |host: usize| match self {
            Self::ParallelPaths => host == 0,
            Self::VirtualHost(layout) => host < layout.vms,
            Self::Routed(_) => host == flow.from,
        };
        if flow.from >= hosts || flow.to >= hosts {
            return Err(Error::spec(key, format!("host number {} of {hosts}", flow.from.max(flow.to))));
        }
        if left(flow.from) == left(flow.to) {
            return Err(Error::NotExpressible {
                key: key.to_owned(),
                problem: "sender and receiver are on the same side of the network".to_owned(),
                remedy: "send from one side to the other, or use `--engine sim`".to_owned(),
            });
        }
        Ok(())
    }

    /// True if data of `flow` goes from host 0's side to the other.
    pub(crate) fn is_outward(&self, flow: &Flow) -> bool {
        match self {
            Self::ParallelPaths => flow.from == 0,
            Self::VirtualHost(layout) => flow.from < layout.vms,
            Self::Routed(_) => flow.from < flow.to,
        }
    }
}

impl VirtualHost {
    pub(crate) fn check(&self, spec: &LabSpec) -> Result<(), Error> {
        let ports = self.vms * self.nic_of_vnic.len();
        if self.vms == 0 || ports > MAX_PORTS || spec.hosts.len() > MAX_PORTS {
            let problem = format!("{ports} vNICs in all; the kernel engine takes 1 to {MAX_PORTS}");
            return Err(Error::spec("topology.vms", problem));
        }
        if self.nic_of_vnic.iter().any(|nic| *nic >= spec.paths.len()) {
            return Err(Error::spec("topology.nic_of_vnic", "it names a NIC that is not there"));
        }
        match &self.sharing {
            Sharing::Hard(shape) => shape.check().map_err(|(setting, problem)| {
                let key = if setting == "rate" { "vm_rate" } else { setting };
                Error::not_expressible(format!("topology.{key}"), problem)
            }),
            Sharing::Borrowing(_) if self.vms > vmcc_port::MAX_CLASSES => {
                let most = vmcc_port::MAX_CLASSES;
                let problem = format!("{} VMs borrow from each other; a port takes {most}", self.vms);
                Err(Error::spec("topology.vms", problem))
            }
            Sharing::Borrowing(_) => Ok(()),
        }
    }
}
