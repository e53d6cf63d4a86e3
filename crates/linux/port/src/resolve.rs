//! From a configuration and the facts of a link to a [`Plan`].

use crate::check;
use crate::config::{ClassConfig, PortConfig, VmShare};
use crate::error::ConfigError;
use crate::plan::{
    ClassPlan, LINK_HEADER_BYTES, Lambda, LinkFacts, NO_RIGHT, ONLY_CLASS, Plan, Rule, UNCAPPED,
};
use vmcc_config::{Discipline, LambdaRule, Marking};
use vmcc_units::{BitsPerSec, Bytes, Nanos};

/// Lowest rate that the kernel can be given: a byte per second.
const MIN_RATE: BitsPerSec = BitsPerSec::new(8);
/// HTB takes quanta of up to 200,000 bytes without complaint.
const MAX_QUANTUM_FRAMES: u64 = 60;

impl PortConfig {
    /// Checks that the configuration makes sense on any link.
    ///
    /// # Errors
    /// It contradicts itself.
    pub fn check(&self) -> Result<(), ConfigError> {
        check::config(self)
    }

    /// The configuration with the order of service and the marking rule that it has on a link written out.
    #[must_use]
    pub fn with_defaults(&self, link: &LinkFacts) -> Self {
        Self { queue: Some(self.discipline()), marking: Some(self.marking_on(link)), ..self.clone() }
    }

    /// Marking rule on a link, given or by default. By default a port marks where a threshold can be computed and a queue of its
    /// own builds.
    fn marking_on(&self, link: &LinkFacts) -> Marking {
        let rule = LambdaRule { lambda: 1.0, rtt: None };
        let has_capacity = port_rate(self).or(link.speed).is_some();
        match self.marking {
            Some(given) => given,
            None if !has_queues(self) && self.phantom.is_none() => Marking::None,
            None => match self.computed_marking(rule) {
                Marking::MqEcn(_) if !has_capacity && self.phantom.is_none() => Marking::None,
                computed => computed,
            },
        }
    }

    /// Resolves the configuration for a link.
    ///
    /// # Errors
    /// The configuration contradicts itself or the link.
    pub fn plan(&self, link: &LinkFacts) -> Result<Plan, ConfigError> {
        check::config(self)?;
        check::link(self, link)?;
        let cap = port_rate(self);
        let shares = shares(self, cap);
        let frame = Bytes::new(link.mtu.get() + LINK_HEADER_BYTES);
        let port = Resolver { config: self, link, cap, marking: self.marking_on(link), frame };
        let only = [ClassConfig::named(ONLY_CLASS)];
        let list = if self.classes.is_empty() { &only[..] } else { &self.classes };
        let classes = list.iter().zip(&shares).enumerate();
        let classes = classes.map(|(index, (class, share))| port.class(index, class, *share));
        let mut plan = Plan {
            queues: port.has_queues(),
            cap,
            capacity: port.capacity(),
            strict: port.is_strict(),
            guarantees: self.classes.iter().any(|class| class.guarantee.is_some()),
            sparse: false,
            frame_bytes: port.frame.get(),
            phantom_q16: self.phantom.map_or(0, q16),
            rtt_bounds_ns: [self.rtt_min.map_or(0, Nanos::get), self.rtt_max.map_or(u64::MAX, Nanos::get)],
            classes: classes.collect::<Result<_, _>>()?,
        };
        check::rates(self, cap, &shares)?;
        check::thresholds(self, &plan)?;
        plan.sparse = self.sparse && plan.queues && plan.marks();
        set_quanta(&mut plan, &port);
        Ok(plan)
    }
}

/// A configuration on its link.
struct Resolver<'a> {
    config: &'a PortConfig,
    link: &'a LinkFacts,
    cap: Option<BitsPerSec>,
    /// Rule of classes without one of their own.
    marking: Marking,
    frame: Bytes,
}

