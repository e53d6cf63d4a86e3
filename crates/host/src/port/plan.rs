//! What a configuration means on one port: rates, quanta and buffers of each class in the kernel's units.

use super::error::PortError;
use serde::{Deserialize, Serialize};
use vmcc_port::{ClassConfig, LinkFacts, ONLY_CLASS, PortConfig};
use vmcc_scenario::model::{Discipline, LambdaRule, Marking};
use vmcc_units::{BitsPerSec, Bytes, Limit};

/// Ethernet's header, which queues and rates count.
const ETHERNET_HEADER_BYTES: u64 = 14;
/// The rate that stands for none, when classes need one: 100 Gbit/s, in bytes per second.
const UNCAPPED: u64 = 12_500_000_000;
/// What a class without a guarantee gets under strict priority before it borrows, in bytes per second: nearly
/// nothing, for HTB serves rights before priorities.
const NO_RIGHT: u64 = 1_000;

/// When a class marks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rule {
    Never,
    /// Above this many bytes.
    Length(u64),
    /// Above the class's share of C x RTT x lambda; `rtt_ns` zero: measured.
    Share {
        lambda_q16: u32,
        rtt_ns: u64,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClassPlan {
    pub(crate) name: String,
    /// What it has a right to, in bytes per second.
    pub(crate) right: u64,
    /// What it may use, in bytes per second.
    pub(crate) ceiling: u64,
    /// What it may send per round, in bytes.
    pub(crate) quantum: u32,
    /// 0 is served first.
    pub(crate) priority: u32,
    pub(crate) limit: Limit,
    pub(crate) rule: Rule,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// Whether the port has a rate or several classes, so that it needs queues of its own.
    pub(crate) queues: bool,
    pub(crate) capped: bool,
    /// Bytes per second.
    pub(crate) rate: u64,
    /// One MTU with its Ethernet header.
    pub(crate) frame_bytes: u64,
    /// Share of the rate at which virtual queues drain, in 1/65536; zero: real queues.
    pub(crate) phantom_q16: u32,
    pub(crate) classes: Vec<ClassPlan>,
}

/// What is known of the port itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) mtu: u32,
}

impl Plan {
    pub(crate) fn new(port: &str, config: &PortConfig, facts: Facts) -> Result<Self, PortError> {
        check(port, config, facts)?;
        let frame_bytes = u64::from(facts.mtu) + ETHERNET_HEADER_BYTES;
        let cap = config.rate.map(BitsPerSec::bytes_per_sec);
        let rate = cap.unwrap_or(UNCAPPED);
        let only = ClassConfig::named(ONLY_CLASS);
        let classes = if config.classes.is_empty() { std::slice::from_ref(&only) } else { &config.classes };
        let rights = rights(config, classes, rate);
        let resolve = |(index, class): (usize, &ClassConfig)| {
            Ok(ClassPlan {
                name: class.name.clone(),
                right: rights[index],
                ceiling: class.ceiling.map_or(rate, BitsPerSec::bytes_per_sec).min(rate).max(1),
                quantum: quantum(config, classes, &rights, index, frame_bytes),
                priority: if config.queue == Discipline::Priority { index as u32 } else { 0 },
                limit: class.buffer.unwrap_or(config.buffer),
                rule: rule(port, class.marking.unwrap_or(config.marking), rate, frame_bytes)?,
            })
        };
        let classes: Vec<ClassPlan> =
            classes.iter().enumerate().map(resolve).collect::<Result<_, PortError>>()?;
        Ok(Self {
            queues: cap.is_some() || classes.len() > 1,
            capped: cap.is_some(),
            rate,
            frame_bytes,
            phantom_q16: config.phantom.map_or(0, q16),
            classes,
        })
    }

    pub(crate) fn measures_rtt(&self) -> bool {
        self.classes.iter().any(|class| matches!(class.rule, Rule::Share { rtt_ns: 0, .. }))
    }
}

/// Everything that is wrong with the configuration in itself, and on this port.
fn check(port: &str, config: &PortConfig, facts: Facts) -> Result<(), PortError> {
    let link = LinkFacts { mtu: Bytes::new(facts.mtu.into()), speed: None, vm_ports: 1 };
    if config.vm.is_some() {
        return Err(PortError::config(port, "vm", "budgets of VMs are not built into this vmcc yet"));
    }
    match config.plan(&link) {
        Ok(_) => Ok(()),
        Err(error) => Err(PortError::Config { port: port.to_owned(), error: Box::new(error) }),
    }
}

/// What each class has a right to: its guarantee, or its weight's share of what the guarantees leave.
fn rights(config: &PortConfig, classes: &[ClassConfig], rate: u64) -> Vec<u64> {
    let guaranteed = |class: &ClassConfig| class.guarantee.map(BitsPerSec::bytes_per_sec);
    let left = rate.saturating_sub(classes.iter().filter_map(guaranteed).sum());
    let weights: u64 =
        classes.iter().filter(|c| c.guarantee.is_none()).map(|c| u64::from(c.weight)).sum::<u64>().max(1);
    let share = |class: &ClassConfig| {
        let right = match (guaranteed(class), config.queue) {
            (Some(guarantee), _) => guarantee,
            (None, Discipline::Priority) if classes.len() > 1 => NO_RIGHT,
            (None, _) => (u128::from(left) * u128::from(class.weight) / u128::from(weights)) as u64,
        };
        let ceiling = class.ceiling.map_or(rate, BitsPerSec::bytes_per_sec);
        right.min(ceiling).max(1)
    };
    classes.iter().map(share).collect()
}

/// What a class may send per round. With weights, weight x the port's quantum; with guarantees, in proportion to the
/// rights, so that idle bandwidth is lent in the same proportion as the guarantees.
fn quantum(
    config: &PortConfig,
    classes: &[ClassConfig],
    rights: &[u64],
    index: usize,
    frame_bytes: u64,
) -> u32 {
    let unit = config.quantum.map_or(frame_bytes, Bytes::get).max(1);
    let bytes = if classes.iter().any(|class| class.guarantee.is_some()) {
        let least = rights.iter().min().copied().unwrap_or(1).max(1);
        unit.saturating_mul(rights[index] / least)
    } else {
        unit.saturating_mul(classes[index].weight.into())
    };
    // HTB takes at most 200,000 without complaint; one frame is the least that makes sense.
    u32::try_from(bytes.clamp(frame_bytes, 60 * frame_bytes)).unwrap_or(u32::MAX)
}

fn rule(port: &str, marking: Marking, rate: u64, frame_bytes: u64) -> Result<Rule, PortError> {
    match marking {
        Marking::None => Ok(Rule::Never),
        Marking::Threshold(rule) => {
            let bits = BitsPerSec::new(rate.saturating_mul(8));
            let bytes = rule
                .at
                .bytes(bits, Bytes::new(frame_bytes))
                .ok_or_else(|| PortError::config(port, "marking.at", format!("{} is too large", rule.at)))?;
            Ok(Rule::Length(bytes.get()))
        }
        Marking::MqEcn(rule) | Marking::Tcn(rule) => Ok(share(rule)),
        Marking::Red(_) => {
            let problem = "ports do not offer `red`; use `threshold`, `mq-ecn` or `tcn`";
            Err(PortError::config(port, "marking.rule", problem))
        }
    }
}

fn share(rule: LambdaRule) -> Rule {
    Rule::Share { lambda_q16: q16(rule.lambda), rtt_ns: rule.rtt.map_or(0, |rtt| rtt.get()) }
}

fn q16(value: f64) -> u32 {
    // Saturates, and takes what is not a number for zero.
    (value * 65_536.0).round() as u32
}
