//! The structures of kernel/port_shared.h, to bytes and back.

use super::backend::Queues;
use super::error::PortError;
use super::plan::{ClassPlan, Plan};
use std::net::IpAddr;
use vmcc_port::{
    ClassConfig, EcnKind, Filter, MAX_CLASSES, MAX_FILTERS, MAX_PRIORITIES, NotEct, PortConfig, Rule, Trust,
};

const CLASS_BYTES: usize = 64;
const FILTER_BYTES: usize = 44;
const DSCPS: usize = 64;
/// Not ECN-capable, ECN-capable.
const KINDS: usize = 2;
/// What the program leaves to wait without ECN in any case, in time at the port's rate: where round trips take
/// microseconds a threshold may be one packet, and who does not hear marks needs more to work at all.
const DROP_FLOOR_NS: u128 = 5_000_000;
const NO_CLASS: u8 = 0xff;
const FILTERS_AT: usize = MAX_CLASSES * CLASS_BYTES;
const PRIORITIES_AT: usize = FILTERS_AT + MAX_FILTERS * FILTER_BYTES;
const PRIORITY_CLASS_AT: usize = PRIORITIES_AT + MAX_PRIORITIES * 4;
const DSCP_AT: usize = PRIORITY_CLASS_AT + MAX_PRIORITIES;
const TAIL_AT: usize = DSCP_AT + KINDS * DSCPS;
const BY_CEILING_AT: usize = TAIL_AT + 16 + 36;
const TRUST_AT: usize = BY_CEILING_AT + MAX_CLASSES;
const MEASURED_AT: usize = TRUST_AT + 4;
/// Bytes of `struct port_config`.
pub(crate) const CONFIG_BYTES: usize = TAIL_AT + 16 + 32 + 16 + 32;

const NS_PER_S: u128 = 1_000_000_000;

/// `struct port_config`.
pub(crate) fn config(
    port: &str,
    config: &PortConfig,
    plan: &Plan,
    queues: &dyn Queues,
) -> Result<[u8; CONFIG_BYTES], PortError> {
    let mut out = [0; CONFIG_BYTES];
    for (index, class) in plan.classes.iter().enumerate() {
        let at = index * CLASS_BYTES;
        let (rule, threshold) = match class.rule {
            Rule::None => (0, 0),
            Rule::Threshold(bytes) => (1, bytes),
            Rule::MqEcn(_) => (2, class.most_bytes),
            Rule::Tcn(_) => (3, class.most_bytes),
        };
        let lambda = class.rule.lambda();
        let lambda_q16 = lambda.map_or(0, |lambda| lambda.lambda_q16);
        let rtt = lambda.and_then(|lambda| lambda.rtt_ns).unwrap_or(0);
        let quantum_ns = quantum_ns(class, plan);
        put_longs(
            &mut out,
            at,
            &[threshold, rtt, class.ceiling, class.right, quantum_ns, class.overload_bytes],
        );
        put_words(&mut out, at + 48, &[rule, lambda_q16, queues.class_id(index), 0]);
    }
    let tables = Tables::new(port, config)?;
    tables.put(&mut out);
    let slot_ns = u128::from(plan.frame_bytes) * NS_PER_S / u128::from(plan.rate.max(1));
    put_longs(&mut out, TAIL_AT, &[plan.rate, u64::try_from(slot_ns).unwrap_or(u64::MAX)]);
    let words = [
        count(plan.classes.len()),
        count(tables.filters.len()),
        count(tables.priorities.len()),
        tables.cgroups,
        plan.phantom_q16,
        u32::from(plan.measures_rtt()),
        u32::try_from(plan.frame_bytes).unwrap_or(u32::MAX),
        u32::from(plan.strict),
        u32::from(plan.classes.iter().any(|class| class.ceiling < plan.rate)),
    ];
    put_words(&mut out, TAIL_AT + 16, &words);
    let trusts = |what: Trust| u32::from(config.trust.contains(&what));
    put_words(&mut out, TRUST_AT, &[trusts(Trust::Priority) | trusts(Trust::Tunnel) << 1]);
    out[BY_CEILING_AT..BY_CEILING_AT + MAX_CLASSES].copy_from_slice(&by_ceiling(plan));
    let floor = u128::from(plan.rate) * DROP_FLOOR_NS / NS_PER_S;
    let [least, most] = plan.rtt_bounds;
    put_longs(&mut out, MEASURED_AT, &[least, most, u64::try_from(floor).unwrap_or(u64::MAX)]);
    out[MEASURED_AT + 24..MEASURED_AT + 28].copy_from_slice(&[
        tables.kind_class[0],
        tables.kind_class[1],
        tables.takes[0],
        tables.takes[1],
    ]);
    put_words(&mut out, MEASURED_AT + 28, &[u32::from(config.not_ect == NotEct::Drop)]);
    Ok(out)
}

