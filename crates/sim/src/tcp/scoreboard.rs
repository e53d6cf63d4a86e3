//! Segments in flight on a subflow: one 16-byte entry and four mark bits per segment, in rings.
//!
//! Modelled: the retransmission queue with SACK, lost and retransmitted marks (RFC 6675 section 3 in the
//! formulation of Linux: `in_flight = out - sacked - lost + retransmitted`), RACK's time order (RFC 8985
//! section 6.2) and RFC 6675's `IsLost`.
//! Not modelled: partial acknowledgment of a segment, SACK reneging.
//!
//! While nothing is marked, an ACK moves one number. Marks are scanned 64 segments at a time.
//!
//! Invariant: marks of segments outside `una..nxt` are zero.

mod delivery;
mod losses;

pub(crate) use delivery::{Delivery, Rack};

use crate::time::{Span, Time};
use prefetch_index::prefetch_index;

/// A segment in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    /// Time of the last transmission.
    pub(crate) sent: Time,
    /// Its data sequence number.
    pub(crate) data_seq: u32,
    /// Payload, in bytes.
    pub(crate) len_bytes: u16,
}

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    sacked: u64,
    lost: u64,
    /// A retransmission is in flight.
    again: u64,
    /// Was ever retransmitted (Karn's rule).
    ever: u64,
}

/// Segments `una..nxt` of a subflow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scoreboard {
    una: u32,
    nxt: u32,
    mask: u32,
    word_mask: u32,
    /// One past the highest segment that ever had a mark.
    marked_end: u32,
    /// One past the highest SACKed segment (Linux's forward acknowledgment).
    high_sacked: u32,
    /// No segment below needs a retransmission.
    hint: u32,
    sacked_out: u32,
    lost_out: u32,
    again_out: u32,
    /// No retransmission in flight left earlier.
    oldest_again: Time,
    ring: Box<[Segment]>,
    marks: Box<[Marks]>,
}

/// Segments that a ring holds at first: the initial window and its first doubling.
const MIN_RING: u32 = 32;

/// Bits `from..to` of the word that starts at `base`, as a mask.
#[inline]
fn span_mask(base: u32, from: u32, to: u32) -> u64 {
    let low = if from > base { u64::MAX << (from - base) } else { u64::MAX };
    let high = if to - base >= 64 { u64::MAX } else { !(u64::MAX << (to - base)) };
    low & high
}

impl Scoreboard {
    /// Room for a few segments; grows by doubling. Small rings stay in the cache.
    pub(crate) fn allocate(&mut self) {
        if self.ring.is_empty() {
            self.resize(MIN_RING);
        }
    }

    /// Gives back what a burst needed and the window does not.
    pub(crate) fn shrink(&mut self) {
        let enough = (2 * self.out()).next_power_of_two().max(MIN_RING);
        if 2 * enough <= self.mask {
            self.resize(enough);
        }
    }

    /// Frees the memory of a finished subflow; nothing is in flight afterwards.
    pub(crate) fn release(&mut self) {
        *self = Scoreboard { una: self.nxt, nxt: self.nxt, hint: self.nxt, ..Scoreboard::default() };
    }

    fn resize(&mut self, capacity: u32) {
        let mut ring = vec![Segment::default(); capacity as usize].into_boxed_slice();
        // A word of marks must not hold both ends of the window: one word more than the segments fill.
        let words = (capacity / 64 + 1).next_power_of_two().max(2);
        let mut marks = vec![Marks::default(); words as usize].into_boxed_slice();
        let (mask, word_mask) = (capacity - 1, words - 1);
        for seq in self.una..self.nxt {
            ring[(seq & mask) as usize] = self.ring[(seq & self.mask) as usize];
        }
        for base in (self.una & !63..self.nxt).step_by(64).filter(|_| !self.marks.is_empty()) {
            let valid = span_mask(base, self.una, self.nxt);
            let old = self.marks[self.word(base)];
            let new = &mut marks[(base >> 6 & word_mask) as usize];
            new.sacked |= old.sacked & valid;
            new.lost |= old.lost & valid;
            new.again |= old.again & valid;
            new.ever |= old.ever & valid;
        }
        self.ring = ring;
        self.marks = marks;
        (self.mask, self.word_mask) = (mask, word_mask);
    }

