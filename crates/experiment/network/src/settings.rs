//! The settings of one direction of a link, after merging what a topology says of all its links, of one, and of its
//! other direction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos};

use crate::check::{self, Check, Fault};
use crate::port::{Loss, Queue};
use vmcc_config::Marking;

/// Everything about one direction of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSettings {
    /// Its rate.
    pub rate: BitsPerSec,
    /// One-way delay.
    pub delay: Nanos,
    /// The buffer of its port.
    pub buffer: Limit,
    /// Marking rule of the queues.
    pub marking: Marking,
    /// The queues of its port.
    pub queue: Queue,
    /// Packets lost on the link.
    pub loss: Loss,
    /// The most of a random extra delay.
    pub jitter: Nanos,
    /// Reordering: packets overtake each other by it.
    pub reorder: bool,
}

impl LinkSettings {
    /// A link with one queue at each end, that marks nothing and loses nothing.
    pub fn plain(rate: BitsPerSec, delay: Nanos, buffer: Limit) -> Self {
        Self {
            rate,
            delay,
            buffer,
            marking: Marking::None,
            queue: Queue::default(),
            loss: Loss::default(),
            jitter: Nanos::ZERO,
            reorder: false,
        }
    }

    /// Checks every setting; `path` is where they stand.
    pub(crate) fn check(&self, mtu: Bytes, path: &str) -> Check {
        check::rate(self.rate, &format!("{path}.rate"))?;
        check::delay(self.delay, &format!("{path}.delay"))?;
        check::delay(self.jitter, &format!("{path}.jitter"))?;
        check::buffer(self.buffer, mtu, &format!("{path}.buffer"))?;
        check::queue(&self.queue, &format!("{path}.queue"))?;
        check::shares(&self.queue, self.rate, &format!("{path}.queue"))?;
        check::loss(&self.loss, &format!("{path}.loss"))?;
        check::marking(&self.marking, self.rate, self.buffer, mtu, &format!("{path}.marking"))
    }

    /// The same with these queues.
    pub fn with_queues(self, marking: Marking, queue: &Queue) -> Self {
        Self { marking, queue: queue.clone(), ..self }
    }
}

/// Differences of a link's other direction. Absent keys are as in the first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reverse {
    /// The rate back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitsPerSec>,
    /// The one-way delay back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Nanos>,
    /// The buffer of the port that sends back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Limit>,
    /// Marking rule of that port's queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marking: Option<Marking>,
    /// Packets lost in the reverse direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// The most of a random extra delay in the reverse direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Nanos>,
}

impl Reverse {
    /// The other direction of a link that is `there` in the first.
    pub fn of(&self, there: &LinkSettings) -> LinkSettings {
        LinkSettings {
            rate: self.rate.unwrap_or(there.rate),
            delay: self.delay.unwrap_or(there.delay),
            buffer: self.buffer.unwrap_or(there.buffer),
            marking: self.marking.unwrap_or(there.marking),
            loss: self.loss.unwrap_or(there.loss),
            jitter: self.jitter.unwrap_or(there.jitter),
            ..there.clone()
        }
    }

    /// The same, where `other` says what this one does not.
    pub(crate) fn or(&self, other: &Self) -> Self {
        Self {
            rate: self.rate.or(other.rate),
            delay: self.delay.or(other.delay),
            buffer: self.buffer.or(other.buffer),
            marking: self.marking.or(other.marking),
            loss: self.loss.or(other.loss),
            jitter: self.jitter.or(other.jitter),
        }
    }

    /// Returns true if it sets a key.
    pub(crate) fn says(&self, key: &str) -> bool {
        match key {
            "rate" => self.rate.is_some(),
            "delay" => self.delay.is_some(),
            "buffer" => self.buffer.is_some(),
            "marking" => self.marking.is_some(),
            "loss" => self.loss.is_some(),
            "jitter" => self.jitter.is_some(),
            _ => false,
        }
    }

    /// Everything about the other direction of a link whose own settings, at `path`, have been checked.
    pub(crate) fn check(&self, there: &LinkSettings, mtu: Bytes, path: &str) -> Check {
        self.of(there).check(mtu, "").map_err(|bad| {
            if self.says(&first_key(&bad)) {
                return Fault { path: format!("{path}.reverse{}", bad.path), ..bad };
            }
            // A threshold that fits one rate or buffer and not the other stands where the rule does.
            on_the_way_back(Fault { path: format!("{path}{}", bad.path), ..bad })
        })
    }
}

/// A fault of what is right in the first direction.
pub(crate) fn on_the_way_back(fault: Fault) -> Fault {
    Fault { message: format!("{} (on the way back, with what `reverse` says)", fault.message), ..fault }
}

/// The key of a link's settings at which a fault is that was found with no path in front.
pub(crate) fn first_key(fault: &Fault) -> String {
    fault.path.trim_start_matches('.').split('.').next().unwrap_or_default().to_owned()
}
