//! Virtual machines behind a virtual switch.
//!
//! A vNIC's port is a link in each direction between the VM and the virtual switch; the physical path of the
//! NIC that the vNIC is mapped to follows. With a hard cap the port has the vNIC's share of the VM's rate.
//! With borrowing the port only hands packets over, faster than any NIC sends, so that a VM alone on a NIC waits in
//! its own bucket, too; and each NIC serves the VMs by hierarchical token buckets:
//! every VM is guaranteed its share and may use what is idle.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos};

use super::{Ends, Kind, default_access_buffer, default_buffer, numbered, path_name, rate_times, times};
use crate::check::{self, Check, MIN_RATE, require};
use crate::{
    Builder, Discipline, Draw, Guarantee, HostId, LinkId, LinkSettings, Loss, Marking, Network, NodeId,
    PathId, Queue, RoutePair, Routes,
};

/// Rate of a port that only passes packets on, in multiples of a NIC's.
const PASS_THROUGH_FACTOR: u64 = 10;

/// Use of bandwidth that other VMs leave idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// No: the VM's rate is a cap, split evenly over its vNICs.
    #[default]
    Hard,
    /// Yes: the VM's rate is a guarantee; hierarchical token buckets lend what is idle on the NIC.
    Htb,
}

/// Hosts `vm0`, `vm1`, ... behind one virtual switch, and `client` (or `client0`, ...) behind the network.
///
/// Each vNIC has a port on the virtual switch; the switch forwards to the physical NICs `nic0`, `nic1`, ...,
/// each the start of one disjoint path (`a`, `b`, ...) to the clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VirtualHost {
    /// Virtual machines.
    #[schemars(range(min = 1, max = 65536))]
    pub vms: u32,
    /// Physical NICs, and so paths.
    #[schemars(range(min = 1, max = 64))]
    pub nics: u32,
    /// vNICs of each VM. Absent: one per NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub vnics: Option<u32>,
    /// The NIC of each vNIC of every VM, counted from 0. Absent: vNIC j uses NIC j modulo `nics`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic_of_vnic: Option<Vec<u32>>,
    /// Hosts at the far end: `client` if one, else `client0`, `client1`, ...
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 65536))]
    pub clients: u32,
    /// The rate of one VM, sent and received, over all its vNICs.
    pub vm_rate: BitsPerSec,
    /// Use of bandwidth that other VMs leave idle.
    #[serde(default)]
    pub share: Share,
    /// The weight of each VM where VMs compete. Absent: equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Vec<u32>>,
    /// The tail-drop buffer of each vNIC's port.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// Marking rule of the vNICs' ports.
    #[serde(default)]
    pub marking: Marking,
    /// The queues of each vNIC's port.
    #[serde(default)]
    pub queue: Queue,
    /// The rate of each path, in each direction.
    pub path_rate: BitsPerSec,
    /// The one-way delay of each path.
    pub path_delay: Nanos,
    /// The buffer at each end of a path.
    #[serde(default = "default_access_buffer")]
    pub path_buffer: Limit,
    /// Marking rule of the paths' queues.
    #[serde(default)]
    pub path_marking: Marking,
    /// Packets lost on a path, in each direction.
    #[serde(default)]
    pub path_loss: Loss,
}

fn one() -> u32 {
    1
}

impl VirtualHost {
    /// vNICs of each VM.
    pub fn vnics(&self) -> u32 {
        self.vnics.unwrap_or(self.nics)
    }
    /// The NIC that a vNIC uses at the start of a run.
    pub fn nic(&self, vnic: u32) -> u32 {
        match self.nic_of_vnic.as_ref().and_then(|map| map.get(vnic as usize)) {
            Some(nic) => *nic,
            None => vnic % self.nics.max(1),
        }
    }
    /// The weight of a VM where VMs compete.
    pub fn weight(&self, vm: u32) -> u32 {
        self.weights.as_ref().and_then(|w| w.get(vm as usize)).copied().unwrap_or(1)
    }
}

impl VirtualHost {
    /// `client`, or `client0`, `client1`, ...
    fn client_names(&self) -> Vec<String> {
        if self.clients == 1 { vec!["client".into()] } else { numbered("client", self.clients) }
    }

