//! A port's queues and marking rules as the simulator's.

use vmcc_network::{Discipline, Guarantee, LinkSettings, Loss, Marking, Queue};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos, Packets, Threshold};

use super::error::FabricError;
use super::span;
use crate::net::{
    ClassSpec, LimitSpec, LossSpec, MarkingSpec, QueueSpec, RedSpec, Scheduling, ShaperClass, ThresholdSpec,
};
use crate::time::Span;

/// The queue of a port, for packets of `mtu`.
///
/// # Errors
/// [`FabricError::Unsupported`] for rules that the simulator does not have there.
pub(super) fn of(port: &vmcc_network::Port, mtu: Bytes) -> Result<QueueSpec, FabricError> {
    let spec = Port::of(&port.settings, mtu, span(port.rtt));
    if port.guarantees.is_empty() { spec.spec() } else { spec.buckets(&port.guarantees) }
}

/// Settings from which a queue is built.
struct Port<'a> {
    rate: BitsPerSec,
    buffer: Limit,
    marking: &'a Marking,
    queue: &'a Queue,
    mtu: Bytes,
    /// The RTT of rules that give none.
    base_rtt: Span,
}

impl<'a> Port<'a> {
    fn of(link: &'a LinkSettings, mtu: Bytes, base_rtt: Span) -> Self {
        Self {
            rate: link.rate,
            buffer: link.buffer,
            marking: &link.marking,
            queue: &link.queue,
            mtu,
            base_rtt,
        }
    }

    /// The queue of one port.
    ///
    /// # Errors
    /// [`FabricError::Unsupported`] for RED in several queues.
    fn spec(&self) -> Result<QueueSpec, FabricError> {
        match self.queue.kind {
            Discipline::Fifo => Ok(self.fifo()),
            Discipline::Drr if !self.queue.lending => self.capped(),
            Discipline::Drr | Discipline::Priority => self.classes(),
        }
    }

    fn fifo(&self) -> QueueSpec {
        let limit = limit(self.buffer);
        let mark = |mark| QueueSpec::Fifo { limit, mark };
        match self.marking {
            Marking::None => mark(None),
            Marking::Threshold(rule) => mark(Some(self.threshold(rule.at))),
            // One queue has the whole port: its threshold is the port's.
            Marking::MqEcn(rule) => mark(Some(ThresholdSpec::Bytes(self.port_bytes(rule.lambda, rule.rtt)))),
            Marking::Tcn(rule) => QueueSpec::Classes {
                scheduling: Scheduling::StrictPriority,
                marking: MarkingSpec::Tcn { sojourn: self.sojourn(rule.lambda, rule.rtt) },
                classes: vec![ClassSpec { quantum_bytes: 1, limit, mark: None }],
            },
            Marking::Red(rule) => QueueSpec::Red(RedSpec {
                limit,
                min_bytes: self.bytes(rule.min),
                max_bytes: self.bytes(rule.max),
                max_probability: rule.probability,
                weight: rule.weight,
                ecn: true,
            }),
        }
    }

    fn classes(&self) -> Result<QueueSpec, FabricError> {
        let (mark, marking) = match self.marking {
            Marking::None => (None, MarkingSpec::None),
            Marking::Threshold(rule) => (Some(self.threshold(rule.at)), MarkingSpec::None),
            Marking::MqEcn(rule) => {
                let port_threshold_bytes = self.port_bytes(rule.lambda, rule.rtt);
                (None, MarkingSpec::MqEcn { port_threshold_bytes })
            }
            Marking::Tcn(rule) => (None, MarkingSpec::Tcn { sojourn: self.sojourn(rule.lambda, rule.rtt) }),
            Marking::Red(_) => {
                return Err(FabricError::Unsupported {
                    what: "RED in a port of several queues",
                    remedy: "use the rule mq-ecn, tcn or threshold there",
                });
            }
        };
        let quantum = self.queue.quantum.unwrap_or(self.mtu).get();
        let class = |weight: &u32| ClassSpec {
            quantum_bytes: u32::try_from(quantum.saturating_mul(u64::from(*weight))).unwrap_or(u32::MAX),
            limit: limit(self.buffer),
            mark,
        };
        let scheduling = match self.queue.kind {
            Discipline::Priority => Scheduling::StrictPriority,
            Discipline::Fifo | Discipline::Drr => Scheduling::DeficitRoundRobin,
        };
        Ok(QueueSpec::Classes {
            scheduling,
            marking,
            classes: self.queue.weights.iter().map(class).collect(),
        })
    }

