//! Bytes of a stream by their offset, in pages: written in any order, released from the front.

use std::cell::RefCell;
use std::collections::VecDeque;

/// Bytes of a page: large enough that a packet seldom touches two, small enough for a stream of a few bytes.
pub(crate) const PAGE: usize = 16 << 10;
/// Pages that a thread keeps for the next ones: to ask the system each time costs more than to fill them.
const MAX_SPARE: usize = 256;

thread_local! {
    /// The last one let go is the next one taken, because it is in the processor's cache still. One store for all streams of all connections:
    /// none that is idle keeps anything.
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

fn take() -> Box<[u8]> {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; PAGE].into())
}

fn give_back(pages: impl Iterator<Item = Box<[u8]>>) {
    // At the end of a thread there is no store any more.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        let room = MAX_SPARE.saturating_sub(spare.len());
        spare.extend(pages.take(room));
    });
}

/// A window on a stream. The first page holds the lowest offset that is still wanted.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Offset of the first page divided by its size.
    first: u64,
    pages: VecDeque<Option<Box<[u8]>>>,
}

impl Drop for Pages {
    fn drop(&mut self) {
        give_back(self.pages.drain(..).flatten());
    }
}

impl Pages {
    /// The page of `offset`, and where in it.
    fn position(&self, offset: u64) -> (usize, usize) {
        let page = (offset / PAGE as u64).saturating_sub(self.first);
        (page as usize, (offset % PAGE as u64) as usize)
    }

    /// Puts bytes at `offset`, which has not been let go.
    pub(crate) fn write(&mut self, mut offset: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let (page, at) = self.position(offset);
            while self.pages.len() <= page {
                self.pages.push_back(None);
            }
            let own = self.pages[page].get_or_insert_with(take);
            let len = data.len().min(PAGE - at);
            let (head, rest) = data.split_at(len);
            own[at..at + len].copy_from_slice(head);
            (data, offset) = (rest, offset + len as u64);
        }
    }

    /// The bytes from `offset` to the end of its page, at most `len`; none where nothing was written.
    pub(crate) fn slice(&self, offset: u64, len: usize) -> &[u8] {
        let (page, at) = self.position(offset);
        let own = self.pages.get(page).and_then(Option::as_deref).unwrap_or_default();
        own.get(at..).map_or(&[], |rest| &rest[..len.min(rest.len())])
    }

    /// Appends `len` bytes from `offset`, all of which were written.
    pub(crate) fn copy_to(&self, mut offset: u64, mut len: usize, out: &mut Vec<u8>) {
        while len > 0 {
            let part = self.slice(offset, len);
            debug_assert!(!part.is_empty());
            if part.is_empty() {
                return;
            }
            out.extend_from_slice(part);
            (offset, len) = (offset + part.len() as u64, len - part.len());
        }
    }

    /// Nothing below `offset` is wanted any more; with `all`, nothing at all.
    pub(crate) fn release(&mut self, offset: u64, all: bool) {
        let first = offset / PAGE as u64;
        let gone = usize::try_from(first.saturating_sub(self.first)).unwrap_or(usize::MAX);
        give_back(self.pages.drain(..gone.min(self.pages.len())).flatten());
        self.first = self.first.max(first);
        if all {
            give_back(self.pages.drain(..).flatten());
            if self.pages.capacity() > 64 {
                self.pages = VecDeque::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_order_writes_are_read_back() {
        let data: Vec<u8> = (0..100_000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let mut pages = Pages::default();
        pages.write(50_000, &data[50_000..]);
        pages.write(0, &data[..50_000]);
        let mut out = Vec::new();
        pages.copy_to(10, 99_990, &mut out);
        assert_eq!(out, data[10..]);
        pages.release(40_000, false);
        assert_eq!(pages.slice(40_000, 5), &data[40_000..40_005]);
        assert_eq!(pages.pages.len(), 5);
        pages.write(100_000, &[1]);
        assert_eq!(pages.slice(100_000, 1), [1]);
        pages.release(100_001, true);
        assert!(pages.pages.is_empty() && pages.slice(100_001, 1).is_empty());
        pages.write(100_001, &[2, 3]);
        assert_eq!(pages.slice(100_001, 9)[..2], [2, 3]);
    }
}