    #[inline]
    fn word(&self, seq: u32) -> usize {
        (seq >> 6 & self.word_mask) as usize
    }

    #[inline]
    pub(crate) fn una(&self) -> u32 {
        self.una
    }

    #[inline]
    pub(crate) fn nxt(&self) -> u32 {
        self.nxt
    }

    /// Asks for the cache lines of the oldest segment in flight.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_index(&self.ring, (self.una & self.mask) as usize);
        if !self.is_clean() {
            prefetch_index(&self.marks, self.word(self.una));
        }
    }

    /// Segments sent and not cumulatively acknowledged.
    #[inline]
    pub(crate) fn out(&self) -> u32 {
        self.nxt - self.una
    }

    #[inline]
    pub(crate) fn sacked_out(&self) -> u32 {
        self.sacked_out
    }

    #[inline]
    pub(crate) fn lost_out(&self) -> u32 {
        self.lost_out
    }

    #[inline]
    pub(crate) fn again_out(&self) -> u32 {
        self.again_out
    }

    /// Linux's `tcp_packets_in_flight`.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.nxt - self.una - self.sacked_out - self.lost_out + self.again_out
    }

    /// True if no segment in flight has ever been marked.
    #[inline]
    pub(crate) fn is_clean(&self) -> bool {
        self.una >= self.marked_end
    }

    #[inline]
    pub(crate) fn segment(&self, seq: u32) -> &Segment {
        &self.ring[(seq & self.mask) as usize]
    }

    #[inline]
    fn marks_of(&mut self, seq: u32) -> (&mut Marks, u64) {
        (&mut self.marks[(seq >> 6 & self.word_mask) as usize], 1 << (seq & 63))
    }

    /// Adds a first transmission and returns its sequence number.
    #[inline]
    pub(crate) fn push(&mut self, segment: Segment) -> u32 {
        if self.out() > self.mask {
            self.resize((self.mask + 1) * 2);
        }
        let seq = self.nxt;
        self.ring[(seq & self.mask) as usize] = segment;
        self.nxt = seq + 1;
        seq
    }

    /// Moves `una` up to `ack` (at most `nxt`); the path without marks.
    #[inline]
    pub(crate) fn ack_clean(&mut self, ack: u32) {
        debug_assert!(self.is_clean() && ack <= self.nxt);
        self.una = ack;
    }

    /// Moves `una` up to `ack` (at most `nxt`) and clears what was marked below it.
    pub(crate) fn ack(&mut self, ack: u32, now: Time, min_rtt: Span, rack: &mut Rack, got: &mut Delivery) {
        debug_assert!(ack <= self.nxt);
        while self.una < ack {
            let base = self.una & !63;
            let upto = ack.min(base + 64);
            let word = self.marks[self.word(base)];
            let span = span_mask(base, self.una, upto);
            for seq in self.una..upto {
                let bit = 1u64 << (seq & 63);
                if word.sacked & bit != 0 {
                    continue;
                }
                got.delivered += 1;
                let sent = self.ring[(seq & self.mask) as usize].sent;
                let ever = word.ever & bit != 0;
                rack.advance(now, sent, seq, ever, min_rtt);
                if ever {
                    got.retransmitted = true;
                } else {
                    got.original(seq, sent);
                    if seq < self.high_sacked && got.reordered_below.is_none() {
                        got.reordered_below = Some(seq);
                    }
                }
            }
            self.sacked_out -= (word.sacked & span).count_ones();
            self.lost_out -= (word.lost & span).count_ones();
            self.again_out -= (word.again & span).count_ones();
            let word = &mut self.marks[(base >> 6 & self.word_mask) as usize];
            word.sacked &= !span;
            word.lost &= !span;
            word.again &= !span;
            word.ever &= !span;
            self.una = upto;
        }
        self.hint = self.hint.max(self.una);
    }

    /// Marks `start..end` as received.
    pub(crate) fn sack(
        &mut self,
        (start, end): (u32, u32),
        now: Time,
        min_rtt: Span,
        rack: &mut Rack,
        got: &mut Delivery,
    ) {
        let (start, end) = (start.max(self.una), end.min(self.nxt));
        let high_before = self.high_sacked;
        let mut at = start;
        while at < end {
            let base = at & !63;
            let upto = end.min(base + 64);
            let span = span_mask(base, at, upto);
            let word = &mut self.marks[(base >> 6 & self.word_mask) as usize];
            let new = span & !word.sacked;
            let ever = word.ever;
            self.lost_out -= (word.lost & new).count_ones();
            self.again_out -= (word.again & new).count_ones();
            word.sacked |= new;
            word.lost &= !new;
            word.again &= !new;
            let mut rest = new;
            while rest != 0 {
                let seq = base + rest.trailing_zeros();
                let sent = self.ring[(seq & self.mask) as usize].sent;
                let was_retransmitted = ever & rest & rest.wrapping_neg() != 0;
                rack.advance(now, sent, seq, was_retransmitted, min_rtt);
                if !was_retransmitted {
                    got.original(seq, sent);
                    if seq < high_before && got.reordered_below.is_none_or(|s| seq < s) {
                        got.reordered_below = Some(seq);
                    }
                }
                rest &= rest - 1;
            }
            self.sacked_out += new.count_ones();
            got.sacked += new.count_ones();
            got.delivered += new.count_ones();
            at = upto;
        }
        if end > start {
            self.high_sacked = self.high_sacked.max(end);
            self.marked_end = self.marked_end.max(end);
        }
    }

    /// One past the highest SACKed segment; meaningful while something is SACKed.
    pub(crate) fn high_sacked(&self) -> u32 {
        self.high_sacked.max(self.una)
    }

    /// Notes a retransmission of `seq` at `now` and returns the segment.
    pub(crate) fn retransmit(&mut self, seq: u32, now: Time) -> Segment {
        debug_assert!((self.una..self.nxt).contains(&seq));
        if self.again_out == 0 {
            self.oldest_again = now;
        }
        let (word, bit) = self.marks_of(seq);
        let added = word.again & bit == 0;
        word.again |= bit;
        word.ever |= bit;
        self.again_out += u32::from(added);
        self.marked_end = self.marked_end.max(seq + 1);
        let segment = &mut self.ring[(seq & self.mask) as usize];
        segment.sent = now;
        *segment
    }

    /// Highest segment in flight that is not SACKed: what a tail loss probe repeats.
    pub(crate) fn highest_unsacked(&self) -> Option<u32> {
        (self.una..self.nxt).rev().find(|&seq| !self.is_sacked(seq))
    }

    /// True if `seq` is in flight and SACKed.
    pub(crate) fn is_sacked(&self, seq: u32) -> bool {
        self.marks[self.word(seq)].sacked & 1 << (seq & 63) != 0
    }

    /// Data sequence numbers in flight, in order of sending.
    pub(crate) fn data_seqs(&self) -> impl Iterator<Item = u32> + '_ {
        (self.una..self.nxt).map(|seq| self.segment(seq).data_seq)
    }

    /// True if any segment in flight has ever been retransmitted.
    pub(crate) fn any_again(&self) -> bool {
        (self.una..self.nxt).any(|seq| self.marks[self.word(seq)].ever >> (seq & 63) & 1 != 0)
    }

    /// True if counters and marks agree.
    #[cfg(test)]
    pub(crate) fn is_consistent(&self) -> bool {
        let (mut sacked, mut lost, mut again) = (0, 0, 0);
        for seq in self.una..self.nxt {
            let word = &self.marks[self.word(seq)];
            let has = |bits: u64| u32::from(bits >> (seq & 63) & 1 != 0);
            sacked += has(word.sacked);
            lost += has(word.lost);
            again += has(word.again);
        }
        let total: u32 = self.marks.iter().map(|w| (w.sacked | w.lost | w.again | w.ever).count_ones()).sum();
        let inside = (self.una..self.nxt).filter(|&seq| {
            let w = &self.marks[self.word(seq)];
            (w.sacked | w.lost | w.again | w.ever) >> (seq & 63) & 1 != 0
        });
        (sacked, lost, again) == (self.sacked_out, self.lost_out, self.again_out)
            && inside.count() as u32 == total
    }
}

#[cfg(test)]
mod tests;
