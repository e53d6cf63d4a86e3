//! Configuration of a port's programs, from a plan.

use crate::plan::{ClassPlan, Plan};
use crate::serve::error::PortError;
use crate::{
    ClassConfig, EcnKind, Filter, MAX_CLASSES, MAX_FILTERS, MAX_PRIORITIES, NotEct, PortConfig, Rule, Trust,
};
use std::net::IpAddr;
use vmcc_bpf::shared::port::{
    self, Class, Config, DSCPS, KINDS, PORT_NO_CLASS, PORT_RULE_LENGTH, PORT_RULE_NONE, PORT_RULE_SHARE,
    PORT_RULE_SOJOURN, PORT_TRUST_PRIORITY, PORT_TRUST_TUNNEL,
};
use zerocopy::FromZeros;

/// Queue length below which no packet without ECN is dropped by rule, in nanoseconds at the port's rate. Where round trips
/// take microseconds a threshold may be one packet, and flows that do not respond to marks need more to work at all.
const DROP_FLOOR_NS: u128 = 5_000_000;
const NO_CLASS: u8 = PORT_NO_CLASS as u8;
const NS_PER_S: u128 = 1_000_000_000;

/// Values that the program writes into `skb->priority` of a class's packets; 0: unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClassIds {
    pub(crate) own: u32,
    /// Of sparse flows; 0: the queues have no priority for them.
    pub(crate) sparse: u32,
    /// Of others whose place the queues' filter keeps.
    pub(crate) placed: u32,
}

/// All of it; `ids` says how the queues know a class's packets.
pub(crate) fn config(
    port: &str,
    config: &PortConfig,
    plan: &Plan,
    ids: impl Fn(usize) -> ClassIds,
) -> Result<Config, PortError> {
    let mut out = Config::new_zeroed();
    for (index, planned) in plan.classes.iter().enumerate() {
        out.classes[index] = class(planned, plan, ids(index));
    }
    Tables::new(port, config)?.put(&mut out);
    let trusts = |what: Trust, bit: u32| if config.trust.contains(&what) { bit } else { 0 };
    let rate = plan.rate().bytes_per_sec();
    let slot_ns = u128::from(plan.frame_bytes) * NS_PER_S / u128::from(rate.max(1));
    let floor = u128::from(rate) * DROP_FLOOR_NS / NS_PER_S;
    let [rtt_least_ns, rtt_most_ns] = plan.rtt_bounds_ns;
    Ok(Config {
        rate,
        slot_ns: u64::try_from(slot_ns).unwrap_or(u64::MAX),
        class_count: count(plan.classes.len()),
        phantom_q16: plan.phantom_q16,
        measure_rtt: u32::from(plan.measures_rtt()),
        floor_bytes: u32::try_from(plan.frame_bytes).unwrap_or(u32::MAX),
        strict: u32::from(plan.strict),
        has_ceilings: u32::from(plan.classes.iter().any(|class| class.ceiling < plan.rate())),
        by_ceiling: by_ceiling(plan),
        trust: trusts(Trust::Priority, PORT_TRUST_PRIORITY) | trusts(Trust::Tunnel, PORT_TRUST_TUNNEL),
        rtt_least_ns,
        rtt_most_ns,
        drop_floor_bytes: u64::try_from(floor).unwrap_or(u64::MAX),
        drop_not_ect: u32::from(config.not_ect == NotEct::Drop && plan.marks()),
        ..out
    })
}

fn class(class: &ClassPlan, plan: &Plan, ids: ClassIds) -> Class {
    let (rule, threshold_bytes) = match class.rule {
        Rule::None => (PORT_RULE_NONE, 0),
        Rule::Threshold(bytes) => (PORT_RULE_LENGTH, bytes),
        Rule::MqEcn(_) => (PORT_RULE_SHARE, class.max_threshold_bytes),
        Rule::Tcn(_) => (PORT_RULE_SOJOURN, class.max_threshold_bytes),
    };
    let lambda = class.rule.lambda();
    Class {
        threshold_bytes,
        rtt_ns: lambda.and_then(|lambda| lambda.rtt_ns).unwrap_or(0),
        ceiling: class.ceiling.bytes_per_sec(),
        right: class.right.bytes_per_sec(),
        quantum_ns: quantum_ns(class, plan),
        overload_bytes: class.overload_bytes,
        buffer_bytes: class.buffer_bytes,
        rule,
        lambda_q16: lambda.map_or(0, |lambda| lambda.lambda_q16),
        class_id: ids.own,
        sparse_id: if plan.sparse && class.rule != Rule::None { ids.sparse } else { 0 },
        placed_id: ids.placed,
        reserved: 0,
    }
}

/// Time that a class's quantum takes at the port's rate, in nanoseconds.
fn quantum_ns(class: &ClassPlan, plan: &Plan) -> u64 {
    let ns = u128::from(class.quantum_bytes) * NS_PER_S / u128::from(plan.rate().bytes_per_sec().max(1));
    u64::try_from(ns).unwrap_or(u64::MAX).max(1)
}

