//! A link of the lab: the port that sends into it, and its impairments.

use vmcc_port::{ClassConfig, PortConfig};
use vmcc_scenario::model::{Marking, Queue};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos};

/// An Ethernet frame that carries a full packet: 1500 bytes and a header of 14.
pub(crate) const FRAME_BYTES: u64 = 1514;

/// A port that sends at a rate, with its queues.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Rate of Ethernet frames (14 bytes of header on each packet).
    pub rate: BitsPerSec,
    /// Limit of each of the port's queues. Bytes are bytes of Ethernet frames.
    pub buffer: Limit,
    /// Rule by which the queues mark ECN-capable packets.
    pub marking: Marking,
    /// The queues.
    pub queue: Queue,
}

/// Impairments behind a port. Any that is not zero requires the kernel's netem, or the lab's user-space links.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Wire {
    /// One-way propagation delay.
    pub delay: Nanos,
    /// The most of a random extra delay, by which packets overtake each other.
    pub jitter: Nanos,
    /// The probability with which a packet is lost.
    pub loss: f64,
}

impl Shape {
    /// The largest buffer of a queue, in bytes of Ethernet frames.
    pub(crate) fn buffer_bytes(&self) -> Option<u64> {
        Some(self.buffer.bytes(Bytes::new(FRAME_BYTES))?.get())
    }

    /// The same as data for a port of the virtual switch. Class k takes the packets of [`crate::spec::dscp`] k.
    pub(crate) fn config(&self) -> PortConfig {
        let all: u64 = self.queue.weights.iter().map(|weight| u64::from(*weight)).sum();
        let share = |weight: u32| {
            let part = u128::from(self.rate.get()) * u128::from(weight) / u128::from(all.max(1));
            BitsPerSec::new(u64::try_from(part).unwrap_or(u64::MAX))
        };
        let class = |(number, weight): (usize, &u32)| ClassConfig {
            weight: *weight,
            ceiling: (!self.queue.lending).then(|| share(*weight)),
            dscp: vec![super::dscp(u32::try_from(number).unwrap_or(u32::MAX))],
            ..ClassConfig::named(number.to_string())
        };
        PortConfig {
            rate: Some(self.rate),
            queue: Some(self.queue.kind),
            quantum: self.queue.quantum,
            buffer: self.buffer,
            marking: Some(self.marking),
            // As the simulator's switches do.
            not_ect: vmcc_port::NotEct::Queue,
            overload: 1.0,
            sparse: false,
            classes: self.queue.weights.iter().enumerate().map(class).collect(),
            ..PortConfig::default()
        }
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        // Below, a full frame takes over a second; above, one core cannot keep up and the figure would lie.
        if !(10_000..=10_000_000_000).contains(&self.rate.get()) {
            return Err(("rate", format!("{} is outside 10kbit to 10gbit", self.rate)));
        }
        match self.buffer_bytes() {
            Some(bytes) if (FRAME_BYTES..=u64::from(u32::MAX / 2)).contains(&bytes) => Ok(()),
            _ => Err(("buffer", format!("{} is not within one packet and 2 GB", self.buffer))),
        }
    }
}

/// A setting that cannot be built, and why.
pub(super) type Refusal = (&'static str, String);

impl Wire {
    /// True if it delays or loses packets.
    pub(crate) fn is_impaired(&self) -> bool {
        !self.delay.is_zero() || !self.jitter.is_zero() || self.loss > 0.0
    }

    /// Checks that delay and jitter are at most 2 s.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let most = Nanos::from_secs(2);
        for (key, time) in [("delay", self.delay), ("jitter", self.jitter)] {
            if time > most {
                return Err((key, format!("{time} is more than {most}")));
            }
        }
        Ok(())
    }
}