    /// Guarantee of each VM at a NIC where VMs borrow: its rate, by weight, over the NICs. At least what can be shaped,
    /// and no more than the NIC has.
    pub fn guarantees(&self) -> Vec<Guarantee> {
        let weights: u128 = (0..self.vms).map(|vm| u128::from(self.weight(vm))).sum();
        let guarantee = |vm: u32| {
            let weight = self.weight(vm);
            let share = u128::from(self.vm_rate.get()) * u128::from(weight) * u128::from(self.vms)
                / weights.max(1)
                / u128::from(self.nics.max(1));
            let rate = u64::try_from(share).map_or(self.path_rate, BitsPerSec::new);
            Guarantee { rate: rate.max(MIN_RATE).min(self.path_rate), weight }
        };
        (0..self.vms).map(guarantee).collect()
    }

    /// Rate of a vNIC's port.
    pub fn vnic_rate(&self) -> BitsPerSec {
        match self.share {
            Share::Hard => BitsPerSec::new(self.vm_rate.get() / u64::from(self.vnics().max(1))),
            Share::Htb => rate_times(self.path_rate, PASS_THROUGH_FACTOR),
        }
    }

    /// A vNIC's port. With borrowing the VM waits in its bucket at the NIC, and its own port does not mark.
    fn vnic_port(&self) -> LinkSettings {
        let marking = if self.share == Share::Htb { Marking::None } else { self.marking };
        LinkSettings::plain(self.vnic_rate(), Nanos::ZERO, self.buffer).with_queues(marking, &self.queue)
    }

    /// The link behind a NIC.
    fn path(&self) -> LinkSettings {
        let plain = LinkSettings::plain(self.path_rate, self.path_delay, self.path_buffer);
        LinkSettings { loss: self.path_loss, ..plain.with_queues(self.path_marking, &Queue::default()) }
    }

    /// A NIC's own port: where VMs borrow, it is where they wait and are marked.
    fn nic_port(&self) -> LinkSettings {
        match self.share {
            Share::Hard => self.path(),
            Share::Htb => LinkSettings { buffer: self.buffer, marking: self.marking, ..self.path() },
        }
    }

    fn add_hosts(&self, builder: &mut Builder) -> (Vec<NodeId>, Vec<NodeId>) {
        let all = rate_times(self.path_rate, u64::from(self.nics));
        let vm_rate = if self.share == Share::Hard { self.vm_rate } else { all };
        let vms = numbered("vm", self.vms).into_iter().map(|name| builder.host(name, vm_rate)).collect();
        if self.share == Share::Htb {
            builder.hosts().iter_mut().zip(0..).for_each(|(host, vm)| host.class = Some(vm));
        }
        let clients = self.client_names().into_iter().map(|name| builder.host(name, all)).collect();
        (vms, clients)
    }

    /// The NICs, their paths, and from the far ends to each of several clients.
    fn add_nics(&self, builder: &mut Builder, switch: NodeId, clients: &[NodeId], vms: &mut Vms) {
        let rtt = times(self.path_delay, 2);
        let guarantees = if self.share == Share::Htb { self.guarantees() } else { Vec::new() };
        let sending = builder.lending_port(self.nic_port(), rtt, guarantees);
        let coming = builder.port(self.path(), rtt);
        let fan = builder.port(LinkSettings::plain(self.path_rate, Nanos::ZERO, self.path_buffer), rtt);
        for nic in 0..self.nics as usize {
            let only = if let [only] = clients { Some(*only) } else { None };
            let far = only.unwrap_or_else(|| builder.node(format!("far{nic}")));
            let name = path_name(nic);
            let (out, home) = builder.named(&name, (switch, far), (sending, coming));
            builder.cable(name.as_str(), [out, home]);
            builder.path(name, out, vec![out, home]);
            vms.nics.push((out, home));
            let several = if only.is_some() { &[] } else { clients };
            vms.clients.push(several.iter().map(|client| builder.duplex((far, *client), fan)).collect());
        }
    }

