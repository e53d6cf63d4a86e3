//! Configuration of a port.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;
use vmcc_config::{Discipline, LambdaRule, Marking};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos, Packets};

/// Service queues of one port, at most.
pub const MAX_CLASSES: usize = 8;
/// Filters of one port, at most.
pub const MAX_FILTERS: usize = 32;
/// Priorities (`skb->priority`) that one port tells apart, at most.
pub const MAX_PRIORITIES: usize = 32;

/// One port: its rate, its service queues, and when they mark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// Rate of the port, a hard cap. Absent: that of the link; no queue builds on the port then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitsPerSec>,
    /// The VM that the port belongs to, if its ports share one budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmBudget>,
    /// Order in which the queues are served: `fifo` (one queue), `drr` (by weight) or `priority` (the first first). Absent:
    /// `drr` for several classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Discipline>,
    /// Bytes per round of a queue of weight 1. Absent: one packet of the port's MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantum: Option<Bytes>,
    /// Capacity of each queue.
    #[serde(default = "default_buffer")]
    pub buffer: Limit,
    /// Marking rule of the queues. Where a rule's `rtt` is absent, the RTT is measured from the traffic that passes. Absent:
    /// `mq-ecn` (`tcn` with `priority`) where queues of vmcc's own have a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marking: Option<Marking>,
    /// A measured RTT counts as no less than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_min: Option<Nanos>,
    /// A measured RTT counts as no more than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_max: Option<Nanos>,
    /// Treatment of packets without ECN where others are marked.
    #[serde(default)]
    pub not_ect: NotEct,
    /// The share of its buffer above which a queue that marks is overloaded: packets are dropped there with a probability
    /// that rises from 0 to 1 at its end, also those with ECN. 1: never.
    #[serde(default = "default_overload")]
    #[schemars(range(min = 0.5, max = 1))]
    pub overload: f64,
    /// Serve flows that send little before the others of their class, where that marks.
    #[serde(default = "default_sparse", skip_serializing_if = "is_default_sparse")]
    pub sparse: bool,
    /// Mark by a virtual queue that drains at this share of the real rate, instead of by the real queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.5, max = 1))]
    pub phantom: Option<f64>,
    /// Fields that may select a class besides addresses, protocols, ports and cgroups: those that a tenant writes, or that
    /// forwarding derives from them. Absent: `dscp` and `tunnel`; an empty list: none of them.
    #[serde(default = "default_trust", skip_serializing_if = "is_default_trust")]
    pub trust: Vec<Trust>,
    /// Scheduler of the queues.
    #[serde(default)]
    pub backend: Backend,
    /// The service queues; none stands for one that takes everything. Packets that no class selects go to the last.
    #[serde(default, rename = "class", skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassConfig>,
}

fn default_buffer() -> Limit {
    Limit::Packets(Packets::new(1000))
}

fn default_trust() -> Vec<Trust> {
    vec![Trust::Dscp, Trust::Tunnel]
}

fn is_default_trust(trust: &Vec<Trust>) -> bool {
    *trust == default_trust()
}

fn default_overload() -> f64 {
    0.75
}

fn default_sparse() -> bool {
    true
}

fn is_default_sparse(sparse: &bool) -> bool {
    *sparse == default_sparse()
}

fn one() -> u32 {
    1
}

/// One service queue and the packets that it takes. A packet goes to the first class that asks for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassConfig {
    /// Its name in counters.
    pub name: String,
    /// Its weight against the other queues (`drr`).
    #[serde(default = "one")]
    pub weight: u32,
    /// Rate that it has when it is backlogged. Absent: its weight's share of the port's rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<BitsPerSec>,
    /// Limit of its rate with idle bandwidth of others. Absent: the port's rate; equal to the guarantee: a hard cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<BitsPerSec>,
    /// Capacity of its queue. Absent: the port's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Limit>,
    /// Its marking rule. Absent: the port's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marking: Option<Marking>,
    /// Packets with one of these DSCPs (0 to 63).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dscp: Vec<u8>,
    /// Packets whose socket gave them one of these priorities (`SO_PRIORITY`, `skb->priority`); with `trust = ["priority"]`
    /// also forwarded ones, whose priority Linux takes from their TOS field or a filter gave them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub priority: Vec<u32>,
    /// Packets of sockets in this cgroup (v2) or below it. Only for sockets of this host's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// Only packets of this kind, of those that it asks for; of all, if it asks for nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<EcnKind>,
    /// Packets that one of these matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<Filter>,
}