    /// Token buckets whose ceiling is the weight's share. Rates are fixed, and so are MQ-ECN's thresholds; a sojourn
    /// time is a length.
    fn capped(&self) -> Result<QueueSpec, FabricError> {
        let all: u64 = self.queue.weights.iter().map(|weight| u64::from(*weight)).sum();
        let part = |whole: u64, weight: u32| {
            let part = u128::from(whole) * u128::from(weight) / u128::from(all.max(1));
            u64::try_from(part).unwrap_or(whole)
        };
        let class = |parent, rate: u64, mark| ShaperClass {
            parent,
            guarantee_bps: rate,
            ceiling_bps: rate,
            burst_bytes: 2 * self.mtu.get(),
            limit: limit(self.buffer),
            mark,
        };
        let mark = |weight: u32| match self.marking {
            Marking::None => Ok(None),
            Marking::Threshold(rule) => Ok(Some(self.threshold(rule.at))),
            Marking::MqEcn(rule) => {
                Ok(Some(ThresholdSpec::Bytes(part(self.port_bytes(rule.lambda, rule.rtt), weight))))
            }
            Marking::Tcn(rule) => Ok(Some(ThresholdSpec::Time(self.sojourn(rule.lambda, rule.rtt)))),
            Marking::Red(_) => Err(FabricError::Unsupported {
                what: "RED in a port of several queues",
                remedy: "use the rule mq-ecn, tcn or threshold there",
            }),
        };
        let mut classes = vec![class(None, self.rate.get(), None)];
        for &weight in &self.queue.weights {
            classes.push(class(Some(0), part(self.rate.get(), weight).max(1), mark(weight)?));
        }
        Ok(QueueSpec::Shaper { classes })
    }

    /// One leaf per host, guaranteed its share, all lending to each other.
    fn buckets(&self, guarantees: &[Guarantee]) -> Result<QueueSpec, FabricError> {
        let class = |parent, guarantee_bps, mark| ShaperClass {
            parent,
            guarantee_bps,
            ceiling_bps: self.rate.get(),
            burst_bytes: 2 * self.mtu.get(),
            limit: limit(self.buffer),
            mark,
        };
        let mut classes = vec![class(None, self.rate.get(), None)];
        for guarantee in guarantees {
            let mark = Port { rate: guarantee.rate, ..*self }.leaf_mark()?;
            classes.push(class(Some(0), guarantee.rate.get(), mark));
        }
        Ok(QueueSpec::Shaper { classes })
    }

    fn leaf_mark(&self) -> Result<Option<ThresholdSpec>, FabricError> {
        match self.marking {
            Marking::None => Ok(None),
            Marking::Threshold(rule) => Ok(Some(self.threshold(rule.at))),
            Marking::MqEcn(rule) => Ok(Some(ThresholdSpec::Bytes(self.port_bytes(rule.lambda, rule.rtt)))),
            Marking::Red(_) | Marking::Tcn(_) => Err(FabricError::Unsupported {
                what: "marking by RED or TCN in hierarchical token buckets",
                remedy: "use the rule threshold or mq-ecn with share = \"htb\"",
            }),
        }
    }

    fn threshold(&self, threshold: Threshold) -> ThresholdSpec {
        match threshold {
            Threshold::Time(time) => ThresholdSpec::Time(span(time)),
            other => ThresholdSpec::Bytes(self.bytes(other)),
        }
    }

    /// Validation has refused what overflows.
    fn bytes(&self, threshold: Threshold) -> u64 {
        threshold.bytes(self.rate, self.mtu).map_or(u64::MAX, Bytes::get)
    }

    fn sojourn(&self, lambda: f64, rtt: Option<Nanos>) -> Span {
        let rtt = rtt.map_or(self.base_rtt, span);
        Span::from_ps((rtt.ps() as f64 * lambda) as u64)
    }

    /// Capacity x RTT x lambda.
    fn port_bytes(&self, lambda: f64, rtt: Option<Nanos>) -> u64 {
        let seconds = self.sojourn(lambda, rtt).secs_f64();
        (self.rate.get() as f64 / 8.0 * seconds) as u64
    }
}

/// A buffer.
fn limit(buffer: Limit) -> LimitSpec {
    match buffer {
        Limit::Bytes(bytes) => LimitSpec::Bytes(bytes.get()),
        Limit::Packets(count) => LimitSpec::Packets(u32::try_from(count.get()).unwrap_or(u32::MAX)),
    }
}

/// Loss; `None` if there is none.
pub(crate) fn loss(loss: &Loss) -> Option<LossSpec> {
    let p = loss.probability;
    let burst = loss.burst.map_or(1, Packets::get) as f64;
    if p <= 0.0 {
        return None;
    }
    if burst <= 1.0 || p >= 1.0 {
        return Some(LossSpec::Bernoulli(p));
    }
    // The bad state loses everything and lasts `burst` packets; a share p of packets falls into it.
    let to_good = 1.0 / burst;
    let to_bad = (to_good * p / (1.0 - p)).min(1.0);
    Some(LossSpec::GilbertElliott { to_bad, to_good, loss_good: 0.0, loss_bad: 1.0 })
}
