//! What waits in a plain FIFO: the sizes of its packets, in order.
//!
//! A packet that is being sent waits no longer, as in the kernel: its queue has given it to the device. Which
//! packet that is depends on the sizes of those before it, so these are kept. They are forgotten no sooner than
//! somebody must know: what waited at most decides most arrivals, and many sizes at once cost less than each by itself.

use super::link::Link;

/// Sizes of waiting packets: a ring that grows to the longest queue there was.
#[derive(Clone, Debug, Default)]
#[repr(align(32))]
pub(crate) struct Sizes {
    /// A power of two of them, or none.
    ring: Box<[u16]>,
    /// Number of the first, counted since the beginning; wraps.
    first: u32,
    len: u32,
}

const _: () = assert!(size_of::<Sizes>() == 32);

impl Sizes {
    /// Needs room.
    #[inline]
    fn push(&mut self, size: u16) {
        let mask = self.ring.len() - 1;
        self.ring[(self.first.wrapping_add(self.len)) as usize & mask] = size;
        self.len += 1;
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.len as usize == self.ring.len()
    }

    #[inline]
    fn pop(&mut self) -> u16 {
        let size = self.get(0);
        self.first = self.first.wrapping_add(1);
        self.len -= 1;
        size
    }

    #[inline]
    fn get(&self, index: u32) -> u16 {
        self.ring[self.first.wrapping_add(index) as usize & (self.ring.len() - 1)]
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let all: Vec<u16> = (0..self.len).map(|index| self.get(index)).collect();
        self.first = 0;
        self.ring = vec![0; (2 * self.ring.len()).max(16)].into_boxed_slice();
        self.ring[..all.len()].copy_from_slice(&all);
    }
}

impl Link {
    /// An arrival at a plain FIFO: whether it meets a backlog above the threshold; `None`: no room.
    #[inline(always)]
    pub(crate) fn enqueue(&mut self, sizes: &mut Sizes, size: u16, now_ps: u64) -> Option<bool> {
        if self.busy_until <= now_ps {
            return self.enqueue_idle(sizes, size, now_ps);
        }
        if !self.is_room(size) || self.waiting_bytes > self.mark_bytes {
            self.settle(sizes, now_ps);
            if !self.is_room(size) {
                return None;
            }
        }
        let mark = self.waiting_bytes > self.mark_bytes;
        if sizes.is_full() {
            self.make_room(sizes, now_ps);
        }
        if self.waiting_bytes == 0 {
            self.service_end = self.busy_until;
        }
        sizes.push(size);
        self.waiting_bytes += u32::from(size);
        self.busy_until += self.wire_ps(size);
        Some(mark)
    }

    /// Nothing waits and nothing is sent.
    #[inline]
    fn enqueue_idle(&mut self, sizes: &mut Sizes, size: u16, now_ps: u64) -> Option<bool> {
        if self.waiting_bytes != 0 {
            (self.waiting_bytes, sizes.len) = (0, 0);
        }
        if !self.is_room(size) {
            return None;
        }
        self.busy_until = now_ps + self.wire_ps(size);
        Some(false)
    }

    /// Whether `size` bytes may join what waits at most.
    #[inline]
    fn is_room(&self, size: u16) -> bool {
        // Below 2^32 by the limit, and the limit's own excess is caught before it is added.
        u64::from(self.waiting_bytes) + u64::from(size) <= u64::from(self.limit_bytes)
    }

    /// Room for a size: of those whose packets have begun to be sent, or, where these are few, in a larger ring.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, sizes: &mut Sizes, now_ps: u64) {
        self.settle(sizes, now_ps);
        if 2 * sizes.len as usize >= sizes.ring.len() {
            sizes.grow();
        }
    }

    /// Forgets the packets whose transmission has begun by now, when one is being sent.
    #[inline]
    fn settle(&mut self, sizes: &mut Sizes, now_ps: u64) {
        while self.waiting_bytes != 0 && self.service_end <= now_ps {
            let size = sizes.pop();
            self.waiting_bytes -= u32::from(size);
            self.service_end += self.wire_ps(size);
        }
    }

    /// Bytes that wait just before `now_ps`.
    pub(crate) fn waiting_bytes(&self, sizes: &Sizes, now_ps: u64) -> u64 {
        let (mut waiting, mut end) = (self.waiting_bytes, self.service_end);
        for index in 0..sizes.len {
            if end >= now_ps {
                break;
            }
            let size = sizes.get(index);
            waiting -= u32::from(size);
            end += self.wire_ps(size);
        }
        waiting.into()
    }
}
