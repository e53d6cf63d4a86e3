//! A link's settings after merging what a topology says of all its links with what it says of one.

use crate::port::{Loss, Marking, Queue};
use vmcc_units::{BitsPerSec, Limit, Nanos};

/// Everything about one link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSettings {
    /// Rate in each direction.
    pub rate: BitsPerSec,
    /// One-way delay.
    pub delay: Nanos,
    /// The buffer at each end.
    pub buffer: Limit,
    /// When the queues mark.
    pub marking: Marking,
    /// The queues at each end.
    pub queue: Queue,
    /// Packets lost on the way.
    pub loss: Loss,
    /// The most of a random extra delay.
    pub jitter: Nanos,
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
        }
    }

    /// The same with these queues.
    pub fn with_queues(self, marking: Marking, queue: &Queue) -> Self {
        Self { marking, queue: queue.clone(), ..self }
    }
}
