//! A configuration resolved for one link: rates, quanta and buffers of each class as the queues and the tc program take them.

use vmcc_units::{BitsPerSec, Bytes, Limit};

/// Size of the link-layer header in front of a packet of the MTU, in bytes (Ethernet).
pub const LINK_HEADER_BYTES: u64 = 14;

/// Rate that stands for none.
pub(crate) const UNCAPPED: BitsPerSec = BitsPerSec::new(100_000_000_000);
/// Rate of a class without a guarantee under strict priority before it borrows: nearly nothing.
pub const NO_RIGHT: BitsPerSec = BitsPerSec::new(8_000);

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

/// A port as its queues and its program take it.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// True if the port has a rate or several classes, so that it needs queues of its own.
    pub queues: bool,
    /// Least of the port's rate and of its (part of the) VM's budget; `None`: uncapped.
    pub cap: Option<BitsPerSec>,
    /// Capacity for computed thresholds: the cap, or else the link's speed. `None`: neither is known; then no class marks by
    /// MQ-ECN.
    pub capacity: Option<BitsPerSec>,
    /// True if classes are served in their order instead of in turns.
    pub strict: bool,
    /// True if a class has a guarantee, which is served before turns and order.
    pub guarantees: bool,
    /// True if classes that mark serve their sparse flows first, on a backend that can.
    pub sparse: bool,
    /// One MTU with its link-layer header.
    pub frame_bytes: u64,
    /// Share of the rate at which virtual queues drain, in 1/65536; zero: real queues.
    pub phantom_q16: u32,
    /// A measured RTT counts as no less than the first and no more than the second, in nanoseconds.
    pub rtt_bounds_ns: [u64; 2],
    /// Service queues, at least one and at most [`crate::MAX_CLASSES`]. Packets that no class takes go to the last.
    pub classes: Vec<ClassPlan>,
}

/// A service queue as the kernel takes it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassPlan {
    /// Name in counters.
    pub name: String,
    /// Assured rate: its guarantee, or its weight's share of what the guarantees leave.
    pub right: BitsPerSec,
    /// Ceiling, at most the port's rate.
    pub ceiling: BitsPerSec,
    /// Quantum, in bytes per round.
    pub quantum_bytes: u32,
    /// 0 is served first.
    pub priority: u32,
    /// Buffer, in the unit of the setting.
    pub limit: Limit,
    /// Setting that the buffer is from.
    pub limit_key: String,
    /// Marking rule.
    pub rule: Rule,
    /// Upper bound of computed thresholds.
    pub max_threshold_bytes: u64,
    /// A longer queue is overloaded.
    pub overload_bytes: u64,
    /// Buffer in bytes; a limit in packets counts packets of the MTU.
    pub buffer_bytes: u64,
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

impl Lambda {
    /// Threshold of a queue that drains at this rate; `None` while the RTT is not known.
    pub(crate) fn bytes_at(self, bytes_per_s: u64) -> Option<u64> {
        let delay = u128::from(self.rtt_ns?) * u128::from(self.lambda_q16);
        let bytes = u128::from(bytes_per_s).saturating_mul(delay) / (1_000_000_000 << 16);
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl Plan {
    /// The port's rate, or the capacity of its link, or one that no link has.
    pub fn rate(&self) -> BitsPerSec {
        self.capacity.unwrap_or(UNCAPPED)
    }

    /// True if it marks by the length of a queue that somebody else has put on the port: no queues of ours, no virtual ones.
    pub fn needs_a_queue(&self) -> bool {
        self.marks() && !self.queues && self.phantom_q16 == 0
    }

    /// True if a class marks.
    pub fn marks(&self) -> bool {
        self.classes.iter().any(|class| class.rule != Rule::None)
    }

    /// True if a threshold is computed from a measured RTT.
    pub fn measures_rtt(&self) -> bool {
        self.classes.iter().any(|class| class.rule.lambda().is_some_and(|lambda| lambda.rtt_ns.is_none()))
    }

    /// Threshold of a class while every class sends, in bytes; `None` if it is not known beforehand.
    pub fn min_threshold_bytes(&self, class: &ClassPlan) -> Option<u64> {
        match class.rule {
            Rule::None => None,
            Rule::Threshold(bytes) => Some(bytes),
            Rule::MqEcn(lambda) | Rule::Tcn(lambda) => {
                let all: u64 = self.classes.iter().map(|class| u64::from(class.quantum_bytes)).sum();
                let share = u128::from(class.quantum_bytes) * u128::from(self.rate().bytes_per_sec());
                lambda.bytes_at(u64::try_from(share / u128::from(all.max(1))).unwrap_or(u64::MAX))
            }
        }
    }

    /// The RTT that a class's threshold uses, of what was measured for it, in nanoseconds.
    pub fn rtt_ns_of(&self, class: &ClassPlan, measured: Option<u64>) -> Option<u64> {
        let [least, most] = self.rtt_bounds_ns;
        class.rule.lambda()?.rtt_ns.or(measured.map(|rtt| rtt.max(least).min(most)))
    }
}