/// What a class's quantum takes at the port's rate.
fn quantum_ns(class: &ClassPlan, plan: &Plan) -> u64 {
    let ns = u128::from(class.quantum) * NS_PER_S / u128::from(plan.rate.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX).max(1)
}

/// The classes in the order in which they reach their ceilings when the others leave them more and more.
fn by_ceiling(plan: &Plan) -> [u8; MAX_CLASSES] {
    let mut order: [u8; MAX_CLASSES] = std::array::from_fn(|class| class as u8);
    order.sort_by_key(|&class| {
        let class = plan.classes.get(usize::from(class));
        class.map_or(u128::MAX, |class| {
            (u128::from(class.ceiling) << 64) / u128::from(quantum_ns(class, plan))
        })
    });
    order
}

/// What chooses a class.
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

    fn put(&self, out: &mut [u8]) {
        for (slot, (filter, class)) in self.filters.iter().enumerate() {
            put_filter(&mut out[FILTERS_AT + slot * FILTER_BYTES..][..FILTER_BYTES], filter, *class);
        }
        for (slot, (priority, class)) in self.priorities.iter().enumerate() {
            put_words(out, PRIORITIES_AT + 4 * slot, &[*priority]);
            out[PRIORITY_CLASS_AT + slot] = *class;
        }
        out[DSCP_AT..TAIL_AT].copy_from_slice(self.dscp.as_flattened());
    }
}

fn put_filter(out: &mut [u8], filter: &Filter, class: u32) {
    let mut version = 0;
    for (at, address, present_at) in [(0, filter.from, 38), (16, filter.to, 39)] {
        match address {
            Some(IpAddr::V4(v4)) => {
                out[at..at + 4].copy_from_slice(&v4.octets());
                version = 4;
            }
            Some(IpAddr::V6(v6)) => {
                out[at..at + 16].copy_from_slice(&v6.octets());
                version = 6;
            }
            None => {}
        }
        out[present_at] = u8::from(address.is_some());
    }
    out[32..34].copy_from_slice(&filter.from_port.unwrap_or(0).to_ne_bytes());
    out[34..36].copy_from_slice(&filter.to_port.unwrap_or(0).to_ne_bytes());
    out[36] = filter.protocol.unwrap_or(0);
    out[37] = version;
    put_words(out, 40, &[class]);
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn put_longs(out: &mut [u8], at: usize, values: &[u64]) {
    for (i, value) in values.iter().enumerate() {
        out[at + 8 * i..at + 8 * i + 8].copy_from_slice(&value.to_ne_bytes());
    }
}

fn put_words(out: &mut [u8], at: usize, values: &[u32]) {
    for (i, value) in values.iter().enumerate() {
        out[at + 4 * i..at + 4 * i + 4].copy_from_slice(&value.to_ne_bytes());
    }
}

fn long(bytes: &[u8], index: usize) -> u64 {
    let word = bytes.get(8 * index..8 * index + 8).and_then(|b| b.try_into().ok());
    word.map_or(0, u64::from_ne_bytes)
}

/// `struct port_counters`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClassCounters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) marked: u64,
    pub(crate) not_ect: u64,
    pub(crate) max_backlog_bytes: u64,
    pub(crate) unclassified: u64,
    pub(crate) drops_not_ect: u64,
    pub(crate) drops_overload: u64,
}

impl ClassCounters {
    pub(crate) fn add(self, bytes: &[u8]) -> Self {
        Self {
            packets: self.packets + long(bytes, 0),
            bytes: self.bytes + long(bytes, 1),
            marked: self.marked + long(bytes, 2),
            not_ect: self.not_ect + long(bytes, 3),
            max_backlog_bytes: self.max_backlog_bytes.max(long(bytes, 4)),
            unclassified: self.unclassified + long(bytes, 5),
            drops_not_ect: self.drops_not_ect + long(bytes, 6),
            drops_overload: self.drops_overload + long(bytes, 7),
        }
    }
}

/// `struct port_state`, as far as it is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct State {
    rtt_ns: [u64; MAX_CLASSES],
    rtt_samples: [u64; MAX_CLASSES],
    threshold: [u64; MAX_CLASSES],
}

impl State {
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        Self {
            rtt_ns: std::array::from_fn(|class| long(bytes, 2 + class)),
            rtt_samples: std::array::from_fn(|class| long(bytes, 10 + class)),
            threshold: std::array::from_fn(|class| long(bytes, 18 + class)),
        }
    }

    /// What was measured in a class; `None` before there was anything.
    pub(crate) fn rtt_ns(&self, class: usize) -> Option<u64> {
        self.rtt_ns.get(class).copied().filter(|ns| *ns > 0)
    }

    pub(crate) fn rtt_samples(&self) -> u64 {
        self.rtt_samples.iter().sum()
    }

    /// What the last packet of a class was held against; `None` before the first, and before an RTT is measured.
    pub(crate) fn threshold(&self, class: usize) -> Option<u64> {
        self.threshold.get(class).copied().filter(|bytes| *bytes > 0 && *bytes < u64::MAX)
    }
}
