//! Networks. Each builder names its hosts, links and paths, so that traffic, events and claims can refer to them.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use vmcc_units::{BitsPerSec, Limit, Nanos, Packets};

use super::link::{Loss, Marking, Queue};
use super::tagged::tagged;

/// The network of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Topology {
    /// Two hosts, several disjoint paths.
    ParallelPaths(ParallelPaths),
    /// Pairs of hosts across one bottleneck link.
    Dumbbell(Dumbbell),
    /// Virtual machines behind the virtual switch of one host with several NICs.
    VirtualHost(VirtualHost),
    /// Two pods of servers with two NICs each.
    TwoPod(TwoPod),
    /// A k-ary fat tree.
    FatTree(FatTree),
    /// Free nodes and links.
    Graph(Graph),
}

tagged!(Topology, "kind", "a topology", {
    "parallel-paths" => ParallelPaths(ParallelPaths),
    "dumbbell" => Dumbbell(Dumbbell),
    "virtual-host" => VirtualHost(VirtualHost),
    "two-pod" => TwoPod(TwoPod),
    "fat-tree" => FatTree(FatTree),
    "graph" => Graph(Graph),
});

fn default_buffer() -> Limit {
    Limit::Packets(Packets::new(100))
}

fn default_access_buffer() -> Limit {
    Limit::Packets(Packets::new(1000))
}

/// Hosts `client` and `server`, joined by paths that share nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParallelPaths {
    /// How many (named `a`, `b`, ...), or a list of named paths with their differences.
    pub paths: Paths,
    /// The rate of every path, in each direction.
    pub rate: BitsPerSec,
    /// The one-way delay of every path.
    pub delay: Nanos,
    /// The buffer at each end of every path.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// When the queues mark.
    #[serde(default)]
    pub marking: Marking,
    /// The queues of each port.
    #[serde(default)]
    pub queue: Queue,
    /// Packets lost on the way, in each direction.
    #[serde(default)]
    pub loss: Loss,
    /// The most of a random extra delay, uniform from none; packets are not reordered.
    #[serde(default)]
    pub jitter: Nanos,
}

/// The paths of a `parallel-paths` topology.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Paths(pub Vec<PathSpec>);

/// One path and how it differs from the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathSpec {
    /// Its name in traffic, events and results.
    pub name: String,
    /// Its rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitsPerSec>,
    /// Its one-way delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Nanos>,
    /// Its buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Limit>,
    /// Its marking rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marking: Option<Marking>,
    /// Its loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Its jitter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Nanos>,
}

/// The name of the `index`-th path or route that was not named: `a`, `b`, ..., `z`, `p26`, ...
pub fn path_name(index: usize) -> String {
    match u8::try_from(index) {
        Ok(i) if i < 26 => char::from(b'a' + i).to_string(),
        _ => format!("p{index}"),
    }
}

impl<'de> Deserialize<'de> for Paths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PathsVisitor;
        impl<'de> Visitor<'de> for PathsVisitor {
            type Value = Paths;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of paths from 1 to 64, or a list of tables with a `name`")
            }
            fn visit_u64<E: serde::de::Error>(self, count: u64) -> Result<Paths, E> {
                if !(1..=64).contains(&count) {
                    return Err(E::invalid_value(serde::de::Unexpected::Unsigned(count), &self));
                }
                let unnamed = |i| PathSpec {
                    name: path_name(i),
                    rate: None,
                    delay: None,
                    buffer: None,
                    marking: None,
                    loss: None,
                    jitter: None,
                };
                Ok(Paths((0..count as usize).map(unnamed).collect()))
            }
            fn visit_i64<E: serde::de::Error>(self, count: i64) -> Result<Paths, E> {
                match u64::try_from(count) {
                    Ok(count) => self.visit_u64(count),
                    Err(_) => Err(E::invalid_value(serde::de::Unexpected::Signed(count), &self)),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Paths, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Paths)
            }
        }
        deserializer.deserialize_any(PathsVisitor)
    }
}

impl JsonSchema for Paths {
    fn schema_name() -> Cow<'static, str> {
        "Paths".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let list = generator.subschema_for::<Vec<PathSpec>>();
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 64 }, list] })
    }
}

