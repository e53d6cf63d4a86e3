//! From a configuration and the facts of a link to plain numbers: what a backend puts into the kernel.

use crate::check;
use crate::config::{Backend, ClassConfig, Filter, PortConfig, VmShare};
use crate::error::ConfigError;
use std::path::PathBuf;
use vmcc_config::{Discipline, Marking};
use vmcc_units::{BitsPerSec, Bytes, Limit};

/// Size of the link-layer header in front of a packet of the MTU, in bytes (Ethernet).
pub const LINK_HEADER_BYTES: u64 = 14;

/// Name of the only class when the configuration has none.
pub const ONLY_CLASS: &str = "all";

/// Link properties that the configuration cannot know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkFacts {
    /// The link's MTU, without the link-layer header.
    pub mtu: Bytes,
    /// Link speed. `None` when unknown or only nominal: the number that a tap or veth reports means nothing.
    pub speed: Option<BitsPerSec>,
}

/// A port in plain numbers. Rates are in bytes per second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Rate of the port: the least of its cap and of its (part of the) VM's budget. `None`: uncapped.
    pub rate: Option<u64>,
    /// Port capacity for thresholds: `rate`, or else the link's speed. `None`: neither is known;
    /// then no class marks by MQ-ECN.
    pub capacity: Option<u64>,
    /// The VM whose budget the port shares, when `share` is `shared`; a split budget is in `rate` already.
    pub vm: Option<SharedBudget>,
    /// In which order the queues are served.
    pub discipline: Discipline,
    /// A packet of the MTU with its link-layer header, in bytes.
    pub packet_bytes: u64,
    /// The drain rate of the virtual queue that marks, as a share of the real rate in 1/65536 (above 0 to 65536).
    /// `None`: the real queue marks.
    pub phantom_q16: Option<u32>,
    /// Backend that schedules the queues.
    pub backend: Backend,
    /// The service queues, at least one and at most [`crate::MAX_CLASSES`]; with `priority` the first is the first
    /// to be served. What no class asks for goes to the last.
    pub classes: Vec<ClassPlan>,
}

/// One bucket for all ports of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedBudget {
    /// The VM.
    pub name: String,
    /// Rate of its ports together, in bytes per second.
    pub rate: u64,
}

/// A service queue in plain numbers. Rates are in bytes per second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassPlan {
    /// Its name in counters.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// Rate of the class when it has that much to send: its guarantee, or its weight's share of what the guarantees leave
    /// (`drr`). `None` when the port is uncapped, and with `priority` unless the class has a guarantee.
    pub share: Option<u64>,
    /// Ceiling. `None` when the port is uncapped and the class has no ceiling.
    pub ceiling: Option<u64>,
    /// Quantum, in bytes per round: weight x quantum.
    pub quantum_bytes: u64,
    /// Buffer, in bytes; a limit in packets counts packets of the MTU.
    pub buffer_bytes: u64,
    /// Buffer, in packets, if it was given in packets.
    pub buffer_packets: Option<u64>,
    /// Marking rule.
    pub rule: Rule,
    /// DSCPs that it takes: bit n for DSCP n.
    pub dscp: u64,
    /// Priorities (`skb->priority`) that it takes.
    pub priority: Vec<u32>,
    /// The cgroup whose sockets' packets it takes, as configured; [`crate::cgroup_folder`] finds it.
    pub cgroup: Option<PathBuf>,
    /// Filters of which one must match.
    pub filter: Vec<Filter>,
}

/// Marking rule of a queue, in base units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Never.
    None,
    /// Threshold: when it is longer than this many bytes.
    Threshold(u64),
    /// MQ-ECN: when it is longer than min(quantum / round time, capacity) x RTT x lambda.
    MqEcn(Lambda),
    /// TCN: when a packet waits longer than RTT x lambda.
    Tcn(Lambda),
}

impl Rule {
    /// The settings that the threshold is computed from; `None` where there is nothing to compute.
    pub fn lambda(self) -> Option<Lambda> {
        match self {
            Self::None | Self::Threshold(_) => None,
            Self::MqEcn(lambda) | Self::Tcn(lambda) => Some(lambda),
        }
    }
}

/// The settings of MQ-ECN and TCN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lambda {
    /// Lambda in 1/65536: 1 to 1000 x 65536.
    pub lambda_q16: u32,
    /// The RTT in nanoseconds. `None`: as measured.
    pub rtt_ns: Option<u64>,
}

impl PortConfig {
    /// Checks that the configuration makes sense on any link.
    ///
    /// # Errors
    /// It contradicts itself.
    pub fn check(&self) -> Result<(), ConfigError> {
        check::config(self)
    }

    /// The configuration in plain numbers, for a link.
    ///
    /// # Errors
    /// The configuration contradicts itself or the link.
    pub fn plan(&self, link: &LinkFacts) -> Result<Plan, ConfigError> {
        check::config(self)?;
        check::link(self, link)?;
        let rate = port_rate(self);
        let plan = Plan {
            rate,
            capacity: rate.or(link.speed.map(BitsPerSec::bytes_per_sec)),
            vm: shared_budget(self),
            discipline: self.queue,
            packet_bytes: link.mtu.get() + LINK_HEADER_BYTES,
            phantom_q16: self.phantom.map(q16),
            backend: self.backend,
            classes: classes(self, rate, link)?,
        };
        check::plan(self, &plan)?;
        Ok(plan)
    }
}

