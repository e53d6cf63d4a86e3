//! Leaves and spines: every leaf switch is joined to every spine switch, every host to one leaf. It is the folded Clos
//! network of most data centers today; Alizadeh et al. use it for CONGA (SIGCOMM 2014, section 5).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos};

use super::{Ends, Kind, default_buffer, numbered, times};
use crate::check::{self, Check};
use crate::{
    Area, Areas, Builder, Draw, HostId, IsDown, LinkId, LinkSettings, Marking, Network, NodeId, Queue,
    Reroute, RoutePair, Routes,
};

/// Hosts `h0`, `h1`, ..., leaf by leaf, and switches `leaf0`, ..., `spine0`, ...; flows are spread over the spines by
/// ECMP.
///
/// A host's link is named after it, the link of leaf 1 and spine 0 is `leaf1-spine0`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeafSpine {
    /// Leaf switches.
    #[schemars(range(min = 1, max = 64))]
    pub leaves: u32,
    /// Spine switches, and so routes between two leaves.
    #[schemars(range(min = 1, max = 64))]
    pub spines: u32,
    /// Hosts at each leaf.
    #[schemars(range(min = 1, max = 1024))]
    pub hosts_per_leaf: u32,
    /// The rate of every host's link, in each direction.
    pub rate: BitsPerSec,
    /// The rate of every link between a leaf and a spine. Absent: the hosts'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spine_rate: Option<BitsPerSec>,
    /// The one-way delay of every link.
    pub delay: Nanos,
    /// The buffer of every port.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// Marking rule of the switches' queues.
    #[serde(default)]
    pub marking: Marking,
    /// The queues of each switch port.
    #[serde(default)]
    pub queue: Queue,
    /// Time until flows are hashed around a link that fails, and back once it is repaired; `"never"`: they stay on it.
    #[serde(default)]
    pub reroute: Reroute,
}

impl LeafSpine {
    fn port(&self, rate: BitsPerSec) -> LinkSettings {
        LinkSettings::plain(rate, self.delay, self.buffer).with_queues(self.marking, &self.queue)
    }

    fn spine_rate(&self) -> BitsPerSec {
        self.spine_rate.unwrap_or(self.rate)
    }

    /// The links of each leaf to and from each spine.
    fn join_spines(&self, builder: &mut Builder, leaves: &[NodeId], base_rtt: Nanos) -> Vec<Vec<Cable>> {
        let spines: Vec<NodeId> =
            numbered("spine", self.spines).into_iter().map(|s| builder.switch(s, "spine")).collect();
        let port = builder.port(self.port(self.spine_rate()), base_rtt);
        let mut fabric = Vec::new();
        for (leaf, node) in leaves.iter().enumerate() {
            let mut cables = Vec::new();
            for (spine, other) in spines.iter().enumerate() {
                let cable = builder.duplex((*node, *other), port);
                builder.cable(format!("leaf{leaf}-spine{spine}"), [cable.0, cable.1]);
                cables.push(cable);
            }
            fabric.push(cables);
        }
        fabric
    }

    /// Leaves are areas with their hosts; the ports of the spines belong to the leaves they lead to.
    fn areas(&self) -> Areas {
        let leaf = |leaf| std::iter::repeat_n(Area::Of(leaf), self.hosts_per_leaf as usize + 1);
        let spines = std::iter::repeat_n(Area::Between, self.spines as usize);
        Areas { count: self.leaves, of_node: (0..self.leaves).flat_map(leaf).chain(spines).collect() }
    }
}

impl Kind for LeafSpine {
    fn ends(&self) -> Ends {
        Ends::all(numbered("h", self.leaves.saturating_mul(self.hosts_per_leaf)))
    }

    fn paths(&self) -> Vec<String> {
        Vec::new()
    }

    fn queues(&self) -> Vec<&Queue> {
        vec![&self.queue]
    }

    fn check(&self, mtu: Bytes) -> Check {
        let range = |count: u32, most: u32, key: &str| {
            let message = format!("from 1 to {most} are possible");
            check::require((1..=most).contains(&count), &format!("topology.{key}"), &message)
        };
        range(self.leaves, 64, "leaves")?;
        range(self.spines, 64, "spines")?;
        range(self.hosts_per_leaf, 1024, "hosts_per_leaf")?;
        check::rate(self.spine_rate(), "topology.spine_rate")?;
        self.port(self.rate).check(mtu, "topology")?;
        self.port(self.spine_rate()).check(mtu, "topology")
    }

    fn network(&self) -> Network {
        let base_rtt = times(self.delay, 8);
        let mut builder = Builder::new(base_rtt);
        // A host's own port drops at its end; only switches mark.
        let own = builder.port(LinkSettings::plain(self.rate, self.delay, self.buffer), base_rtt);
        let down = builder.port(self.port(self.rate), base_rtt);
        let (mut leaves, mut hosts) = (Vec::new(), Vec::new());
        for leaf in 0..self.leaves {
            let node = builder.switch(format!("leaf{leaf}"), "leaf");
            for host in 0..self.hosts_per_leaf {
                let name = format!("h{}", leaf * self.hosts_per_leaf + host);
                let end = builder.host(name.as_str(), self.rate);
                let cable = (builder.link(end, node, own), builder.link(node, end, down));
                builder.cable(name, [cable.0, cable.1]);
                hosts.push(cable);
            }
            leaves.push(node);
        }
        let fabric = self.join_spines(&mut builder, &leaves, base_rtt);
        builder.report_tiers();
        builder.cut(self.areas());
        builder.reroute(self.reroute);
        builder.finish(Clos { hosts, fabric, hosts_per_leaf: self.hosts_per_leaf as usize })
    }
}

/// Towards a spine, and back.
type Cable = (LinkId, LinkId);

#[derive(Debug)]
struct Clos {
    hosts: Vec<Cable>,
    /// By leaf and spine.
    fabric: Vec<Vec<Cable>>,
    hosts_per_leaf: usize,
}

impl Clos {
    fn one(&self, from: HostId, to: HostId, hash: u32) -> Vec<LinkId> {
        let leaf = |host: HostId| &self.fabric[host.index() / self.hosts_per_leaf];
        let (first, last) = (self.hosts[from.index()].0, self.hosts[to.index()].1);
        if from.index() / self.hosts_per_leaf == to.index() / self.hosts_per_leaf {
            return vec![first, last];
        }
        let spine = hash as usize % leaf(from).len();
        vec![first, leaf(from)[spine].0, leaf(to)[spine].1, last]
    }
}

impl Routes for Clos {
    /// By independent hashes; acknowledgments have hashes of their own.
    fn between(&self, from: HostId, to: HostId, count: usize, draw: Draw<'_>) -> Vec<RoutePair> {
        let mut one = |_| {
            let (there, back) = (draw(), draw());
            RoutePair { path: None, forward: self.one(from, to, there), reverse: self.one(to, from, back) }
        };
        (0..count).map(&mut one).collect()
    }

    fn avoiding(&self, from: HostId, to: HostId, is_down: IsDown<'_>, draw: Draw<'_>) -> Option<Vec<LinkId>> {
        let spines = self.fabric.first().map_or(0, Vec::len);
        let routes = (0..spines).map(|spine| self.one(from, to, spine as u32));
        let mut live: Vec<_> = routes.filter(|links| !links.iter().any(|link| is_down(*link))).collect();
        let chosen = draw() as usize % live.len().max(1);
        (chosen < live.len()).then(|| live.swap_remove(chosen))
    }
}