/// The classes in the order in which they reach their ceilings when the others leave them more and more.
fn by_ceiling(plan: &Plan) -> [u8; MAX_CLASSES] {
    let mut order: [u8; MAX_CLASSES] = std::array::from_fn(|class| class as u8);
    order.sort_by_key(|&class| {
        let class = plan.classes.get(usize::from(class));
        class.map_or(u128::MAX, |class| {
            (u128::from(class.ceiling.bytes_per_sec()) << 64) / u128::from(quantum_ns(class, plan))
        })
    });
    order
}

/// Tables that choose a class.
struct Tables<'a> {
    filters: Vec<(&'a Filter, u32)>,
    priorities: Vec<(u32, u8)>,
    dscp: [[u8; DSCPS]; KINDS],
    cgroups: u32,
    /// The class that takes everything of a kind.
    kind_class: [u8; KINDS],
    /// Which classes take packets of a kind: bit n for class n.
    takes: [u8; KINDS],
}

impl<'a> Tables<'a> {
    fn new(port: &str, config: &'a PortConfig) -> Result<Self, PortError> {
        let mut tables = Self {
            filters: Vec::new(),
            priorities: Vec::new(),
            dscp: [[NO_CLASS; DSCPS]; KINDS],
            cgroups: 0,
            kind_class: [NO_CLASS; KINDS],
            takes: [0; KINDS],
        };
        for (class, index) in config.classes.iter().zip(0_u8..) {
            tables.filters.extend(class.filter.iter().map(|filter| (filter, u32::from(index))));
            tables.priorities.extend(class.priority.iter().map(|priority| (*priority, index)));
            for dscp in &class.dscp {
                if usize::from(*dscp) >= DSCPS {
                    let key = format!("class {}: dscp", class.name);
                    return Err(PortError::config(port, key, format!("{dscp}; a DSCP is 0 to 63")));
                }
            }
            tables.take(class, index, config.trust.contains(&Trust::Dscp));
            tables.cgroups |= u32::from(class.cgroup.is_some()) << index;
        }
        for (what, found, most) in [
            ("filters", tables.filters.len(), MAX_FILTERS),
            ("priorities", tables.priorities.len(), MAX_PRIORITIES),
        ] {
            if found > most {
                return Err(PortError::config(
                    port,
                    "class",
                    format!("{found} {what}; a port has at most {most}"),
                ));
            }
        }
        Ok(tables)
    }

    /// A class by what depends on the ECN field.
    fn take(&mut self, class: &ClassConfig, index: u8, by_dscp: bool) {
        for (kind, own) in [EcnKind::NotEct, EcnKind::Ect].into_iter().enumerate() {
            if class.ecn.is_some_and(|asked| asked != own) {
                continue;
            }
            self.takes[kind] |= 1 << index;
            for dscp in class.dscp.iter().filter(|_| by_dscp) {
                let slot = &mut self.dscp[kind][usize::from(*dscp)];
                *slot = index.min(*slot);
            }
            let nothing_else = class.dscp.is_empty()
                && class.priority.is_empty()
                && class.cgroup.is_none()
                && class.filter.is_empty();
            if class.ecn.is_some() && nothing_else {
                self.kind_class[kind] = index.min(self.kind_class[kind]);
            }
        }
    }

    fn put(&self, out: &mut Config) {
        for (slot, (filter, class)) in out.filters.iter_mut().zip(&self.filters) {
            *slot = raw_filter(filter, *class);
        }
        for (slot, (priority, class)) in self.priorities.iter().enumerate() {
            out.priorities[slot] = *priority;
            out.priority_class[slot] = *class;
        }
        out.filter_count = count(self.filters.len());
        out.priority_count = count(self.priorities.len());
        out.cgroup_classes = self.cgroups;
        out.dscp_class = self.dscp;
        out.kind_class = self.kind_class;
        out.takes = self.takes;
    }
}

fn raw_filter(filter: &Filter, class: u32) -> port::Filter {
    let address = |address: Option<IpAddr>| {
        let mut raw = [0; 16];
        match address {
            Some(IpAddr::V4(v4)) => raw[..4].copy_from_slice(&v4.octets()),
            Some(IpAddr::V6(v6)) => raw = v6.octets(),
            None => {}
        }
        raw
    };
    port::Filter {
        from: address(filter.from),
        to: address(filter.to),
        from_port: filter.from_port.unwrap_or(0),
        to_port: filter.to_port.unwrap_or(0),
        protocol: filter.protocol.unwrap_or(0),
        version: filter.to.or(filter.from).map_or(0, |address| if address.is_ipv4() { 4 } else { 6 }),
        has_from: u8::from(filter.from.is_some()),
        has_to: u8::from(filter.to.is_some()),
        class,
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
