//! Configuration resolved for one port: rates, quanta and buffers of each class as the queues and the tc program
//! take them.

use super::error::PortError;
use serde::{Deserialize, Serialize};
use vmcc_config::Discipline;
use vmcc_port::{LinkFacts, PortConfig, Rule};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos, Packets};

/// The rate that stands for none: 100 Gbit/s, in bytes per second.
const UNCAPPED: u64 = 12_500_000_000;
/// Rate of a class without a guarantee under strict priority before it borrows, in bytes per second: nearly
/// nothing.
pub(crate) const NO_RIGHT: u64 = 1_000;
/// HTB takes quanta of up to 200,000 bytes without complaint.
const MAX_QUANTUM_FRAMES: u64 = 60;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClassPlan {
    pub(crate) name: String,
    /// Assured rate, in bytes per second.
    pub(crate) right: u64,
    /// Ceiling, in bytes per second.
    pub(crate) ceiling: u64,
    /// Quantum, in bytes per round.
    pub(crate) quantum: u32,
    /// 0 is served first.
    pub(crate) priority: u32,
    pub(crate) limit: Limit,
    /// The setting that says so.
    pub(crate) limit_key: String,
    pub(crate) rule: Rule,
    /// Upper bound of computed thresholds.
    pub(crate) most_bytes: u64,
    /// A longer queue is overloaded.
    pub(crate) overload_bytes: u64,
    /// Capacity of the queue.
    pub(crate) buffer_bytes: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// True if the port has a rate or several classes, so that it needs queues of its own.
    pub(crate) queues: bool,
    pub(crate) capped: bool,
    /// True if classes are served in their order instead of in turns.
    pub(crate) strict: bool,
    /// True if a class has a guarantee, which is served before turns and order.
    pub(crate) guarantees: bool,
    /// Bytes per second.
    pub(crate) rate: u64,
    /// One MTU with its Ethernet header.
    pub(crate) frame_bytes: u64,
    /// Share of the rate at which virtual queues drain, in 1/65536; zero: real queues.
    pub(crate) phantom_q16: u32,
    /// A measured RTT counts as no less than the first and no more than the second.
    pub(crate) rtt_bounds: [u64; 2],
    pub(crate) classes: Vec<ClassPlan>,
}

/// Properties of the port itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) mtu: u32,
    /// Link speed, of a device on a bus that reports it.
    pub(crate) speed: Option<BitsPerSec>,
}