impl Resolver<'_> {
    fn capacity(&self) -> Option<BitsPerSec> {
        self.cap.or(self.link.speed)
    }

    fn has_queues(&self) -> bool {
        has_queues(self.config)
    }

    fn is_strict(&self) -> bool {
        self.config.discipline() == Discipline::Priority && self.config.classes.len() > 1
    }

    /// All of a class but its quantum, which depends on the others.
    fn class(
        &self,
        index: usize,
        class: &ClassConfig,
        share: Option<BitsPerSec>,
    ) -> Result<ClassPlan, ConfigError> {
        let rate = self.capacity().unwrap_or(UNCAPPED);
        let ceiling = class.ceiling.unwrap_or(rate).min(rate).max(MIN_RATE);
        let right = share.unwrap_or(if self.is_strict() { NO_RIGHT } else { rate });
        let limit = class.buffer.unwrap_or(self.config.buffer);
        let buffer_bytes = check::bounded(limit.bytes(self.frame));
        let rule = self.rule(index, class)?;
        Ok(ClassPlan {
            name: class.name.clone(),
            right: right.clamp(MIN_RATE, ceiling),
            ceiling,
            quantum_bytes: 0,
            priority: if self.is_strict() { u32::try_from(index).unwrap_or(u32::MAX) } else { 0 },
            limit,
            limit_key: match class.buffer {
                Some(_) => format!("class[{index}].buffer"),
                None => "buffer".to_owned(),
            },
            rule,
            max_threshold_bytes: max_threshold_bytes(rule, buffer_bytes),
            // Of a queue that is not ours the buffer is not known.
            overload_bytes: if self.has_queues() {
                self.overload_bytes(rule, buffer_bytes, rate)
            } else {
                u64::MAX
            },
            buffer_bytes,
        })
    }

    /// The marking rule of a class in base units; a threshold in time becomes bytes at the rate at which its queue drains.
    fn rule(&self, index: usize, class: &ClassConfig) -> Result<Rule, ConfigError> {
        let (marking, key) = match &class.marking {
            Some(marking) => (marking, format!("class[{index}].marking")),
            None => (&self.marking, "marking".to_owned()),
        };
        let lambda =
            |rule: &LambdaRule| Lambda { lambda_q16: q16(rule.lambda), rtt_ns: rule.rtt.map(Nanos::get) };
        let drain = || class.ceiling.into_iter().chain(self.cap).min().or(self.link.speed);
        Ok(match marking {
            Marking::None => Rule::None,
            Marking::MqEcn(rule) => Rule::MqEcn(lambda(rule)),
            Marking::Tcn(rule) => Rule::Tcn(lambda(rule)),
            Marking::Threshold(rule) => {
                Rule::Threshold(check::threshold_bytes(rule.at, &key, drain(), self.frame)?)
            }
            Marking::Red(_) => return Err(check::red(&key)),
        })
    }

    /// Above the threshold in any case: a given one may be near the buffer.
    fn overload_bytes(&self, rule: Rule, buffer_bytes: u64, rate: BitsPerSec) -> u64 {
        let share = self.config.overload;
        if share >= 1.0 {
            return u64::MAX;
        }
        let threshold = match rule {
            Rule::None => 0,
            Rule::Threshold(bytes) => bytes,
            Rule::MqEcn(lambda) | Rule::Tcn(lambda) => lambda.bytes_at(rate.bytes_per_sec()).unwrap_or(0),
        };
        let middle = threshold.min(buffer_bytes).midpoint(buffer_bytes);
        middle.max((buffer_bytes as f64 * share) as u64)
    }
}

/// A set RTT was checked against the buffer. A measured one may be anything: half of the buffer stays for what arrives until
/// senders have heard the mark.
fn max_threshold_bytes(rule: Rule, buffer_bytes: u64) -> u64 {
    match rule.lambda() {
        Some(lambda) if lambda.rtt_ns.is_none() => buffer_bytes / 2,
        _ => buffer_bytes,
    }
}

/// A checked number above 0 and at most 1000 in 1/65536; never 0.
fn q16(value: f64) -> u32 {
    ((value * 65536.0).round() as u32).max(1)
}

/// True if the port needs queues of its own.
fn has_queues(config: &PortConfig) -> bool {
    port_rate(config).is_some() || config.classes.len() > 1
}

fn port_rate(config: &PortConfig) -> Option<BitsPerSec> {
    let of_vm = config.vm.as_ref().map(|vm| match vm.share {
        VmShare::Split => vm.part(),
        VmShare::Shared => vm.rate,
    });
    config.rate.into_iter().chain(of_vm).min()
}

/// Rate of each class when all have enough to send: guarantees first, the rest by weight. `None` when the port is uncapped,
/// and with `priority` unless the class has a guarantee.
fn shares(config: &PortConfig, rate: Option<BitsPerSec>) -> Vec<Option<BitsPerSec>> {
    if config.classes.is_empty() {
        return vec![rate];
    }
    let guarantees: Vec<_> = config.classes.iter().map(|class| class.guarantee).collect();
    let Some(rate) = rate.filter(|_| config.discipline() != Discipline::Priority) else { return guarantees };
    let given: u64 = guarantees.iter().flatten().fold(0, |sum, rate| sum.saturating_add(rate.get()));
    let free = rate.get().saturating_sub(given);
    let open = config.classes.iter().filter(|class| class.guarantee.is_none());
    let weights: u64 = open.map(|class| u64::from(class.weight)).sum();
    let share = |class: &ClassConfig| {
        let part = u128::from(free) * u128::from(class.weight) / u128::from(weights.max(1));
        // At most `free`, so it fits.
        class.guarantee.unwrap_or(BitsPerSec::new(part as u64))
    };
    config.classes.iter().map(|class| Some(share(class))).collect()
}

