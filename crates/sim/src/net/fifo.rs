//! Backlog of a plain FIFO: the sizes of its waiting packets, in order.
//!
//! The packet in service does not wait, as in the kernel: the queue has given it to the device. Which packet is in service
//! depends on the sizes of those behind it, so the sizes are kept. While there are two sizes and not too many packets
//! (full segments and ACKs, mostly), a size is one bit, and the bits of the last packets are in the link's own cache line.
//! Other sizes are stored apart. The time until the link is idle bounds the backlog. The exact backlog is needed only near
//! the limit and the threshold; it is then counted, and packets whose transmission has begun are dropped from the record.

use super::buffer::{Backlog, Buffer, FifoState};
use super::link::{Link, NO_RECENT};

/// With this number of bits in use, [`Link::recent`] has room for some more.
const SPILL_THRESHOLD: u32 = 47;

impl Link {
    /// Takes a packet into a plain FIFO if nothing about it needs thought; whether it has. Busy or free, this size or that:
    /// without a branch, as nobody could predict it.
    #[inline(always)]
    pub(crate) fn enqueue_fast(&mut self, size: u16, now_ps: u64) -> bool {
        let ahead_ps = self.busy_until.saturating_sub(now_ps);
        let until_ps = ahead_ps + self.wire_ps(size);
        let second = usize::from(size != self.sizes[0]);
        let is_full = self.recent.wrapping_shr(self.room.into()) != 0;
        if until_ps >= self.near_ps || size != self.sizes[second] || is_full {
            return false;
        }
        self.recent = if ahead_ps == 0 { NO_RECENT } else { self.recent << 1 | second as u64 };
        self.busy_until = now_ps + until_ps;
        self.count(size);
        true
    }

    /// Takes any packet into a FIFO, plain or with impairments: whether it meets a backlog above the threshold; `None`: there
    /// is no room.
    #[inline]
    pub(crate) fn enqueue(&mut self, buffer: &mut Buffer, size: u16, now_ps: u64) -> Option<bool> {
        let waiting = self.settle(&mut buffer.fifo, now_ps);
        if buffer.is_full(waiting, size) {
            return None;
        }
        self.append(&mut buffer.fifo, size, now_ps);
        self.room = buffer.fifo.room();
        self.busy_until = self.busy_until.max(now_ps) + self.wire_ps(size);
        self.count(size);
        Some(buffer.marks(waiting))
    }

    /// Backlog just before `now_ps`.
    pub(crate) fn backlog(&self, buffer: &Buffer, now_ps: u64) -> Backlog {
        // What starts now waited before.
        match now_ps.checked_sub(1) {
            Some(before_ps) if self.busy_until > now_ps => {
                self.clone().settle(&mut buffer.fifo.clone(), before_ps)
            }
            _ => Backlog::default(),
        }
    }

    /// One more that is about to be accepted, after [`Link::settle`].
    fn append(&mut self, fifo: &mut FifoState, size: u16, now_ps: u64) {
        let is_known = self.adopt(size);
        if self.busy_until <= now_ps {
            return; // it does not wait
        }
        if !is_known || self.recent.ilog2() > SPILL_THRESHOLD {
            self.spill(fifo);
        }
        if is_known {
            self.recent = self.recent << 1 | u64::from(size != self.sizes[0]);
        } else {
            fifo.older.push(size);
        }
    }

    /// Makes `size` one of the two, if it is not and one of them is free.
    fn adopt(&mut self, size: u16) -> bool {
        if self.sizes.contains(&size) {
            return true;
        }
        let (packets, second) = self.newest();
        let free = match self.sizes {
            [0, _] => 0,
            _ if second == 0 => 1,
            _ if second == packets => 0,
            _ => return false,
        };
        self.sizes[free] = size;
        true
    }

    /// Number of packets that have a bit, and number of those that have the second size.
    fn newest(&self) -> (u32, u32) {
        (self.recent.ilog2(), self.recent.count_ones() - 1)
    }

    /// Makes room for bits.
    #[inline(never)]
    fn spill(&mut self, fifo: &mut FifoState) {
        let size = |age: u32| self.sizes[(self.recent >> age & 1) as usize];
        fifo.compact();
        fifo.older.extend((0..self.recent.ilog2()).rev().map(size));
        self.recent = NO_RECENT;
    }

    /// Forgets the packets whose transmission has begun by `now_ps`; the others.
    #[inline]
    pub(crate) fn settle(&mut self, fifo: &mut FifoState, now_ps: u64) -> Backlog {
        if self.busy_until <= now_ps {
            self.recent = NO_RECENT;
            return Backlog::default();
        }
        let mut left = self.recent.ilog2();
        if self.packets - u64::from(left) - fifo.older().len() as u64 != fifo.gone_packets {
            self.resync(fifo);
        }
        let (mut next_ps, mut gone_bytes, mut done) = (fifo.next_ps, fifo.gone_bytes, fifo.done);
        while next_ps <= now_ps
            && let Some(&size) = fifo.older.get(done as usize)
        {
            done += 1;
            gone_bytes += u64::from(size);
            next_ps += self.wire_ps(size);
        }
        while next_ps <= now_ps && left != 0 {
            left -= 1;
            let size = self.sizes[(self.recent >> left & 1) as usize];
            gone_bytes += u64::from(size);
            next_ps += self.wire_ps(size);
        }
        (fifo.next_ps, fifo.gone_bytes, fifo.done) = (next_ps, gone_bytes, done);
        let packets = u64::from(left) + fifo.older().len() as u64;
        fifo.gone_packets = self.packets - packets;
        let leading = 1 << left;
        self.recent = self.recent & (leading - 1) | leading;
        Backlog { packets, bytes: self.bytes - gone_bytes }
    }

    /// The link has been free in between: only those count that came since and have a bit.
    #[inline(never)]
    fn resync(&self, fifo: &mut FifoState) {
        let (packets, second) = self.newest();
        let sum = |each: [u64; 2]| u64::from(packets - second) * each[0] + u64::from(second) * each[1];
        fifo.older.clear();
        fifo.done = 0;
        fifo.gone_packets = self.packets - u64::from(packets);
        fifo.gone_bytes = self.bytes - sum(self.sizes.map(u64::from));
        fifo.next_ps = self.busy_until - sum(self.sizes.map(|size| self.wire_ps(size)));
    }
}
