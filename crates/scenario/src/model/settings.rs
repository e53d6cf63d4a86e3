//! A link's settings after merging what a topology says of all its links with what it says of one.

use super::link::{Loss, Marking, Queue};
use super::topology::{Dumbbell, FatTree, GraphLink, ParallelPaths, PathSpec, TwoPod};
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
    fn plain(rate: BitsPerSec, delay: Nanos, buffer: Limit) -> Self {
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

    fn with_queues(self, marking: Marking, queue: &Queue) -> Self {
        Self { marking, queue: queue.clone(), ..self }
    }
}

impl ParallelPaths {
    /// The paths by name, each with its own settings filled in.
    pub fn links(&self) -> Vec<(String, LinkSettings)> {
        let settings = |path: &PathSpec| LinkSettings {
            rate: path.rate.unwrap_or(self.rate),
            delay: path.delay.unwrap_or(self.delay),
            buffer: path.buffer.unwrap_or(self.buffer),
            marking: path.marking.unwrap_or(self.marking),
            queue: self.queue.clone(),
            loss: path.loss.unwrap_or(self.loss),
            jitter: path.jitter.unwrap_or(self.jitter),
        };
        self.paths.0.iter().map(|path| (path.name.clone(), settings(path))).collect()
    }
}

impl Dumbbell {
    /// The bottleneck's settings.
    pub fn bottleneck(&self) -> LinkSettings {
        let plain = LinkSettings::plain(self.rate, self.delay, self.buffer);
        LinkSettings { loss: self.loss, ..plain.with_queues(self.marking, &self.queue) }
    }

    /// The settings of the hosts' own links.
    pub fn access(&self) -> LinkSettings {
        LinkSettings::plain(self.access_rate.unwrap_or(self.rate), self.access_delay, self.access_buffer)
    }
}

impl TwoPod {
    /// The settings of a switch's port to a NIC.
    pub fn port(&self) -> LinkSettings {
        LinkSettings::plain(self.rate, self.delay, self.buffer).with_queues(self.marking, &self.queue)
    }
}

impl FatTree {
    /// The settings of a switch's port.
    pub fn port(&self) -> LinkSettings {
        LinkSettings::plain(self.rate, self.delay, self.buffer).with_queues(self.marking, &self.queue)
    }
}

impl GraphLink {
    /// Its settings.
    pub fn settings(&self) -> LinkSettings {
        let plain = LinkSettings::plain(self.rate, self.delay, self.buffer);
        let queued = plain.with_queues(self.marking, &self.queue);
        LinkSettings { loss: self.loss, jitter: self.jitter, ..queued }
    }
}