impl ClassConfig {
    /// A class of weight 1 that asks for nothing in particular.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            weight: one(),
            guarantee: None,
            ceiling: None,
            buffer: None,
            marking: None,
            dscp: Vec::new(),
            priority: Vec::new(),
            cgroup: None,
            ecn: None,
            filter: Vec::new(),
        }
    }
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            rate: None,
            vm: None,
            queue: None,
            quantum: None,
            buffer: default_buffer(),
            marking: None,
            rtt_min: None,
            rtt_max: None,
            not_ect: NotEct::default(),
            overload: default_overload(),
            sparse: default_sparse(),
            phantom: None,
            trust: default_trust(),
            backend: Backend::default(),
            classes: Vec::new(),
        }
    }
}

impl PortConfig {
    /// Order of service, given or by default.
    pub fn discipline(&self) -> Discipline {
        let default = if self.classes.len() > 1 { Discipline::Drr } else { Discipline::Fifo };
        self.queue.unwrap_or(default)
    }

    /// Marking rule with these factors that suits the order of service: strict priority has no rounds to share a threshold by.
    pub fn computed_marking(&self, rule: LambdaRule) -> Marking {
        if self.discipline() == Discipline::Priority { Marking::Tcn(rule) } else { Marking::MqEcn(rule) }
    }
}

/// Treatment of packets without ECN that meet a queue above its threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum NotEct {
    /// A flow without ECN loses at most one packet per round trip, as often as one with ECN answers a mark; no more than
    /// one in 8 of TCP, one in 128 of others, and no TCP packet without payload.
    #[default]
    Drop,
    /// They wait until the queue is full.
    Queue,
}

/// Packets by their ECN field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EcnKind {
    /// ECN-capable, also those that are marked already.
    Ect,
    /// The others.
    NotEct,
}

/// Packets by address, protocol and port; what is absent matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Source address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IpAddr>,
    /// Destination address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<IpAddr>,
    /// IP protocol number: 6 for TCP, 17 for UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_port: Option<u16>,
    /// Destination port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_port: Option<u16>,
}

/// Rate of all ports of one VM together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmBudget {
    /// The VM; ports that name the same one share its budget.
    pub name: String,
    /// Rate of the VM, over all its ports.
    pub rate: BitsPerSec,
    /// Division among its ports.
    #[serde(default)]
    pub share: VmShare,
    /// With `split`: the part of this port is `weight / weights`.
    #[serde(default = "one")]
    pub weight: u32,
    /// With `split`: the sum of the weights of all the VM's ports.
    #[serde(default = "one")]
    pub weights: u32,
}

impl VmBudget {
    /// Rate of a port with a fixed part.
    pub fn part(&self) -> BitsPerSec {
        let part = u128::from(self.rate.get()) * u128::from(self.weight) / u128::from(self.weights.max(1));
        BitsPerSec::new(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

/// Division of a VM's budget among its ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum VmShare {
    /// In fixed parts, one per port; what one port leaves is lost.
    #[default]
    Split,
    /// From one bucket for all; a port may use what the others leave. The ports also share the queues: all have the
    /// same settings.
    Shared,
}

/// Fields that may select a packet's class although others than the operator write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// The DSCP, which every sender chooses.
    Dscp,
    /// The priority of packets that are not from a socket of the port's own network namespace.
    Priority,
    /// The packet inside VXLAN, by the classes' filters.
    Tunnel,
}

/// Scheduler of a port's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// The best that loads: `bpf`, else `htb`.
    #[default]
    Auto,
    /// A queueing discipline in BPF (Linux 6.16 with `NET_SCH_BPF`).
    Bpf,
    /// Linux's hierarchical token bucket.
    Htb,
}