/// A checked number above 0 and at most 1000 in 1/65536; never 0.
fn q16(value: f64) -> u32 {
    ((value * 65536.0).round() as u32).max(1)
}

fn port_rate(config: &PortConfig) -> Option<u64> {
    let own = config.rate.map(BitsPerSec::bytes_per_sec);
    let of_vm = config.vm.as_ref().map(|vm| match vm.share {
        VmShare::Split => vm.part().bytes_per_sec(),
        VmShare::Shared => vm.rate.bytes_per_sec(),
    });
    own.into_iter().chain(of_vm).min()
}

fn shared_budget(config: &PortConfig) -> Option<SharedBudget> {
    let vm = config.vm.as_ref().filter(|vm| vm.share == VmShare::Shared)?;
    Some(SharedBudget { name: vm.name.clone(), rate: vm.rate.bytes_per_sec() })
}

fn classes(config: &PortConfig, rate: Option<u64>, link: &LinkFacts) -> Result<Vec<ClassPlan>, ConfigError> {
    let shares = shares(config, rate);
    let only = [ClassConfig::named(ONLY_CLASS)];
    let list = if config.classes.is_empty() { &only[..] } else { &config.classes };
    let classes = list.iter().zip(shares).enumerate();
    classes.map(|(index, (class, share))| class_plan(config, class, index, share, rate, link)).collect()
}

/// Rate of each class when all have enough to send: guarantees first, the rest by weight.
fn shares(config: &PortConfig, rate: Option<u64>) -> Vec<Option<u64>> {
    let guarantee = |class: &ClassConfig| class.guarantee.map(BitsPerSec::bytes_per_sec);
    if config.classes.is_empty() {
        return vec![rate];
    }
    let guarantees: Vec<Option<u64>> = config.classes.iter().map(guarantee).collect();
    let Some(rate) = rate.filter(|_| config.queue != Discipline::Priority) else { return guarantees };
    let free = rate.saturating_sub(guarantees.iter().flatten().sum());
    let by_weight = |(class, given): (&ClassConfig, &Option<u64>)| given.is_none().then_some(class.weight);
    let weights: u64 = config.classes.iter().zip(&guarantees).filter_map(by_weight).map(u64::from).sum();
    let share = |(class, given): (&ClassConfig, &Option<u64>)| {
        let part = u128::from(free) * u128::from(class.weight) / u128::from(weights.max(1));
        // At most `free`, so it fits.
        given.unwrap_or(part as u64)
    };
    config.classes.iter().zip(&guarantees).map(|pair| Some(share(pair))).collect()
}

fn class_plan(
    config: &PortConfig,
    class: &ClassConfig,
    index: usize,
    share: Option<u64>,
    rate: Option<u64>,
    link: &LinkFacts,
) -> Result<ClassPlan, ConfigError> {
    let packet = Bytes::new(link.mtu.get() + LINK_HEADER_BYTES);
    let buffer = class.buffer.unwrap_or(config.buffer);
    let (marking, key) = match &class.marking {
        Some(marking) => (marking, format!("class[{index}].marking")),
        None => (&config.marking, "marking".to_owned()),
    };
    let ceiling = class.ceiling.map(BitsPerSec::bytes_per_sec);
    let ceiling = ceiling.into_iter().chain(rate).min();
    Ok(ClassPlan {
        name: class.name.clone(),
        weight: class.weight,
        share: share.map(|share| ceiling.map_or(share, |most| share.min(most))),
        ceiling,
        quantum_bytes: u64::from(class.weight) * config.quantum.unwrap_or(packet).get(),
        buffer_bytes: check::bounded(buffer.bytes(packet)),
        buffer_packets: match buffer {
            Limit::Packets(packets) => Some(packets.get()),
            Limit::Bytes(_) => None,
        },
        rule: rule(marking, &key, ceiling.or(link.speed.map(BitsPerSec::bytes_per_sec)), packet)?,
        dscp: class.dscp.iter().fold(0, |mask, dscp| mask | 1 << dscp),
        priority: class.priority.clone(),
        cgroup: class.cgroup.clone(),
        filter: class.filter.clone(),
    })
}

/// A marking rule in base units; `drain` in bytes per second turns a threshold in time into bytes.
fn rule(marking: &Marking, key: &str, drain: Option<u64>, packet: Bytes) -> Result<Rule, ConfigError> {
    let lambda = |rule: &vmcc_config::LambdaRule| Lambda {
        lambda_q16: q16(rule.lambda),
        rtt_ns: rule.rtt.map(vmcc_units::Nanos::get),
    };
    Ok(match marking {
        Marking::None => Rule::None,
        Marking::MqEcn(rule) => Rule::MqEcn(lambda(rule)),
        Marking::Tcn(rule) => Rule::Tcn(lambda(rule)),
        Marking::Threshold(rule) => Rule::Threshold(check::threshold_bytes(rule.at, key, drain, packet)?),
        Marking::Red(_) => return Err(check::red(key)),
    })
}