    /// A path's queue in results is where its packets wait: with a hard cap the ports of the vNICs, of which the
    /// first stands for all.
    fn name_queues(&self, builder: &mut Builder, vms: &Vms) {
        if self.share == Share::Htb {
            return;
        }
        for (nic, path) in builder.paths().iter_mut().enumerate() {
            let mapped = vms.nic_of_vnic.iter().enumerate().filter(|(_, mapped)| **mapped == nic);
            let vnics: Vec<usize> = mapped.map(|(vnic, _)| vnic).collect();
            if let (Some(&first), Some(vm)) = (vnics.first(), vms.vnics.first()) {
                path.queue = vm[first].0;
            }
            for ports in &vms.vnics {
                path.links.extend(vnics.iter().flat_map(|&vnic| [ports[vnic].0, ports[vnic].1]));
            }
        }
    }
}

impl Kind for VirtualHost {
    fn ends(&self) -> Ends {
        Ends::two_sides(numbered("vm", self.vms), self.client_names())
    }

    fn paths(&self) -> Vec<String> {
        (0..self.nics as usize).map(path_name).collect()
    }

    fn queues(&self) -> Vec<&Queue> {
        vec![&self.queue]
    }

    fn check(&self, mtu: Bytes) -> Check {
        self.check_counts()?;
        check::rate(self.vm_rate, "topology.vm_rate")?;
        check::rate(self.path_rate, "topology.path_rate")?;
        check::delay(self.path_delay, "topology.path_delay")?;
        check::buffer(self.buffer, mtu, "topology.buffer")?;
        check::buffer(self.path_buffer, mtu, "topology.path_buffer")?;
        check::queue(&self.queue, "topology.queue")?;
        check::loss(&self.path_loss, "topology.path_loss")?;
        let vnic_rate = BitsPerSec::new(self.vm_rate.get() / u64::from(self.vnics()));
        check::rate(vnic_rate, "topology.vm_rate")?;
        check::shares(&self.queue, vnic_rate, "topology.queue")?;
        check::marking(&self.marking, vnic_rate, self.buffer, mtu, "topology.marking")?;
        let path = (&self.path_marking, self.path_rate, self.path_buffer);
        check::marking(path.0, path.1, path.2, mtu, "topology.path_marking")?;
        if self.share == Share::Htb { self.check_borrowing() } else { Ok(()) }
    }

    fn network(&self) -> Network {
        let base_rtt = times(self.path_delay, 2);
        let mut builder = Builder::new(base_rtt);
        let (hosts, clients) = self.add_hosts(&mut builder);
        let switch = builder.node("switch");
        let nic_of_vnic = (0..self.vnics()).map(|vnic| self.nic(vnic) as usize).collect();
        let mut vms = Vms { vnics: Vec::new(), nics: Vec::new(), clients: Vec::new(), nic_of_vnic };
        self.add_nics(&mut builder, switch, &clients, &mut vms);
        let port = builder.port(self.vnic_port(), base_rtt);
        for vm in hosts {
            vms.vnics.push((0..self.vnics()).map(|_| builder.duplex((vm, switch), port)).collect());
        }
        self.name_queues(&mut builder, &vms);
        builder.finish(vms)
    }

    /// Classes of a path: one per VM where VMs borrow from each other.
    fn path_classes(&self) -> Vec<String> {
        match self.share {
            Share::Htb => numbered("vm", self.vms),
            Share::Hard => (0..self.queue.weights.len()).map(|class| class.to_string()).collect(),
        }
    }
}

impl VirtualHost {
    fn check_counts(&self) -> Check {
        check::count(self.vms, "vms")?;
        check::count(self.clients, "clients")?;
        require((1..=64).contains(&self.nics), "topology.nics", "from 1 to 64 NICs are possible")?;
        require((1..=64).contains(&self.vnics()), "topology.vnics", "from 1 to 64 vNICs are possible")?;
        if let Some(map) = &self.nic_of_vnic {
            let complete = map.len() == self.vnics() as usize;
            let expected = format!("expected one NIC for each of the {} vNICs", self.vnics());
            require(complete, "topology.nic_of_vnic", &expected)?;
            for (index, nic) in map.iter().enumerate() {
                let message = format!("there are {} NICs, counted from 0", self.nics);
                require(*nic < self.nics, &format!("topology.nic_of_vnic[{index}]"), &message)?;
            }
        }
        let Some(weights) = &self.weights else { return Ok(()) };
        let complete =
            weights.len() == self.vms as usize && weights.iter().all(|w| (1..=1_000_000).contains(w));
        require(complete, "topology.weights", &format!("expected {} weights from 1 to 1000000", self.vms))
    }