/// Hosts `left0`, `left1`, ... and `right0`, `right1`, ... across one link, `bottleneck`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dumbbell {
    /// Hosts on each side.
    #[schemars(range(min = 1, max = 65536))]
    pub pairs: u32,
    /// The rate of the bottleneck, in each direction.
    pub rate: BitsPerSec,
    /// The one-way delay of the bottleneck.
    pub delay: Nanos,
    /// The buffer at each end of the bottleneck.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// When the bottleneck's queues mark.
    #[serde(default)]
    pub marking: Marking,
    /// The bottleneck's queues.
    #[serde(default)]
    pub queue: Queue,
    /// Packets lost at the bottleneck, in each direction.
    #[serde(default)]
    pub loss: Loss,
    /// The rate of the hosts' own links. Absent: the bottleneck's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_rate: Option<BitsPerSec>,
    /// The one-way delay of the hosts' own links.
    #[serde(default)]
    pub access_delay: Nanos,
    /// The buffer at each end of the hosts' own links.
    #[serde(default = "default_access_buffer")]
    pub access_buffer: Limit,
}

/// Whether a VM may use what other VMs leave idle.
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
    /// Whether a VM may use what other VMs leave idle.
    #[serde(default)]
    pub share: Share,
    /// The weight of each VM where VMs compete. Absent: equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Vec<u32>>,
    /// The tail-drop buffer of each vNIC's port.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// When the vNICs' ports mark.
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
    /// When the paths' queues mark.
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

/// Servers `p0s0`, ... (pod 0) and `p1s0`, ... (pod 1), each with NICs to different switches of its pod
/// (`p0t0`, `p0t1`, ...), and core links between the pods' switches of the same number (`core0`, `core1`, ...).
///
/// The link of server `p0s1`'s NIC 0 is named `p0s1.0`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TwoPod {
    /// Servers in each pod.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 65536))]
    pub servers_per_pod: u32,
    /// NICs of each server, and so switches of each pod.
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 64))]
    pub nics: u32,
    /// The rate of each NIC.
    pub rate: BitsPerSec,
    /// The one-way delay of each link.
    pub delay: Nanos,
    /// The buffer of each port.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// When the switches' queues mark.
    #[serde(default)]
    pub marking: Marking,
    /// The queues of each switch port.
    #[serde(default)]
    pub queue: Queue,
    /// The rate of each core link. Absent: a pod's servers on it never compete (`rate` x `servers_per_pod`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_rate: Option<BitsPerSec>,
    /// A limit on what each NIC sends (the tenant's rate limit).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic_limit: Option<BitsPerSec>,
    /// A limit on what all NICs of a server send together (as some clouds throttle).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_limit: Option<BitsPerSec>,
}

fn two() -> u32 {
    2
}

fn four() -> u32 {
    4
}

/// The k-ary fat tree (Al-Fares et al., SIGCOMM 2008): k^3/4 hosts `h0`, `h1`, ...; flows are spread by ECMP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FatTree {
    /// Ports of each switch; even, from 2 to 64.
    #[schemars(range(min = 2, max = 64), extend("multipleOf" = 2))]
    pub k: u32,
    /// The rate of every link, in each direction.
    pub rate: BitsPerSec,
    /// The one-way delay of every link.
    pub delay: Nanos,
    /// The buffer of every port.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// When the queues mark.
    #[serde(default)]
    pub marking: Marking,
    /// The queues of each port.
    #[serde(default)]
    pub queue: Queue,
}

impl FatTree {
    /// k^3/4 hosts; `k` is bounded by validation.
    pub fn hosts(&self) -> u32 {
        self.k.saturating_mul(self.k).saturating_mul(self.k) / 4
    }
}

/// How a graph's packets find their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// Over the shortest routes by number of links, equal ones chosen by hash.
    #[default]
    Ecmp,
    /// Only over the routes given.
    Explicit,
}

/// Nodes and links. A node is a host if it is in `hosts`, otherwise a switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// The nodes that send and receive.
    pub hosts: Vec<String>,
    /// The links; a node exists by being an end of one.
    pub links: Vec<GraphLink>,
    /// How packets find their way.
    #[serde(default)]
    pub routing: Routing,
    /// The routes of `explicit` routing, each usable in both directions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// One link of a graph, usable in both directions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphLink {
    /// Its name in events and results. Absent: `from-to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// One end.
    pub from: String,
    /// The other end.
    pub to: String,
    /// The rate in each direction.
    pub rate: BitsPerSec,
    /// The one-way delay.
    pub delay: Nanos,
    /// The buffer at each end.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// When its queues mark.
    #[serde(default)]
    pub marking: Marking,
    /// The queues at each end.
    #[serde(default)]
    pub queue: Queue,
    /// Packets lost on it, in each direction.
    #[serde(default)]
    pub loss: Loss,
    /// The most of a random extra delay, uniform from none; packets are not reordered.
    #[serde(default)]
    pub jitter: Nanos,
}

impl GraphLink {
    /// Its given name, or `from-to`.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("{}-{}", self.from, self.to))
    }
}

/// One explicit route: the nodes from one host to another, both included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Its name, as a path, in traffic and results. Absent: `a`, `b`, ... in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The nodes, in order.
    pub via: Vec<String>,
}
