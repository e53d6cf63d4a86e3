//! The sending half of a stream: what was written, what of it is under way, lost or acknowledged.
//!
//! A range knows nothing of paths: what one loses, any other may carry.

use crate::limits::Limits;
use crate::pages::Pages;
use crate::ranges::Ranges;
use crate::share::Pool;
use std::ops::Range;

/// Bytes in order that are kept until they are acknowledged. CRYPTO data is sent from one as well.
#[derive(Debug, Default)]
pub struct SendBuffer {
    pages: Pages,
    /// Everything below is acknowledged.
    base: u64,
    /// Acknowledged above.
    acked: Ranges,
    /// Lost, to be retransmitted.
    lost: Ranges,
    /// From here on nothing was sent.
    unsent: u64,
    end: u64,
}

impl SendBuffer {
    /// Appends bytes.
    pub fn write(&mut self, data: &[u8]) {
        self.pages.write(self.end, data);
        self.end += data.len() as u64;
    }

    /// Written so far.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// From here on nothing was sent.
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Bytes that are kept.
    pub(crate) fn kept(&self) -> u64 {
        self.end - self.base
    }

    /// Bytes that were written and not sent.
    pub(crate) fn waiting(&self) -> u64 {
        self.end - self.unsent
    }

    /// Bytes that may be written.
    fn room(&self, limits: &Limits) -> u64 {
        let unsent = limits.unsent_window.saturating_sub(self.waiting());
        limits.send_window.saturating_sub(self.kept()).min(unsent)
    }

    /// Returns true if everything written is acknowledged.
    #[inline]
    pub fn is_acked(&self) -> bool {
        self.base == self.end
    }

    /// Returns true if something is to be repeated.
    #[inline]
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Returns true if there is something to send with new data up to `limit`.
    #[inline]
    pub fn has_work(&self, limit: u64) -> bool {
        self.has_lost() || self.unsent < self.end.min(limit)
    }

    /// Offset and contiguous length of the next data to send.
    pub fn peek(&self, limit: u64) -> (u64, u64) {
        match self.lost.first() {
            Some(first) => (first.start, first.end - first.start),
            None => (self.unsent, self.new_len(limit)),
        }
    }

    /// Takes what goes next, at most `most` bytes: what was lost first, then what is new, up to `limit`.
    pub fn take(&mut self, most: u64, limit: u64) -> Option<Range<u64>> {
        if let Some(first) = self.lost.first() {
            let range = first.start..first.end.min(first.start + most);
            self.lost.remove(&range);
            return Some(range).filter(|range| !range.is_empty());
        }
        self.take_new(most, limit)
    }

    /// Length of the data up to `limit` that were never sent.
    pub(crate) fn new_len(&self, limit: u64) -> u64 {
        self.end.min(limit).saturating_sub(self.unsent)
    }

    /// Takes data that were never sent, at most `most` bytes up to `limit`.
    pub(crate) fn take_new(&mut self, most: u64, limit: u64) -> Option<Range<u64>> {
        let range = self.unsent..self.end.min(limit).min(self.unsent + most);
        if range.is_empty() {
            return None;
        }
        self.unsent = range.end;
        Some(range)
    }

    /// Appends the bytes of a range that [`take`](Self::take) gave.
    pub fn copy_to(&self, range: &Range<u64>, out: &mut Vec<u8>) {
        self.pages.copy_to(range.start, (range.end - range.start) as usize, out);
    }

    /// Returns true if a range was sent and something of it is not acknowledged.
    pub(crate) fn is_wanted(&self, range: &Range<u64>) -> bool {
        let range = self.clamp(range);
        !range.is_empty() && !self.acked.gaps(range).is_empty()
    }

    /// The part of a range that is kept still.
    pub(crate) fn clamp(&self, range: &Range<u64>) -> Range<u64> {
        let end = range.end.min(self.unsent);
        range.start.max(self.base).min(end)..end
    }

    /// Records that a range has arrived.
    pub fn on_acked(&mut self, range: Range<u64>) {
        if range.end <= self.base {
            return;
        }
        if self.has_lost() {
            self.lost.remove(&range);
        }
        if range.start <= self.base {
            self.base = range.end;
            // It may reach over several that were acknowledged before; one at most touches its end.
            self.acked.remove_below(self.base);
            if let Some(first) = self.acked.first().filter(|first| first.start == self.base) {
                self.base = first.end;
                self.acked.pop_first();
            }
            self.pages.release(self.base, self.base == self.end);
        } else {
            self.acked.insert(range);
        }
    }

    /// Queues a range again.
    pub fn on_lost(&mut self, range: Range<u64>) {
        let range = range.start.max(self.base)..range.end;
        if self.acked.is_empty() {
            self.lost.insert(range);
        } else {
            for gap in self.acked.gaps(range) {
                self.lost.insert(gap);
            }
        }
    }

    /// Drops data that was never sent.
    pub(crate) fn truncate(&mut self) {
        self.end = self.unsent;
        self.pages.release(self.base, self.base == self.end);
    }

    /// Forgets everything: the stream was reset.
    pub(crate) fn clear(&mut self) {
        // What was never sent does not count towards the final size.
        (self.base, self.end) = (self.unsent, self.unsent);
        self.pages.release(self.end, true);
        (self.acked, self.lost) = (Ranges::default(), Ranges::default());
    }
}

