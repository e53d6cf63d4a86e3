//! Segments that wait on a subflow for earlier ones, and the SACK ranges that report them (RFC 2018, RFC 2883).

use crate::packet::{Sack, SackRange};
use crate::tcp::reorder::Arrivals;

/// Fields kept of a segment until it is in order on its subflow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BufferedSegment {
    pub(super) data_seq: u32,
    pub(super) len_bytes: u16,
    pub(super) last: bool,
}

/// Kept once a subflow has seen reordering.
#[derive(Clone, Debug, Default)]
pub(super) struct OutOfOrder {
    /// The segments held, by sequence number modulo the length.
    pub(super) held: Box<[BufferedSegment]>,
    /// Ranges reported, the most recent first.
    pub(super) recent: Sack,
    /// Segment that arrived twice and has not been reported as a duplicate.
    pub(super) duplicate: Option<u32>,
}

impl OutOfOrder {
    /// Ranges that the next ACK reports.
    pub(super) fn ranges(&mut self) -> Sack {
        let Some(seq) = self.duplicate.take() else { return self.recent };
        let [first, second, third, _] = self.recent.ranges;
        Sack { ranges: [SackRange { start: seq, end: seq + 1 }, first, second, third] }
    }

    pub(super) fn get(&self, seq: u32) -> BufferedSegment {
        self.held[seq as usize & (self.held.len() - 1)]
    }

    /// Keeps segment `seq`, which lies above `next`.
    pub(super) fn hold(&mut self, seq: u32, segment: BufferedSegment, next: u32) {
        let need = (seq - next) as usize + 1;
        if need > self.held.len() {
            let mut bigger =
                vec![BufferedSegment::default(); need.next_power_of_two().max(32)].into_boxed_slice();
            let mask = bigger.len() - 1;
            for seq in next..next + self.held.len() as u32 {
                bigger[seq as usize & mask] = self.get(seq);
            }
            self.held = bigger;
        }
        let mask = self.held.len() - 1;
        self.held[seq as usize & mask] = segment;
    }

    /// The run around `seq`, by the ranges reported so far if they know it.
    pub(super) fn run(&self, seq: u32, arrivals: &Arrivals) -> (u32, u32) {
        match self.recent.ranges.iter().find(|r| r.end == seq && r.end > r.start) {
            Some(r) if !arrivals.has(seq + 1) => (r.start, seq + 1),
            _ => arrivals.run_around(seq),
        }
    }

    /// Puts the run `start..end` first and drops the ranges it has swallowed (RFC 2018 section 4).
    pub(super) fn report(&mut self, (start, end): (u32, u32), next: u32) {
        let old = self.recent.ranges;
        let mut fresh = Sack::EMPTY;
        fresh.ranges[0] = SackRange { start, end };
        let kept =
            old.iter().filter(|r| r.end > r.start && r.start >= next && (r.end < start || r.start > end));
        for (slot, range) in fresh.ranges.iter_mut().skip(1).zip(kept) {
            *slot = *range;
        }
        self.recent = fresh;
    }

    pub(super) fn drop_below(&mut self, next: u32) {
        let old = self.recent.ranges;
        self.recent = Sack::EMPTY;
        let kept = old.iter().filter(|r| r.start >= next && r.end > r.start);
        for (slot, range) in self.recent.ranges.iter_mut().zip(kept) {
            *slot = *range;
        }
    }
}
