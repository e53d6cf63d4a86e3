//! Which segments are lost, by time, by RACK and by RFC 6675, and which of them is sent again next.

use super::{Rack, Scoreboard, span_mask};
use crate::time::{Span, Time};

impl Scoreboard {
    pub(super) fn mark_lost_bits(&mut self, base: u32, bits: u64) -> u32 {
        let word = &mut self.marks[(base >> 6 & self.word_mask) as usize];
        let new = bits & !word.lost & !word.sacked;
        word.lost |= new;
        let dropped = word.again & bits;
        word.again &= !bits;
        self.lost_out += new.count_ones();
        self.again_out -= dropped.count_ones();
        let changed = new | dropped;
        if changed != 0 {
            self.hint = self.hint.min(base + changed.trailing_zeros());
            self.marked_end = self.marked_end.max(base + 64 - changed.leading_zeros());
        }
        changed.count_ones()
    }

    /// The timer expired: the oldest segment is lost, and of the others, retransmissions too, what is not SACKed
    /// and was sent `recent` ago or earlier (Linux `tcp_timeout_mark_lost`).
    pub(crate) fn mark_timed_out(&mut self, now: Time, recent: Span) {
        for base in (self.una & !63..self.nxt).step_by(64) {
            let unsacked = span_mask(base, self.una, self.nxt) & !self.marks[self.word(base)].sacked;
            let (mut rest, mut late) = (unsacked, 0);
            while rest != 0 {
                let bit = rest & rest.wrapping_neg();
                rest &= rest - 1;
                let seq = base + bit.trailing_zeros();
                if seq == self.una || now.since(self.segment(seq).sent) >= recent {
                    late |= bit;
                }
            }
            self.mark_lost_bits(base, late);
        }
    }

    /// Takes back the marks of segments declared lost (F-RTO).
    pub(crate) fn clear_lost(&mut self) {
        for word in &mut self.marks {
            word.lost = 0;
        }
        self.lost_out = 0;
    }

    /// RFC 8985 section 6.2 step 5: marks what was sent before `rack` and is overdue. Returns the number
    /// newly lost and the time until the next segment would be (zero: none is waiting).
    #[inline]
    pub(crate) fn rack_mark_lost(&mut self, now: Time, rack: &Rack, reorder_window: Span) -> (u32, Span) {
        let marked = self.sacked_out | self.lost_out | self.again_out != 0;
        // Originals were sent in sequence order: where nothing is marked, the first tells of all.
        if !marked && (self.out() == 0 || !rack.is_after(self.segment(self.una).sent, self.una, false)) {
            return (0, Span::ZERO);
        }
        self.rack_walk(now, rack, reorder_window)
    }

    fn rack_walk(&mut self, now: Time, rack: &Rack, reorder_window: Span) -> (u32, Span) {
        let mut lost = 0;
        let mut wait = Span::ZERO;
        let limit = rack.rtt + reorder_window;
        let mut originals = true;
        // Retransmissions leave in the order of time: none is overdue while the oldest is not.
        let again_due = self.again_out > 0 && rack.sent > self.oldest_again;
        let mut oldest = Time::NEVER;
        let mut base = self.una & !63;
        while base < self.nxt {
            let word = self.marks[self.word(base)];
            let span = span_mask(base, self.una, self.nxt) & !word.sacked;
            // Originals were sent in sequence order: nothing after the first late one can be overdue.
            let again = if again_due { word.again } else { 0 };
            let mut rest = span & (again | if originals { !word.lost & !word.again } else { 0 });
            let mut overdue = 0;
            while rest != 0 {
                let bit = rest & rest.wrapping_neg();
                rest &= rest - 1;
                let seq = base + bit.trailing_zeros();
                let sent = self.ring[(seq & self.mask) as usize].sent;
                if word.again & bit != 0 {
                    oldest = oldest.min(sent);
                }
                if !rack.is_after(sent, seq, word.again & bit != 0) {
                    if word.again & bit == 0 {
                        originals = false;
                        rest &= again;
                    }
                    continue;
                }
                let age = now.since(sent);
                if age >= limit {
                    overdue |= bit;
                } else {
                    wait = wait.max(limit - age);
                }
            }
            if overdue != 0 {
                lost += self.mark_lost_bits(base, overdue);
            }
            if !originals && (!again_due || self.again_out == 0) {
                break;
            }
            base += 64;
        }
        if again_due {
            self.oldest_again = oldest;
        }
        (lost, wait)
    }

    /// RFC 6675 section 4 `IsLost`: marks every segment with `threshold` SACKed ones above it.
    pub(crate) fn mark_lost_below(&mut self, threshold: u32) -> u32 {
        if self.sacked_out < threshold {
            return 0;
        }
        let Some(limit) = self.nth_highest_sacked(threshold) else { return 0 };
        let mut lost = 0;
        for base in (self.una & !63..limit).step_by(64) {
            let word = self.marks[self.word(base)];
            let bits = span_mask(base, self.una, limit) & !word.sacked & !word.lost & !word.again;
            lost += self.mark_lost_bits(base, bits);
        }
        lost
    }

    fn nth_highest_sacked(&self, n: u32) -> Option<u32> {
        let mut missing = n;
        let mut base = (self.high_sacked.max(1) - 1) & !63;
        loop {
            let mut bits = self.marks[self.word(base)].sacked & span_mask(base, self.una, self.nxt.max(base));
            if bits.count_ones() < missing {
                missing -= bits.count_ones();
            } else {
                for _ in 1..missing {
                    bits &= !(1 << (63 - bits.leading_zeros()));
                }
                return Some(base + 63 - bits.leading_zeros());
            }
            if base <= self.una {
                return None;
            }
            base -= 64;
        }
    }

    /// Lowest lost segment without a retransmission in flight.
    pub(crate) fn next_lost(&mut self) -> Option<u32> {
        if self.lost_out == 0 {
            return None;
        }
        let mut base = self.hint.max(self.una) & !63;
        while base < self.nxt {
            let word = self.marks[self.word(base)];
            let bits = word.lost & !word.again & span_mask(base, self.una, self.nxt);
            if bits != 0 {
                self.hint = base + bits.trailing_zeros();
                return Some(self.hint);
            }
            base += 64;
        }
        self.hint = self.nxt;
        None
    }
}