/// State of the stream's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fin {
    /// More may be written.
    #[default]
    Open,
    /// To be sent, for the first time or again.
    Pending,
    Sent,
    Acked,
}

/// The sending half of a stream.
#[derive(Debug, Default)]
pub(crate) struct SendHalf {
    pub(crate) buffer: SendBuffer,
    pub(crate) fin: Fin,
    /// The peer takes no more than this.
    pub(crate) max: u64,
    /// RESET_STREAM with this code was asked for.
    pub(crate) reset: Option<u64>,
    pub(crate) reset_acked: bool,
    /// In the queue of streams that have something to send.
    pub(crate) queued: bool,
    /// The application found no room and wants to know when there is some.
    pub(crate) blocked: bool,
    /// Bytes that are kept, as recorded with the pool.
    pub(crate) held: u64,
}

impl SendHalf {
    /// Returns true if there is something to send, with or without credit of the connection for new bytes.
    pub(crate) fn has_work(&self, new_allowed: bool) -> bool {
        self.reset.is_none()
            && (self.buffer.has_work(if new_allowed { self.max } else { 0 }) || self.fin_is_due())
    }

    /// End of the data that may be sent with this much credit of the connection.
    pub(crate) fn limit(&self, credit: u64) -> u64 {
        self.max.min(self.buffer.unsent() + credit)
    }

    /// Returns true if FIN can leave with the next bytes, all others having been sent.
    pub(crate) fn fin_is_due(&self) -> bool {
        self.fin == Fin::Pending && self.buffer.unsent() == self.buffer.end()
    }

    /// Bytes that may be written.
    pub(crate) fn room(&self, limits: &Limits, pool: &Pool) -> u64 {
        let shared = pool.limit(self.held).saturating_sub(self.buffer.kept());
        self.buffer.room(limits).min(shared)
    }

    /// Records with the pool what is kept.
    pub(crate) fn settle(&mut self, pool: &mut Pool) {
        let held = if self.reset.is_some() { 0 } else { self.buffer.kept() };
        pool.change(std::mem::replace(&mut self.held, held), held);
    }

    /// Returns true if the application is to be notified of room again: for half of what may wait.
    pub(crate) fn is_relieved(&mut self, limits: &Limits, pool: &Pool) -> bool {
        let may_wait = limits.unsent_window.min(pool.limit(self.held));
        let relieved = self.blocked && self.room(limits, pool) >= may_wait / 2;
        self.blocked &= !relieved;
        relieved
    }

    /// Returns true if nothing will ever be sent or acknowledged any more.
    pub(crate) fn is_over(&self) -> bool {
        self.reset_acked || (self.fin == Fin::Acked && self.buffer.is_acked())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_acks_leave_no_gap() {
        let mut buffer = SendBuffer::default();
        buffer.write(&[7; 2000]);
        assert_eq!(buffer.take(2000, 2000), Some(0..2000));
        for range in [100..200, 1100..1200, 0..1150, 1200..2000] {
            buffer.on_acked(range);
        }
        assert!(buffer.is_acked() && buffer.kept() == 0);
    }

    #[test]
    fn unsent_data_is_bounded_and_writable_is_signalled_at_half() {
        let limits = Limits {
            first_stream_window: 0,
            stream_window: 0,
            connection_window: 0,
            max_streams_bidi: 0,
            max_streams_uni: 0,
            send_window: 10_000,
            connection_send_window: u64::MAX,
            unsent_window: 1000,
            reserved_stream_window: 0,
        };
        let pool = Pool::new(u64::MAX, 0);
        let mut half = SendHalf { blocked: true, max: u64::MAX, ..SendHalf::default() };
        half.buffer.write(&[7; 1000]);
        assert_eq!((half.room(&limits, &pool), half.is_relieved(&limits, &pool)), (0, false));
        let _ = half.buffer.take(499, u64::MAX);
        assert!(!half.is_relieved(&limits, &pool));
        let _ = half.buffer.take(1, u64::MAX);
        assert!(half.is_relieved(&limits, &pool) && !half.is_relieved(&limits, &pool), "once");
        for _ in 0..18 {
            half.buffer.write(&[7; 500]);
            let _ = half.buffer.take(1000, u64::MAX);
        }
        assert_eq!(half.room(&limits, &pool), 0, "all that is kept is under way");
        half.buffer.on_acked(0..600);
        assert_eq!(half.room(&limits, &pool), 600);
    }

    #[test]
    fn lost_data_is_retransmitted_first_and_only_if_missing() {
        let mut buffer = SendBuffer::default();
        buffer.write(&[7; 5000]);
        assert_eq!(buffer.take(1000, 5000), Some(0..1000));
        assert_eq!(buffer.take(9000, 3000), Some(1000..3000), "flow control");
        assert_eq!(buffer.take(9000, 3000), None);
        buffer.on_acked(1500..2000);
        buffer.on_lost(0..3000);
        assert_eq!(buffer.take(9000, 5000), Some(0..1500));
        buffer.on_acked(2000..3000);
        assert_eq!(buffer.take(9000, 5000), Some(3000..5000), "what was thought lost has come");
        assert_eq!(buffer.kept(), 5000);
        buffer.on_acked(0..1500);
        assert_eq!(buffer.kept(), 2000);
        buffer.on_acked(3000..5000);
        assert!(buffer.is_acked());
        buffer.on_lost(100..200);
        assert!(!buffer.has_work(u64::MAX), "acknowledged before");
    }
}
