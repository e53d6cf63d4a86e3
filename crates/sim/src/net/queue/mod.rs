//! Queues of links with a scheduler, and their disciplines (DRR, shaper).

pub(crate) mod drr;
pub(crate) mod shaper;

use std::collections::VecDeque;

use crate::net::spec::{LimitSpec, ThresholdSpec};
use crate::time::Time;

/// A queued packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedPacket {
    pub(crate) id: u32,
    pub(crate) size: u16,
    pub(crate) since: Time,
}

/// Decision of the scheduler when the wire is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Send the head of this queue.
    Queue(usize),
    /// Nothing may be sent before this instant.
    Wait(Time),
    /// Nothing waits.
    Empty,
}

/// One class's FIFO.
#[derive(Clone, Debug)]
pub(crate) struct ClassQueue {
    packets: VecDeque<QueuedPacket>,
    bytes: u64,
    limit: LimitSpec,
    mark: Option<ThresholdSpec>,
}

impl ClassQueue {
    pub(crate) fn new(limit: LimitSpec, mark: Option<ThresholdSpec>) -> ClassQueue {
        ClassQueue { packets: VecDeque::new(), bytes: 0, limit, mark }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Size of the packet at the head.
    pub(crate) fn head_size(&self) -> Option<u16> {
        self.packets.front().map(|p| p.size)
    }

    pub(crate) fn has_room(&self, size: u16) -> bool {
        match self.limit {
            LimitSpec::Bytes(bytes) => self.bytes + u64::from(size) <= bytes,
            LimitSpec::Packets(n) => self.packets.len() < n as usize,
            LimitSpec::Unlimited => true,
        }
    }

    /// True if an arrival now meets a backlog above the class's threshold; `ps_per_byte_q16` converts a threshold in time.
    pub(crate) fn above_threshold(&self, ps_per_byte_q16: u64) -> bool {
        self.threshold_bytes(ps_per_byte_q16).is_some_and(|threshold| self.bytes > threshold)
    }

    /// The threshold in bytes, if it has one of its own.
    pub(crate) fn threshold_bytes(&self, ps_per_byte_q16: u64) -> Option<u64> {
        self.mark.map(|mark| mark.in_bytes(ps_per_byte_q16))
    }

    pub(crate) fn push(&mut self, packet: QueuedPacket) {
        self.bytes += u64::from(packet.size);
        self.packets.push_back(packet);
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedPacket> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.size);
        Some(packet)
    }
}