    fn check_borrowing(&self) -> Check {
        let own = self.queue.kind == Discipline::Fifo;
        require(own, "topology.queue", "share = \"htb\" has a queue per VM already; leave `queue` out")?;
        let leaves = self.vms <= 250;
        require(leaves, "topology.vms", "share = \"htb\" is possible for at most 250 VMs")?;
        let promised = self.vm_rate.checked_mul(u64::from(self.vms));
        let capacity = self.path_rate.checked_mul(u64::from(self.nics));
        let kept = promised.zip(capacity).is_some_and(|(p, c)| p <= c);
        require(
            kept,
            "topology.vm_rate",
            "share = \"htb\" guarantees this to every VM, more than all NICs have",
        )
    }
}

/// Every vNIC's routes through every NIC. The first hosts are the VMs.
#[derive(Debug)]
struct Vms {
    /// Sending and receiving port of each vNIC of each VM.
    vnics: Vec<Vec<(LinkId, LinkId)>>,
    /// Sending and receiving link of each NIC.
    nics: Vec<(LinkId, LinkId)>,
    /// Last link to each client and its first link back, per NIC; empty with one client.
    clients: Vec<Vec<(LinkId, LinkId)>>,
    nic_of_vnic: Vec<usize>,
}

impl Vms {
    /// One vNIC's route through one NIC to one client, and back.
    fn through(&self, vm: usize, vnic: usize, nic: usize, client: usize) -> RoutePair {
        let (out, home) = self.nics[nic];
        let last = self.clients[nic].get(client);
        let forward = [Some(self.vnics[vm][vnic].0), Some(out), last.map(|l| l.0)];
        let reverse = [last.map(|l| l.1), Some(home), Some(self.vnics[vm][vnic].1)];
        RoutePair {
            path: Some(path_of(nic)),
            forward: forward.into_iter().flatten().collect(),
            reverse: reverse.into_iter().flatten().collect(),
        }
    }

    /// Two VMs talk through the virtual switch alone, each on the vNIC of the same number.
    fn inside(&self, from: usize, to: usize, vnic: usize) -> RoutePair {
        let (from, to) = (self.vnics[from][vnic], self.vnics[to][vnic]);
        RoutePair {
            path: Some(path_of(self.nic_of_vnic[vnic])),
            forward: vec![from.0, to.1],
            reverse: vec![to.0, from.1],
        }
    }
}

fn path_of(nic: usize) -> PathId {
    PathId(u32::try_from(nic).unwrap_or(u32::MAX))
}

impl Routes for Vms {
    fn between(&self, from: HostId, to: HostId, _count: usize, _draw: Draw<'_>) -> Vec<RoutePair> {
        let (from, to, vms) = (from.index(), to.index(), self.vnics.len());
        let vnics = || self.nic_of_vnic.iter().copied().enumerate();
        match (from < vms, to < vms) {
            (true, false) => vnics().map(|(vnic, nic)| self.through(from, vnic, nic, to - vms)).collect(),
            (false, true) => {
                vnics().map(|(vnic, nic)| self.through(to, vnic, nic, from - vms).reversed()).collect()
            }
            (true, true) => vnics().map(|(vnic, _)| self.inside(from, to, vnic)).collect(),
            (false, false) => Vec::new(),
        }
    }

    /// Between two VMs nothing leaves the switch.
    fn via_nic(&self, vm: HostId, vnic: usize, nic: usize, peer: HostId) -> Option<RoutePair> {
        let client = peer.index().checked_sub(self.vnics.len())?;
        (vm.index() < self.vnics.len()).then(|| self.through(vm.index(), vnic, nic, client))
    }
}