impl Plan {
    pub(crate) fn new(port: &str, config: &PortConfig, facts: Facts) -> Result<Self, PortError> {
        let link = LinkFacts { mtu: Bytes::new(facts.mtu.into()), speed: facts.speed };
        let refused = |error| PortError::Config { port: port.to_owned(), error: Box::new(error) };
        let checked = config.plan(&link).map_err(refused)?;
        let rate = checked.rate.or(checked.capacity).unwrap_or(UNCAPPED);
        let strict = checked.discipline == Discipline::Priority && checked.classes.len() > 1;
        let queues = checked.rate.is_some() || checked.classes.len() > 1;
        let resolve = |(index, class): (usize, &vmcc_port::ClassPlan)| {
            let ceiling = class.ceiling.unwrap_or(rate).min(rate).max(1);
            let share = class.share.unwrap_or(if strict { NO_RIGHT } else { rate });
            ClassPlan {
                name: class.name.clone(),
                right: share.clamp(1, ceiling),
                ceiling,
                quantum: u32::try_from(class.quantum_bytes).unwrap_or(u32::MAX),
                priority: if strict { u32::try_from(index).unwrap_or(u32::MAX) } else { 0 },
                limit: match class.buffer_packets {
                    Some(packets) => Limit::Packets(Packets::new(packets)),
                    None => Limit::Bytes(Bytes::new(class.buffer_bytes)),
                },
                limit_key: match config.classes.get(index).and_then(|class| class.buffer) {
                    Some(_) => format!("class[{index}].buffer"),
                    None => "buffer".to_owned(),
                },
                rule: class.rule,
                most_bytes: most_bytes(class),
                // Of a queue that is not ours the buffer is not known.
                overload_bytes: if queues { overload_bytes(class, rate, config.overload) } else { u64::MAX },
                buffer_bytes: class.buffer_bytes,
            }
        };
        let mut classes: Vec<ClassPlan> = checked.classes.iter().enumerate().map(resolve).collect();
        let guarantees = config.classes.iter().any(|class| class.guarantee.is_some());
        if guarantees {
            quanta_by_right(&mut classes);
        }
        for class in &mut classes {
            let most = MAX_QUANTUM_FRAMES * checked.packet_bytes;
            let bytes = u64::from(class.quantum).clamp(checked.packet_bytes, most);
            class.quantum = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
        Ok(Self {
            queues,
            capped: checked.rate.is_some(),
            strict,
            guarantees,
            rate,
            frame_bytes: checked.packet_bytes,
            phantom_q16: checked.phantom_q16.unwrap_or(0),
            rtt_bounds: [config.rtt_min.map_or(0, Nanos::get), config.rtt_max.map_or(u64::MAX, Nanos::get)],
            classes,
        })
    }

    /// True if it marks by the length of a queue that somebody else has put on the port: no queues of ours, no virtual
    /// ones.
    pub(crate) fn needs_a_queue(&self) -> bool {
        let marks = self.classes.iter().any(|class| class.rule != Rule::None);
        marks && !self.queues && self.phantom_q16 == 0
    }

    pub(crate) fn measures_rtt(&self) -> bool {
        self.classes.iter().any(|class| class.rule.lambda().is_some_and(|lambda| lambda.rtt_ns.is_none()))
    }

    /// Threshold of a class while every class sends, in bytes; `None` if it is not known beforehand.
    pub(crate) fn least_threshold(&self, class: &ClassPlan) -> Option<u64> {
        match class.rule {
            Rule::None => None,
            Rule::Threshold(bytes) => Some(bytes),
            Rule::MqEcn(lambda) | Rule::Tcn(lambda) => {
                let all: u64 = self.classes.iter().map(|class| u64::from(class.quantum)).sum();
                let share = u128::from(class.quantum) * u128::from(self.rate) / u128::from(all.max(1));
                let bytes = share * u128::from(lambda.rtt_ns?) * u128::from(lambda.lambda_q16)
                    / (1_000_000_000 << 16);
                Some(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
        }
    }

    /// The RTT that a class's threshold uses, of what was measured for it.
    pub(crate) fn rtt_of(&self, class: &ClassPlan, measured: Option<u64>) -> Option<u64> {
        let [least, most] = self.rtt_bounds;
        class.rule.lambda()?.rtt_ns.or(measured.map(|rtt| rtt.max(least).min(most)))
    }
}

/// A set RTT was checked against the buffer. A measured one may be anything: half of the buffer stays for what arrives
/// until senders have heard the mark.
fn most_bytes(class: &vmcc_port::ClassPlan) -> u64 {
    match class.rule.lambda() {
        Some(lambda) if lambda.rtt_ns.is_none() => class.buffer_bytes / 2,
        _ => class.buffer_bytes,
    }
}

/// Above the threshold in any case: a given one may be near the buffer.
fn overload_bytes(class: &vmcc_port::ClassPlan, rate: u64, share: f64) -> u64 {
    if share >= 1.0 {
        return u64::MAX;
    }
    let threshold = match class.rule {
        Rule::None => 0,
        Rule::Threshold(bytes) => bytes,
        Rule::MqEcn(lambda) | Rule::Tcn(lambda) => {
            let delay = u128::from(lambda.rtt_ns.unwrap_or(0)) * u128::from(lambda.lambda_q16);
            u64::try_from(u128::from(rate) * delay / (1_000_000_000 << 16)).unwrap_or(u64::MAX)
        }
    };
    let middle = threshold.min(class.buffer_bytes).midpoint(class.buffer_bytes);
    middle.max((class.buffer_bytes as f64 * share) as u64)
}

/// With guarantees, idle bandwidth is lent in the proportion of the rights.
fn quanta_by_right(classes: &mut [ClassPlan]) {
    let least = classes.iter().map(|class| class.right).min().unwrap_or(1).max(1);
    let unit = classes.iter().map(|class| class.quantum).min().unwrap_or(1);
    for class in classes {
        let bytes = u128::from(unit) * u128::from(class.right) / u128::from(least);
        class.quantum = u32::try_from(bytes).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, PortError> {
        Plan::new("p0", &toml::from_str(text).unwrap(), Facts { mtu: 1500, speed: None })
    }

    #[test]
    fn weights_become_rights_and_quanta() {
        let text = "rate = '70mbit'\nqueue = 'drr'\n[[class]]\nname = 'a'\nweight = 4\n[[class]]\nname = 'b'\n\
                    weight = 2\n[[class]]\nname = 'c'";
        let plan = plan(text).unwrap();
        let rights: Vec<u64> = plan.classes.iter().map(|c| c.right).collect();
        let quanta: Vec<u32> = plan.classes.iter().map(|c| c.quantum).collect();
        assert_eq!(rights, [5_000_000, 2_500_000, 1_250_000]);
        assert_eq!(quanta, [4 * 1514, 2 * 1514, 1514]);
        assert!(plan.queues && plan.capped && !plan.strict);
    }

    #[test]
    fn guarantees_lend_in_their_own_proportion() {
        let text = "rate = '100mbit'\nqueue = 'drr'\n[[class]]\nname = 'a'\nguarantee = '75mbit'\n[[class]]\n\
                    name = 'b'\nguarantee = '25mbit'\nceiling = '25mbit'";
        let plan = plan(text).unwrap();
        assert_eq!((plan.classes[0].quantum, plan.classes[1].quantum), (3 * 1514, 1514));
        assert_eq!(plan.classes[1].ceiling, 3_125_000);
    }

    #[test]
    fn under_priority_a_class_without_guarantee_has_next_to_no_right() {
        let text = "rate = '10mbit'\nqueue = 'priority'\n[[class]]\nname = 'a'\n[[class]]\nname = 'b'";
        let plan = plan(text).unwrap();
        assert!(plan.strict && plan.classes.iter().all(|c| c.right == NO_RIGHT));
        assert_eq!((plan.classes[0].priority, plan.classes[1].priority), (0, 1));
    }

    #[test]
    fn a_bad_setting_is_named_with_its_port_and_remedy() {
        let error = plan("rate = '1mbit'\n[[class]]\nname = 'a'\nweight = 0").unwrap_err().to_string();
        assert!(error.contains("p0") && error.contains("class[0].weight"), "{error}");
    }

    #[test]
    fn a_rate_a_virtual_queue_and_no_rule_need_no_queue_of_the_port() {
        let threshold = "marking = { rule = 'threshold', at = '30kB' }";
        for text in [
            &format!("rate = '1mbit'\n{threshold}"),
            &format!("phantom = 0.9\n{threshold}"),
            "buffer = '9kB'",
        ] {
            assert!(!plan(text).unwrap().needs_a_queue(), "{text}");
        }
    }

    #[test]
    fn a_port_without_rate_and_classes_keeps_its_queue() {
        let plan = plan("marking = { rule = 'threshold', at = '30kB' }").unwrap();
        assert!(!plan.queues && !plan.capped && plan.rate == UNCAPPED);
        assert!(plan.needs_a_queue());
        assert_eq!(plan.classes[0].rule, Rule::Threshold(30_000));
    }
}
