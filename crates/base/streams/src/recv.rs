//! The receiving half of a stream: what has come, in order or not, and how much more may.

use crate::error::{Violation, code};
use crate::pages::Pages;
use crate::ranges::Ranges;
use crate::share::Pool;

/// Pieces that are kept of a stream: twice what a full window of packets is when every other one is missing.
const MAX_PIECES: usize = 8192;

/// Bytes that come in any order and are read in order. CRYPTO data is received into one as well.
#[derive(Debug, Default)]
pub struct RecvBuffer {
    pages: Pages,
    /// Received ranges that were not read.
    received: Ranges,
    /// Read so far.
    read: u64,
}

impl RecvBuffer {
    /// Takes bytes at `offset`; the caller has seen to it that there is a limit to how far ahead they may be.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        if end <= self.read {
            return;
        }
        let start = offset.max(self.read);
        if self.received.insert(start..end) {
            self.pages.write(start, &data[(start - offset) as usize..]);
        }
    }

    /// Bytes that can be read at once.
    #[inline]
    pub fn readable(&self) -> u64 {
        self.received
            .first()
            .filter(|first| first.start == self.read)
            .map_or(0, |first| first.end - first.start)
    }

    /// Returns true if it is in more pieces than any network makes.
    pub(crate) fn is_shattered(&self) -> bool {
        self.received.len() > MAX_PIECES
    }

    /// Moves what can be read to the front of `out`; how much it was.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let len = self.readable().min(out.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let part = self.pages.slice(self.read + done as u64, len - done);
            out[done..done + part.len()].copy_from_slice(part);
            done += part.len();
        }
        self.read += len as u64;
        self.received.remove_below(self.read);
        self.pages.release(self.read, self.received.is_empty());
        len
    }

    /// Read so far.
    pub fn offset(&self) -> u64 {
        self.read
    }

    /// Drops what was not read.
    pub(crate) fn clear(&mut self) {
        *self = RecvBuffer { read: self.read, ..RecvBuffer::default() };
        self.pages.release(self.read, true);
    }
}

/// The receiving half of a stream.
#[derive(Debug, Default)]
pub(crate) struct RecvHalf {
    pub(crate) buffer: RecvBuffer,
    /// One past the highest byte that has come.
    pub(crate) end: u64,
    /// The peer may send up to here.
    pub(crate) max: u64,
    /// Window beyond the bytes that were read.
    pub(crate) window: u64,
    /// Bytes that may lie here unread, as recorded with the pool.
    pub(crate) held: u64,
    pub(crate) final_size: Option<u64>,
    /// The peer has reset it with this code.
    pub(crate) reset: Option<u64>,
    /// The application wants no more, for this code.
    pub(crate) stopped: Option<u64>,
    /// The application was told that there is something, and has not looked yet.
    pub(crate) told: bool,
    /// The application has read to the end, or knows of the reset.
    pub(crate) is_read: bool,
}

impl RecvHalf {
    /// Checks a range that has come, and says how many bytes it adds to the highest.
    pub(crate) fn extend(&mut self, end: u64, fin: bool) -> Result<u64, Violation> {
        let fail = |code, reason| Err(Violation::new(code, reason));
        if end > self.max {
            return fail(code::FLOW_CONTROL, "more than the stream's limit");
        }
        let changed = self.final_size.is_some_and(|size| end > size || (fin && end != size));
        if changed || (fin && end < self.end) {
            return fail(code::FINAL_SIZE, "the final size of a stream has changed");
        }
        if fin {
            self.final_size = Some(end);
        }
        let new = end.saturating_sub(self.end);
        self.end += new;
        Ok(new)
    }

    /// Returns true if everything up to the end has been read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.final_size == Some(self.buffer.offset())
    }

    /// Raises the limit once half of the window was read; whether the peer is to hear of it. The window doubles, up to `most`,
    /// while the application keeps up.
    pub(crate) fn extend_limit(&mut self, most: u64, pool: &Pool) -> bool {
        if self.final_size.is_some() || self.stopped.is_some() {
            return false;
        }
        let allowed = pool.limit(self.held);
        let window = self.window.min(allowed);
        let offset = self.buffer.offset();
        if offset + window < self.max + window / 2 {
            return false;
        }
        // The first limit may be lower than the window.
        if self.max >= self.window && self.buffer.readable() <= self.window / 8 {
            self.window = (2 * self.window).min(most).max(self.window);
        }
        let max = offset + self.window.min(allowed);
        let more = max > self.max;
        self.max = self.max.max(max);
        more
    }

    /// Records with the pool what may lie here unread.
    pub(crate) fn settle(&mut self, pool: &mut Pool) {
        let discards = self.is_read || self.reset.is_some() || self.stopped.is_some();
        let end = if discards { self.buffer.offset() } else { self.final_size.unwrap_or(self.max) };
        let held = end - self.buffer.offset();
        pool.change(std::mem::replace(&mut self.held, held), held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_in_order_once() {
        let mut buffer = RecvBuffer::default();
        buffer.write(3, b"defg");
        assert_eq!(buffer.readable(), 0);
        buffer.write(0, b"abcd");
        buffer.write(1, b"xx");
        let mut out = [0; 5];
        assert_eq!((buffer.read(&mut out), &out), (5, b"abcde"));
        buffer.write(2, b"cdefghi");
        assert_eq!(buffer.read(&mut out), 4);
        assert_eq!(&out[..4], b"fghi");
    }

    #[test]
    fn flow_control_and_final_size_are_enforced() {
        let mut half = RecvHalf { max: 10, window: 10, ..RecvHalf::default() };
        assert_eq!(half.extend(6, false), Ok(6));
        assert_eq!(half.extend(11, false).unwrap_err().code, code::FLOW_CONTROL);
        assert_eq!(half.extend(5, true).unwrap_err().code, code::FINAL_SIZE);
        assert_eq!(half.extend(8, true), Ok(2));
        assert_eq!(half.extend(9, false).unwrap_err().code, code::FINAL_SIZE);
        assert_eq!(half.extend(7, true).unwrap_err().code, code::FINAL_SIZE);
        assert_eq!(half.extend(8, true), Ok(0));
    }
}