/// Quanta by weight; with guarantees, idle bandwidth is lent in the proportion of the rights.
fn set_quanta(plan: &mut Plan, port: &Resolver<'_>) {
    let unit = port.config.quantum.map_or(plan.frame_bytes, Bytes::get);
    let weights: Vec<u64> = match port.config.classes.as_slice() {
        [] => vec![1],
        classes => classes.iter().map(|class| class.weight.into()).collect(),
    };
    let min_weight = weights.iter().min().copied().unwrap_or(1);
    let min_right = plan.classes.iter().map(|class| class.right.get()).min().unwrap_or(1).max(1);
    let most = MAX_QUANTUM_FRAMES * plan.frame_bytes;
    for (class, weight) in plan.classes.iter_mut().zip(weights) {
        let bytes = if plan.guarantees {
            u128::from(unit) * u128::from(min_weight) * u128::from(class.right.get()) / u128::from(min_right)
        } else {
            u128::from(unit) * u128::from(weight)
        };
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).clamp(plan.frame_bytes, most);
        class.quantum_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }
}

/// The plan of a configuration for a link with this MTU.
#[cfg(test)]
pub(crate) fn resolved(text: &str, mtu: u64) -> Plan {
    let config: PortConfig = toml::from_str(text).expect("a configuration");
    config.plan(&LinkFacts { mtu: Bytes::new(mtu), speed: None }).expect("a good configuration")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        resolved(text, 1500)
    }

    #[test]
    fn weights_resolve_to_rights_and_quanta() {
        let text = "rate = '70mbit'\nqueue = 'drr'\n[[class]]\nname = 'a'\nweight = 4\n[[class]]\nname = 'b'\n\
                    weight = 2\n[[class]]\nname = 'c'";
        let plan = plan(text);
        let rights: Vec<u64> = plan.classes.iter().map(|c| c.right.get()).collect();
        let quanta: Vec<u32> = plan.classes.iter().map(|c| c.quantum_bytes).collect();
        assert_eq!(rights, [40_000_000, 20_000_000, 10_000_000]);
        assert_eq!(quanta, [4 * 1514, 2 * 1514, 1514]);
        assert!(plan.queues && plan.cap.is_some() && !plan.strict);
    }

    #[test]
    fn excess_is_lent_in_proportion_to_guarantees() {
        let text = "rate = '100mbit'\nqueue = 'drr'\n[[class]]\nname = 'a'\nguarantee = '75mbit'\n[[class]]\n\
                    name = 'b'\nguarantee = '25mbit'\nceiling = '25mbit'";
        let plan = plan(text);
        assert_eq!((plan.classes[0].quantum_bytes, plan.classes[1].quantum_bytes), (3 * 1514, 1514));
        assert_eq!(plan.classes[1].ceiling.get(), 25_000_000);
    }

    #[test]
    fn priority_class_without_guarantee_has_a_minimal_right() {
        let text = "rate = '10mbit'\nqueue = 'priority'\n[[class]]\nname = 'a'\n[[class]]\nname = 'b'";
        let plan = plan(text);
        assert!(plan.strict && plan.classes.iter().all(|c| c.right == NO_RIGHT));
        assert_eq!((plan.classes[0].priority, plan.classes[1].priority), (0, 1));
    }

    #[test]
    fn rate_virtual_queue_or_no_rule_need_no_port_queue() {
        let threshold = "marking = { rule = 'threshold', at = '30kB' }";
        for text in [
            &format!("rate = '1mbit'\n{threshold}"),
            &format!("phantom = 0.9\n{threshold}"),
            "buffer = '9kB'",
        ] {
            assert!(!plan(text).needs_a_queue(), "{text}");
        }
    }

    #[test]
    fn port_without_rate_and_classes_keeps_its_queue() {
        let plan = plan("marking = { rule = 'threshold', at = '30kB' }");
        assert!(!plan.queues && plan.cap.is_none() && plan.rate() == UNCAPPED);
        assert!(plan.needs_a_queue());
        assert_eq!(plan.classes[0].rule, Rule::Threshold(30_000));
    }
}
